# SPDX-License-Identifier: Apache-2.0
"""What tests of dirty memory share: an observer of the stand-in for libcuda, images, programs told by the line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

from detshare.ebpf.dirty import TOUCHES, DirtyTracer
from tests.tracee import images
from tests.tracee.tracee import LIBCUDA


@contextmanager
def observing(*, strict: bool = False, touches: int = TOUCHES) -> Iterator[DirtyTracer]:
    """An observer of programs on the stand-in."""
    made = DirtyTracer(libcuda=[str(LIBCUDA)], strict=strict, touches=touches)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def tracer() -> Iterator[DirtyTracer]:
    with observing() as made:
        yield made


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images of other forms than PTX text."""
    return images.of_the_tracee(tmp_path_factory.mktemp("images"))


class Program:
    """On the stand-in. It says one line of JSON when it is ready, and "done" to each line that it is told."""

    def __init__(self, words: Sequence[str]) -> None:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(LIBCUDA.parent), "FAKECUDA_CLOCK": "virtual"}
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pid = self._process.pid
        self.addresses: list[int] = json.loads(self._line())
        """of what it allocated"""

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def say(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It comes to its end, which must be a good one."""
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        assert kind is not None or self._process.returncode == 0
