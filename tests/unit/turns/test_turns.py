# SPDX-License-Identifier: Apache-2.0
"""Turns on the strict model, step by step in its own time, without their thread."""

from __future__ import annotations

from pathlib import Path

import pytest
from turns_stage import Changing, Sleeper, Stage, background, p99

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.workload import Latency
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover


def lows(stage: Stage, *names: str) -> None:
    for n, name in enumerate(names):
        stage.backend.set_priority(stage.start(name, background(n)), "low")
    stage.backend.look()


def test_two_at_low_lock_nobody_up(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(0.5)
    done = stage.run(4, alone=("a", "b"))
    assert done["a"] == pytest.approx(done["b"], rel=0.1)
    assert min(done.values()) > 1000


def test_two_processes_of_one_tenant_do_not_lock_each_other_up(stage: Stage) -> None:
    for n, name in enumerate("ab"):
        stage.backend.set_priority(stage.start(name, background(n)), "low", tenant="one")
    stage.backend.look()
    stage.run(1)
    assert min(stage.run(3).values()) > 500


def test_a_program_that_could_not_be_let_go_is_let_go_later(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    off = next(name for name in "ab" if not stage.on(name))
    stage.driver.inject["NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"] = stage.driver.abi.status("NV_ERR_BUSY_RETRY")
    assert stage.backend.release(str(stage.programs[off][0].id.pid)).skipped
    del stage.driver.inject["NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"]
    assert stage.backend.release(str(stage.programs[off][0].id.pid)).changed
    assert stage.on(off)


def test_beside_a_foreground_of_bursts(stage: Stage) -> None:
    latency = Latency(1700, 20_000, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    lows(stage, "a", "b", "c")
    stage.run(2)
    latency.finished.clear()
    done = stage.run(6, alone=("a", "b", "c"))
    times = sorted(us for _, us in latency.finished)
    assert times[len(times) * 99 // 100] < 2_400_000
    assert min(done[name] for name in "abc") > 0.85 * max(done[name] for name in "abc")
    (schedule,) = stage.backend.look().schedules
    assert (schedule.mode, schedule.pattern) == ("turns", "bursts")


def test_gaps_that_are_of_use_are_used_though_the_foreground_has_most_of_the_time(stage: Stage) -> None:
    """500 requests a second of 1.4 ms: each waits for one switch at most, and no window holds it up."""
    latency = Latency(1400, 625, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    lows(stage, "a")
    stage.run(1)
    stage.backend.look()
    latency.finished.clear()
    done = stage.run(4)
    assert p99(latency) < 1400 + 300
    assert done["a"] * 175 > 0.12e6  # microseconds of work a second
    assert stage.backend.look().schedules[0].pattern == "bursts"


def test_slices_of_windows_do_not_outlive_them(stage: Stage) -> None:
    """A look sets the slice, too, whether there was a window or not: once turns are back it is a short one at once."""
    latency = Changing(1400, 0, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    stage.backend.set_priority(stage.start("a", background(1)), "low", floor=0.0)
    stage.backend.look()
    while not stage.foreground.full:
        stage.run(0.05)
    stage.backend.look()
    assert not stage.on("a")
    latency.rest(20_000)
    while stage.foreground.full:
        stage.run(0.05)
    latency.finished.clear()
    stage.run(0.5)
    assert len(latency.finished) > 15
    assert max(us for _, us in latency.finished) < 2_400_000


def test_what_was_found_out_about_one_foreground_is_not_held_against_the_next(stage: Stage) -> None:
    latency = Changing(1400, 0, seed=9)
    lc = stage.start("lc", latency)
    stage.backend.set_priority(lc, "high")
    lows(stage, "a")
    while not stage.foreground.full:
        stage.run(0.05)
    stage.backend.release("*")
    stage.backend.look()
    latency.rest(20_000)
    stage.run(0.2)
    stage.backend.set_priority(lc, "high")
    stage.backend.set_priority(str(stage.programs["a"][0].id.pid), "low")
    stage.backend.look()
    assert stage.run(1)["a"] * 175 > 0.7e6


def test_a_floor_holds_beside_a_foreground_whose_gaps_leave_less(stage: Stage) -> None:
    """Bursts of 18 ms every 20 ms leave 8 %; of 20 % the rest comes in windows."""
    latency = Latency(18_000, 2_000, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    stage.backend.set_priority(stage.start("a", background(1)), "low", floor=0.2)
    stage.backend.look()
    stage.run(2)
    assert stage.run(8)["a"] * 175 == pytest.approx(0.2e6, rel=0.1)


def test_who_has_no_work_is_given_no_windows(stage: Stage) -> None:
    latency = Latency(18_000, 2_000, seed=9)
    stage.backend.set_priority(stage.start("lc", latency), "high")
    seldom = Latency(200, 97_000, seed=3)  # 0.2 % of the time
    stage.backend.set_priority(stage.start("a", seldom), "low")
    stage.backend.look()
    stage.run(2)
    latency.finished.clear()
    stage.run(10)
    assert p99(latency) < 18_000 * 1.02 + 300
    assert seldom.completed > 80


@pytest.mark.parametrize(("high", "together"), [(False, 0.95), (True, 0.85)])
def test_one_that_sleeps_has_what_it_wants_and_the_other_the_rest(stage: Stage, high: bool, together: float) -> None:
    """A tenth of the time in bursts of 10 ms: each is let through when it comes, and its end is seen soon."""
    if high:
        stage.backend.set_priority(stage.start("lc", Latency(1500, 20_000, seed=9)), "high")
    sleeper = Sleeper(10, 90)
    stage.backend.set_priority(stage.start("sleeper", sleeper), "low")
    lows(stage, "a")
    stage.run(2)
    before, busy = sleeper.busy, stage.gpu.timeline.busy
    stage.run(6)
    assert (sleeper.busy - before) / 6e9 > 0.085
    assert (stage.gpu.timeline.busy - busy) / 6e9 > together


def test_who_wakes_does_not_live_off_the_others(stage: Stage) -> None:
    """It rests just often enough to be let through, and had more than its part already."""
    greedy = Sleeper(180, 40)
    stage.backend.set_priority(stage.start("greedy", greedy), "low")
    lows(stage, "a", "b")
    stage.run(2)
    before = greedy.busy
    done = stage.run(8)
    assert (greedy.busy - before) / 8e9 < 0.4
    assert min(done["a"], done["b"]) * 175 > 0.27e6


def test_a_foreground_of_long_bursts_is_not_taken_for_one_that_never_rests(stage: Stage) -> None:
    stage.backend.set_priority(stage.start("lc", Latency(500_000, 100_000, seed=9)), "high")
    lows(stage, "a", "b")
    stage.run(3)
    done = stage.run(12)
    assert (done["a"] + done["b"]) * 175 > 0.15e6


def test_everybody_runs_after_the_daemon_was_killed_in_a_turn(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    assert sum(stage.on(name) for name in "abc") == 1
    assert recover(stage.run_dir, stage.driver) == []  # what the guardian does
    assert all(stage.on(name) for name in "abc")


def test_everybody_runs_after_close(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    stage.backend.close()
    assert all(stage.on(name) for name in "abc")


def test_a_pause_holds_and_leaves_the_others_their_turns(stage: Stage) -> None:
    lows(stage, "a", "b", "c")
    stage.run(1)
    pid = str(stage.programs["a"][0].id.pid)
    assert stage.backend.pause(pid).changed
    stage.backend.look()
    done = stage.run(3, alone=("b", "c"))
    assert done["a"] == 0
    assert min(done["b"], done["c"]) > 0
    stage.backend.resume(pid)
    stage.backend.look()
    assert stage.run(3, alone=("a", "b", "c"))["a"] > 0


def test_release_leaves_nothing_off_and_slices_as_found(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    assert stage.backend.release("*").changed
    assert all(stage.on(name) for name in "ab")
    assert {tsg.slice_us for tsg in stage.gpu.tsgs if tsg.runlist == 0} == {2048}


def test_who_is_killed_in_its_turn_hands_it_on(stage: Stage) -> None:
    lows(stage, "a", "b")
    stage.run(1)
    holder = next(name for name in "ab" if stage.on(name))
    other = "b" if holder == "a" else "a"
    stage.driver.machine.kill(stage.programs[holder][0])
    stage.backend.look()
    stage.run(0.1)
    assert stage.on(other)
    assert stage.run(1)[other] > 0


def test_one_shot_commands_choose_slices_that_lock_nobody_up(tmp_path: Path) -> None:
    driver = ModelDriver()
    backend = RootBackend(driver, tmp_path, name="model", repair=False)
    programs = [scenario.cuda_process(driver, name) for name in ("a", "b")]
    work = [background(n) for n in range(2)]
    for process, each in zip(programs, work, strict=True):
        driver.machine.start_work(process, driver.gpu_models[0], each)
        backend.look()
        backend.set_priority(str(process.id.pid), "low")
    backend.look()
    driver.machine.advance(2)
    assert min(each.completed for each in work) > 500
    backend.close(restore=False)


def test_who_makes_another_context_while_it_is_off_waits_with_that_too(stage: Stage) -> None:
    """Its handles are those of the first, of another client: it was on for good, and the others had nothing."""
    lows(stage, "a", "b")
    stage.run(0.1)
    off = next(name for name in "ab" if not stage.on(name))
    process = stage.programs[off][0]
    before = set(map(id, stage.gpu.tsgs))
    scenario.make_context(stage.driver, process)
    (tsg,) = (t for t in stage.gpu.tsgs if id(t) not in before and t.runlist == 0)
    stage.backend.look()
    assert tsg.paused
