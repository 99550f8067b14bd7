# SPDX-License-Identifier: Apache-2.0
"""Waiting as long as something makes progress: on a /proc that a test writes, and on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.ctl.core.patience import Patience
from tests import patience as waiting


class World:
    """Processes by their threads: seconds run, seconds waited for a processor."""

    def __init__(self, proc: Path) -> None:
        self.proc, self.now = proc, 100.0
        self.statistics = True
        """as of a kernel that keeps scheduling statistics"""

    def put(
        self, pid: int, task: int, ran: float, waited: float, children: str = "", ended: float = 0, state: str = "S"
    ) -> None:
        folder = self.proc / str(pid) / "task" / str(task)
        folder.mkdir(parents=True, exist_ok=True)
        if self.statistics:
            (folder / "schedstat").write_text(f"{int(ran * 1e9)} {int(waited * 1e9)} 7\n")
        (folder / "children").write_text(children)
        ticks = os.sysconf("SC_CLK_TCK")
        rest = [state, *["0"] * 10, str(int(ran * ticks)), "0", str(int(ended * ticks)), "0", "0"]
        for where in (self.proc / str(pid), folder):
            (where / "stat").write_text(f"{pid} (a (b) c) {' '.join(rest)}\n")

    def patience(self, idle_s: float, pid: int, busy_s: float = 100.0) -> Patience:
        return Patience(idle_s, pid, busy_s, lambda: self.now, self.proc)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_does_nothing_is_left_after_that_time(world: World) -> None:
    world.put(1, 1, 5, 5)
    made = world.patience(10, 1)
    world.now += 9.9
    assert made.spent() == ""
    world.now += 0.3
    assert made.spent() == "did nothing for 10 s"


@pytest.mark.parametrize(("ran", "waited"), [(1.0, 0.0), (0.1, 0.9), (0.0, 1.0)])
def test_who_runs_or_waits_for_a_processor_is_waited_for(world: World, ran: float, waited: float) -> None:
    """Also where a quota leaves it a tenth: ten times as long."""
    world.put(1, 1, 0, 0)
    made = world.patience(5, 1)
    for second in range(1, 90):
        world.now += 1
        world.put(1, 1, ran * second, waited * second)
        assert made.spent() == ""
    for _ in range(5):
        world.now += 1
        told = made.spent()
    assert told == "did nothing for 5 s"


def test_who_only_spends_processor_time_is_left_after_far_more_of_it(world: World) -> None:
    world.put(1, 1, 0, 0)
    made = world.patience(5, 1, busy_s=20)
    for second in range(1, 21):
        world.now += 4
        world.put(1, 1, second, 3 * second)  # a quarter of a processor
        told = made.spent()
        assert bool(told) is (second == 20)
    assert told == "spent 20 s on a processor or at a disk without a result"


def test_who_waits_for_a_disk_is_waited_for_and_not_for_ever(world: World) -> None:
    world.put(1, 1, 0, 0)
    made = world.patience(5, 1, busy_s=20)
    for second in range(1, 21):
        world.now += 1
        world.put(1, 11, 0, 0, state="D")
        told = made.spent()
        assert bool(told) is (second == 20)
    assert "at a disk" in told


def test_a_sign_of_work_done_starts_the_processor_time_anew(world: World) -> None:
    world.put(1, 1, 0, 0)
    made = world.patience(5, 1, busy_s=20)
    for second in range(1, 100):
        world.now += 1
        world.put(1, 1, second, 0)
        assert made.spent() == ""
        made.progress()


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("how", ["a thread", "a child's child", "children that have ended"])
def test_all_below_it_counts(world: World, how: str, statistics: bool) -> None:
    world.statistics = statistics
    world.put(1, 1, 0, 0, children="2")
    world.put(2, 2, 0, 0, children="3")
    world.put(3, 3, 0, 0)
    made = world.patience(5, 1)
    for second in range(1, 30):
        world.now += 1
        match how:
            case "a thread":
                world.put(1, 11, second, 0)
            case "a child's child":
                world.put(3, 3, second, 0)
            case _:
                world.put(2, 2, 0, 0, children="3", ended=second)
        assert made.spent() == ""


def test_without_statistics_one_that_can_run_waits_for_a_processor(world: World) -> None:
    """However late it gets one: only what it ran is held against it."""
    world.statistics = False
    world.put(1, 1, 0, 0)
    made = world.patience(5, 1, busy_s=20)
    for second in range(1, 82):
        world.now += 1
        world.put(1, 1, second // 4, 0, state="R")
        told = made.spent()
        assert bool(told) is (second >= 80)
    assert told == "spent 20 s on a processor or at a disk without a result"


def test_without_statistics_one_that_sleeps_does_nothing(world: World) -> None:
    world.statistics = False
    world.put(1, 1, 7, 0)
    made = world.patience(5, 1)
    world.now += 5.1
    assert made.spent() == "did nothing for 5 s"


def test_one_that_is_gone_does_nothing(world: World) -> None:
    made = world.patience(5, 1)
    world.now += 5.1
    assert made.spent() == "did nothing for 5 s"


def test_a_process_that_sleeps_is_told_from_one_that_works() -> None:
    """The kernel's own numbers: the time of one that works does not count, on however little of a processor."""
    found = {}
    for name, code in (("works", "while True: pass"), ("sleeps", "import time; time.sleep(600)")):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            try:
                watched = Patience(2 if name == "sleeps" else 600, process.pid, busy_s=1)
                waiting.until(watched.spent, idle_s=600)
                found[name] = watched.spent()
            finally:
                process.kill()
    assert found["sleeps"] == "did nothing for 2 s"
    assert found["works"].startswith("spent 1 s on a processor")


@pytest.mark.parametrize("wait", [lambda process: waiting.ended(process, 1), lambda process: waiting.words(process, 1)])
def test_a_test_that_waits_for_what_hangs_fails(wait: Callable[[subprocess.Popen[str]], object]) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], text=True) as process:
        try:
            with pytest.raises(AssertionError, match="did nothing for 1 s"):
                wait(process)
        finally:
            process.kill()


def test_a_command_of_a_test_gives_what_subprocess_gives_and_one_that_hangs_fails() -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('x' * 200000, file=sys.stderr); sys.exit(3)"
    done = waiting.run([sys.executable, "-c", code], capture_output=True, text=True, input="words")
    assert (done.returncode, done.stdout, len(done.stderr)) == (3, "WORDS\n", 200001)
    with pytest.raises(subprocess.CalledProcessError):
        waiting.run([sys.executable, "-c", "raise SystemExit(1)"], check=True)
    with pytest.raises(AssertionError, match="did nothing for 1 s"):
        waiting.run([sys.executable, "-c", "import time; time.sleep(3600)"], idle_s=1)


def test_a_long_input_reaches_who_reads_it_late() -> None:
    code = "import sys, time; time.sleep(0.6); print(len(sys.stdin.buffer.read()))"
    done = waiting.run([sys.executable, "-c", code], capture_output=True, input=bytes(1 << 20), idle_s=5.0)
    assert int(done.stdout) == 1 << 20


def test_what_a_block_slept_is_told_from_what_it_worked() -> None:
    begun_at = time.monotonic()
    with waiting.Slept() as slept:
        subprocess.run([sys.executable, "-c", "import time; time.sleep(2)"], check=True)
        begun = time.process_time()
        while time.process_time() - begun < 2:
            pass
    assert 1 < slept.seconds < time.monotonic() - begun_at - 1.5
