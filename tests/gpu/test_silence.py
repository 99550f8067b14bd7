# SPDX-License-Identifier: Apache-2.0
"""Programs are adopted, steered, paused, released and killed without a line in the kernel log, and belong to who made
them. Needs root, a GPU and the kernel log; about twenty seconds."""

from __future__ import annotations

import ctypes
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.driver import DriverAbsent
from detshare.ctl.core.procfs import nvidia_fds
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.rm.kernel import KernelDriver
from tests.kernel_log import KernelLog

pytestmark = pytest.mark.gpu

HERE = Path(__file__).parent
_START_S = 30.0
_LOOKS_S = 5.0


class Child:
    """A helper program of this folder, running."""

    def __init__(self, name: str) -> None:
        words = [sys.executable, str(HERE / name)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        assert self.line() == "up"

    def line(self) -> str:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _START_S)[0]:
            raise AssertionError(f"nothing was heard of it for {_START_S:.0f} s")
        return self._process.stdout.readline().strip()

    def ask(self, text: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self.line()

    def end(self, *, kill: bool = False) -> None:
        """By its own way out, or by SIGKILL."""
        if kill:
            self._process.kill()
        self._process.communicate(timeout=_START_S)


@pytest.fixture
def log() -> KernelLog:
    try:
        return KernelLog()
    except OSError as error:
        pytest.skip(f"the kernel log cannot be read: {error}")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[RootBackend]:
    try:
        ctypes.CDLL("libcuda.so.1")
        made = RootBackend(KernelDriver(), tmp_path)
    except (OSError, DriverAbsent) as error:
        pytest.skip(f"no GPU to try it on: {error}")
    yield made
    made.close()


@pytest.fixture
def start() -> Iterator[Callable[[str], Child]]:
    children: list[Child] = []

    def begin(name: str) -> Child:
        children.append(Child(name))
        return children[-1]

    yield begin
    for child in children:
        child.end(kill=True)


def seen(backend: RootBackend, pid: int, *, compute: bool = True) -> Program:
    """A program at the first look that shows it, with its context if it has one."""
    until = time.monotonic() + _LOOKS_S
    while time.monotonic() < until:
        for program in backend.look().programs:
            if program.id.pid == pid and (program.compute or not compute):
                return program
        time.sleep(0.1)
    raise AssertionError(f"PID {pid} was not adopted within {_LOOKS_S:.0f} s")


def test_no_line_in_the_kernel_log_and_no_wrong_owner(
    log: KernelLog, backend: RootBackend, start: Callable[[str], Child]
) -> None:
    keeper = start("descriptor_keeper.py")
    programs = [start("small_cuda.py") for _ in range(2)]
    for program in programs:
        for fd in nvidia_fds(program.pid)[0]:
            assert int(keeper.ask(f"{program.pid} {fd}")) >= 0, "it could not take a duplicate"
    own = log.lines()  # what the programs themselves caused is not ours

    found = [seen(backend, program.pid) for program in programs]
    assert [each.state for each in found] == [State.RUNNING] * 2
    assert log.lines() == own, "by adoption"
    holder = seen(backend, keeper.pid, compute=False)
    assert holder.tsgs == ()
    assert any(f"PID {programs[0].pid}" in note for note in holder.notes)

    first, second = (str(program.pid) for program in programs)
    assert backend.set_priority(first, "high").changed
    assert backend.set_priority(second, "low").changed
    assert seen(backend, programs[0].pid).compute[0].slice_us == 20_000
    assert backend.pause(second).changed
    assert seen(backend, programs[1].pid).state is State.PAUSED
    assert backend.resume(second).changed
    assert backend.release(first).changed
    late = start("small_cuda.py")
    seen(backend, late.pid)
    assert log.lines() == own, "by verbs and a birth"

    for program, kill in ((late, False), (programs[0], True), (programs[1], False)):
        program.end(kill=kill)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:  # looks go on through a death, as a daemon's do
            backend.look()
            time.sleep(0.02)
    keeper.end()
    backend.look()
    backend.close()
    assert log.lines() == own, "by deaths"
