# SPDX-License-Identifier: Apache-2.0
"""What the thread of the turns does after a step that failed."""

from __future__ import annotations

import pytest
from turns_stage import Stage, background

from detshare.ctl.core.driver import ProcessGone, ProcessId

SWITCH = "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"


def test_after_a_step_that_failed_the_next_lets_one_run_at_a_time_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("low 0", "low 1")
    for number, name in enumerate(names):
        stage.backend.set_priority(stage.start(name, background(number)), "low")
    stage.backend.look()
    stage.run(0.1)
    assert sum(map(stage.on, names)) == 1
    turns, step, seen = stage.turns, stage.turns._turn, list[int]()

    def fails_once() -> float:
        if not seen:
            raise ValueError("not foreseen")
        return step()

    class Waits:
        """In place of the condition: the thread's loop in the model's hands."""

        def wait(self, timeout: float | None) -> None:
            seen.append(sum(map(stage.on, names)))
            stage.driver.machine.advance(0.001)  # less than a turn lasts: the same one is the holder
            if len(seen) == 2:
                turns._closing = True

        def notify(self) -> None:
            pass

    monkeypatch.setattr(turns, "_turn", fails_once)
    monkeypatch.setattr(turns, "_woken", Waits())
    turns._run()
    turns._closing = False
    assert seen == [2, 1]


@pytest.mark.parametrize("step", ["turn", "close"])
def test_a_program_that_ends_in_mid_turn_is_no_problem(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A daemon that was stopped just as a program ended said that it had not put all back, and ended with 1."""
    names = ("low 0", "low 1")
    for number, name in enumerate(names):
        stage.backend.set_priority(stage.start(name, background(number)), "low")
    stage.backend.look()
    stage.run(0.1)
    ended = stage.programs["low 0"][0]

    def gone(process: ProcessId, *args: object) -> None:
        if process == ended.id:
            raise ProcessGone(f"PID {process.pid} has ended")

    monkeypatch.setattr(stage.turns, "_retune", gone)
    monkeypatch.setattr(stage.turns._hand, "leave", gone)
    if step == "turn":
        stage.turns._untuned.clear()
        stage.run(1.0)
        assert {process for process, _ in stage.turns._members} == {stage.programs["low 1"][0].id}
    stage.turns.close()
    assert stage.turns.problems == []


@pytest.mark.parametrize("klass", ["low", "high"])
def test_who_was_off_when_a_daemon_was_killed_runs_though_the_next_one_was_refused_at_first(
    stage: Stage, klass: str
) -> None:
    names = ("low 0", "low 1")
    pids = {name: stage.start(name, background(number)) for number, name in enumerate(names)}
    for pid in pids.values():
        stage.backend.set_priority(pid, "low")
    stage.backend.look()
    stage.run(0.1)
    (off,) = [name for name in names if not stage.on(name)]
    stage.driver.inject = {SWITCH: stage.driver.abi.status("NV_ERR_BUSY_RETRY")}
    stage.begin()  # the last one was killed
    stage.driver.inject = {}
    stage.backend.set_priority(pids[off], klass)
    stage.backend.look()
    assert stage.run(1.0, alone=names if klass == "low" else ())[off] > 0
    stage.backend.close()
    assert [stage.on(name) for name in names] == [True, True]
    assert not any(channel.disabled for tsg in stage.gpu.tsgs for channel in tsg.channels)
