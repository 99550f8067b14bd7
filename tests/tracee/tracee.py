# SPDX-License-Identifier: Apache-2.0
"""The tracee: how to start it and to speak with it. `make -C tests/tracee` builds it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "tracee" / "tracee"
LIBCUDA = ROOT / "build" / "fakecuda" / "libcuda.so.1"


class Tracee:
    """A running tracee, on virtual time unless told otherwise."""

    def __init__(self, library: Path = LIBCUDA.parent, before: Sequence[str] = (), **environment: str) -> None:
        """`before`: a command that starts it; `pid` is that command's then."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKECUDA_", "LD_"))}
        self._process = subprocess.Popen(
            [*before, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**kept, "LD_LIBRARY_PATH": str(library), "FAKECUDA_CLOCK": "virtual", **environment},
        )
        self.pid = self._process.pid
        self.addresses: list[int] = []
        self.say("sync")

    def say(self, line: str) -> str:
        """One command; its answer. AssertionError when the tracee ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, f"the tracee ended with {self._process.wait()} at: {line}"
        if line.startswith("alloc"):
            self.addresses.append(int(answer))
        return answer

    def end(self) -> int:
        """Lets it come to its end; its exit status."""
        self._process.communicate()
        return self._process.returncode

    def __enter__(self) -> Tracee:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None and kind is None:
            assert self.end() == 0
        else:
            self._process.kill()
            self._process.communicate()
