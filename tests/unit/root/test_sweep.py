# SPDX-License-Identifier: Apache-2.0
"""What a sweep of /proc reads again, and what it takes for as before."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.core import procfs, sweep

OPENS = """
import sys
kept = []
print(flush=True)
for _ in sys.stdin:
    kept.append(open("/dev/null"))
    print(flush=True)
"""

COUNTED = os.stat("/proc/self/fd").st_size > 0
"""this kernel (6.2 or newer) says how many descriptors there are"""


class Child:
    """A process that opens one more file when it is told to."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", OPENS], stdin=pipe, stdout=pipe, text=True)
        self._answered()

    @property
    def pid(self) -> int:
        return self.process.pid

    def opens(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self._answered()

    def _answered(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.process.communicate("")


class Scene:
    """A sweep whose clock stands, over the real /proc; `fds` is what a process is found to hold of the driver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
        self.now, self.pid = 0.0, pid
        self.fds: tuple[list[int], list[tuple[int, int]]] = ([], [])
        self.reads = 0
        self.sweep = sweep.Sweep(lambda: self.now)
        monkeypatch.setattr(procfs, "nvidia_fds", self._read)

    def _read(self, pid: int) -> tuple[list[int], list[tuple[int, int]]]:
        if pid != self.pid:
            return [], []
        self.reads += 1
        return self.fds

    def finds(self, clients: int | None = 7) -> bool:
        return self.pid in [each.id.pid for each in self.sweep.openers(clients)]


def sizes(monkeypatch: pytest.MonkeyPatch, size: Callable[[str], int]) -> None:
    """Have the folders of descriptors say that size."""
    stat = os.stat

    def sized(path: str) -> os.stat_result:
        found = stat(path)
        return os.stat_result((*found[:6], size(path), *found[7:10])) if path.endswith("/fd") else found

    monkeypatch.setattr("detshare.ctl.core.sweep.os.stat", sized)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, child: Child) -> Scene:
    if not COUNTED:
        sizes(monkeypatch, lambda folder: len(os.listdir(folder)))
    return Scene(monkeypatch, child.pid)


def test_who_opens_something_is_read_again(scene: Scene, child: Child) -> None:
    assert not scene.finds()
    assert not scene.finds()
    assert scene.reads == 1
    scene.fds = ([3], [])
    child.opens()
    assert scene.finds()
    assert scene.finds()
    assert scene.reads == 2


@pytest.mark.parametrize("clients", [8, None])
def test_another_number_of_clients_has_everything_read(scene: Scene, clients: int | None) -> None:
    assert not scene.finds()
    scene.fds = ([3], [(4, 0)])
    assert not scene.finds()
    assert scene.finds(clients)
    assert scene.reads == 2


def test_everything_is_read_after_a_while(scene: Scene) -> None:
    assert not scene.finds()
    scene.fds = ([3], [])
    scene.now += sweep.ALL_S
    assert scene.finds()


def test_what_takes_long_is_done_more_seldom(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with hundreds of processes."""
    took = iter([0.0, 0.004, *[1.0] * 20])
    monkeypatch.setattr(sweep.Sweep, "_read", lambda self, pid: procfs.nvidia_fds(pid))
    monkeypatch.setattr("detshare.ctl.core.sweep.time.thread_time", lambda: next(took))
    assert not scene.finds()
    scene.fds = ([3], [])
    scene.now += sweep.ALL_FACTOR * 0.004 - 0.1
    assert not scene.finds()
    scene.now += 0.2
    assert scene.finds()


def test_everything_is_read_in_the_end_however_long_it_takes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([0.0, 7.0, *[9.0] * 20])
    monkeypatch.setattr(sweep.Sweep, "_read", lambda self, pid: procfs.nvidia_fds(pid))
    monkeypatch.setattr("detshare.ctl.core.sweep.time.thread_time", lambda: next(took))
    assert not scene.finds()
    scene.fds = ([3], [])
    scene.now += sweep.MOST_ALL_S
    assert scene.finds()


def test_who_ended_is_gone(scene: Scene, child: Child) -> None:
    scene.fds = ([3], [])
    assert scene.finds()
    child.process.communicate("")
    assert not scene.finds()


def test_who_takes_long_to_read_is_read_seldom(scene: Scene, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """With half a million descriptors a process, of whatever user, could keep the sweeps busy."""
    monkeypatch.setattr("detshare.ctl.core.sweep.time.thread_time", lambda: float(scene.reads))
    scene.fds = ([3], [])
    assert scene.finds()
    scene.fds = ([], [])
    for _ in range(4):
        child.opens()
        scene.now += (sweep.SLOW_FACTOR - 1) / 4
        assert scene.finds()
    assert scene.reads == 1
    scene.now += 1.5
    child.opens()
    assert not scene.finds()
    assert scene.reads == 2


def test_who_has_no_descriptors_is_not_listed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's threads are most of a quiet machine's processes."""
    sizes(monkeypatch, lambda folder: 0 if folder == f"/proc/{scene.pid}/fd" else 5)
    scene.fds = ([3], [])
    assert not scene.finds()
    assert scene.reads == 0
    sizes(monkeypatch, lambda folder: 5)
    assert scene.finds()


def test_where_the_kernel_does_not_count_everything_is_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes(monkeypatch, lambda folder: 0)
    scene = Scene(monkeypatch, scene.pid)
    for _ in range(3):
        scene.finds()
    assert scene.reads == 3


NAMED = """
import sys
with open("/proc/self/comm", "wb") as file:
    file.write(b"a\\xff (b)\\nPPid:\\t1")
print(flush=True)
sys.stdin.read()
"""


def test_a_program_that_names_itself_oddly_is_described() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", NAMED], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.describe(process.pid, 1, [3], [(4, 0)])
        process.communicate("")
    assert (found.parent, found.comm) == (os.getpid(), "a\ufffd (b)\nPPid:\t1")
    assert found.command.startswith(sys.executable)
    assert found.user == pwd.getpwuid(os.getuid()).pw_name
