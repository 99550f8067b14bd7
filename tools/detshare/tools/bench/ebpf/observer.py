# SPDX-License-Identifier: Apache-2.0
"""`detshare-trace` as a process beside what is measured, and the CPU time that a process has used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from detshare.tools.bench.ebpf.part import PartError

__all__ = ["Observer", "cpu_s"]

_WATCHING = "watching"
_ATTACH_S = 60.0


def cpu_s(pid: int) -> float:
    """CPU time of a living process, its own and the kernel's for it, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Observer:
    """One of detshare-trace's tools, attached when this is made; None: nobody watches. Use as a context."""

    def __init__(self, tool: str | None, *words: str) -> None:
        self.tool = tool
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        if tool is None:
            return
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "detshare.ctl.trace.cli", tool, "--json", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ready = threading.Event()
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._hear)]
        for reader in self._readers:
            reader.start()
        if not self._ready.wait(_ATTACH_S) or self._process.poll() is not None:
            self._process.kill()
            raise PartError(f"detshare-trace {tool} does not watch: {' '.join(self.said)[-600:]}")

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.lines.append(json.loads(text))

    def _hear(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        for text in self._process.stderr:
            self.said.append(text.strip())
            if _WATCHING in text:
                self._ready.set()
        self._ready.set()

    def cpu_s(self) -> float:
        """So far; 0 where nobody watches."""
        return cpu_s(self._process.pid) if self._process is not None else 0.0

    def close(self) -> None:
        """As by Ctrl-C; what it printed is in `lines` then. Idempotent."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(10)

    def __enter__(self) -> Observer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
