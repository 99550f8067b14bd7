# SPDX-License-Identifier: Apache-2.0
"""A program that does what it is told by the line, and answers each line with one of JSON."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from detshare.tools.bench.ebpf.part import PartError
from detshare.tools.bench.lines import Line, events

__all__ = ["Told"]


class Told:
    """Use as a context: on the way out it comes to its end, or is killed. Its stderr is ours."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._process.pid
        self._lines: queue.Queue[Line | None] = queue.Queue()
        threading.Thread(target=self._read, name=f"read {name}", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in events(self._process.stdout):
            self._lines.put(line)
        self._lines.put(None)

    def answer(self, seconds: float, meanwhile: Callable[[], None] | None = None) -> Line:
        """Its next line; `meanwhile`, which waits a little, is called again and again until it comes. PartError when
        none does."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get_nowait() if meanwhile else self._lines.get(timeout=seconds)
            except queue.Empty:
                if time.monotonic() >= until:
                    raise PartError(f"{self.name} said nothing for {seconds:g} s") from None
                if meanwhile:
                    meanwhile()
                continue
            if line is None:
                raise PartError(f"{self.name} ended with {self._process.wait()}")
            return line

    def say(self, text: str, seconds: float = 60.0, meanwhile: Callable[[], None] | None = None) -> Line:
        """One command; its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except OSError:
            raise PartError(f"{self.name} ended with {self._process.wait()}") from None
        return self.answer(seconds, meanwhile)

    def end(self, seconds: float = 20.0) -> int:
        """Lets it come to its end; its status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __enter__(self) -> Told:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.end()
