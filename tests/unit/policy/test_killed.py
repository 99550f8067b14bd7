# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed at each step of what a policy does: what no person set is the policy's, and goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from policy_world import GPU, Scripted, World, program

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import ClassInfo, Outcome, State
from detshare.ctl.policy.apply import Request
from detshare.ctl.policy.ledger import Ledger, Put
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.types import Action, Bind, ClassRow, Gate, Reflex, Slice, Snapshot

ROW = ClassInfo("low", None, None, 50, "low", 20, 0)
STEPS = 6


class Killed(BaseException):
    """The daemon is."""


class Stepped(World):
    """Its daemon is killed at the verb `step`: before it is done, or where it `is_done` after that."""

    step, is_done = -1, False

    def _perform(self, requests: Sequence[Request]) -> list[Outcome | ControlError]:
        made: list[Outcome | ControlError] = []
        for each in requests:
            self.step -= 1
            if self.step == 0 and not self.is_done:
                raise Killed
            made += super()._perform([each])
            if each.verb == "set-class":
                values = {name: each.args[name] for name in each.args if name != "reset"}
                self.classes = [replace(ROW if "reset" in each.args else self.classes[0], **values)]
            if self.step == 0:
                raise Killed
        return made

    def killed(self) -> None:
        assert self.engine.seats.default.host is not None
        self.engine.seats.default.host.close()
        self.step = -1
        self.again()


def acts(now: Snapshot, tenant: str) -> list[Action]:
    if tenant == "1":
        return [Slice("1", 300.0, 0), ClassRow("low", turn_us=50_000)]
    if tenant == "2":
        return [Bind("2", 66), Reflex("2", 8), Gate("2", False)]
    return [Gate(tenant, False)]


@pytest.fixture
def stepped(tmp_path):
    made = Stepped(tmp_path / "run", [program(1), program(2, lane="spatial"), program(3)], backend="kmod")
    made.classes = [ROW]
    yield made
    made.close()


def untouched(made: Stepped) -> None:
    seen = made.programs[2].spatial
    assert made.slices() == {1: 2048, 3: 2048}
    assert [made.programs[pid].state for pid in (1, 3)] == [State.RUNNING] * 2
    assert seen is not None
    assert (seen.held, seen.percent) == (False, None)
    assert made.classes == [ROW]
    assert made.engine.decided() == {}
    assert made.engine.status()["standing"] == 0


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_what_a_policy_had_just_set_is_no_persons(stepped, step, is_done):
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.step, stepped.is_done = step, is_done
    with pytest.raises(Killed):
        stepped.use(Scripted(on_attach=acts))
    stepped.killed()
    stepped.engine.open_with("static", {})
    for _ in range(3):
        stepped.look(0.25)
    untouched(stepped)


def test_a_gate_opens_in_time_where_the_policy_fails_with_the_next_daemon(stepped):
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    stepped.killed()
    stepped.engine.open_with("static", {})
    stepped.engine._heirs.switch(Loaded(Scripted(on_attach=lambda now, tenant: 1 / 0), "mine", {}, "a test"))
    for _ in range(44):
        stepped.look(0.25)
    assert "ZeroDivisionError" in stepped.engine.status()["failed"]
    assert [stepped.programs[pid].state for pid in (1, 3)] == [State.RUNNING] * 2
    assert stepped.engine.decided() == {}


def test_what_a_person_set_meanwhile_stays_his(stepped):
    """The policy was refused, so what stands is the person's."""
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.refuse = {"pause": "the driver is busy", "hold": "the driver is busy"}
    stepped.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    stepped.refuse = {}
    stepped.engine.hand("hold", "2", stepped.do("hold", "2"))
    stepped.turn()
    stepped.killed()
    stepped.engine.open_with("static", {})
    stepped.look(1.0)
    assert stepped.programs[2].spatial.held
    assert stepped.engine.decided() == {2: {"Gate": "hand"}}


def test_a_class_that_a_person_set_a_moment_before_the_end_stays_his(stepped):
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.use(Scripted(on_attach=acts))
    stepped.do("set-priority", "1", **{"class": "low"})
    stepped.killed()
    stepped.engine.open_with("static", {})
    for _ in range(3):
        stepped.look(0.25)
    assert stepped.programs[1].klass == "low"
    assert stepped.engine.decided() == {1: {"Slice": "hand"}}


def test_of_who_ended_meanwhile_nothing_is_left(stepped):
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.step, stepped.is_done = 1, True
    with pytest.raises(Killed):
        stepped.use(Scripted(on_attach=acts))
    stepped.programs[1] = replace(stepped.programs[1], id=ProcessId(1, 11))
    stepped.killed()
    stepped.engine.open_with("static", {})
    stepped.look(1.0)
    assert stepped.engine.status()["standing"] == 0
    assert not (stepped.run_dir / "policy.begun").exists()


def test_a_line_that_was_cut_off_harms_only_itself(tmp_path):
    path = tmp_path / "policy.json"
    made = Ledger(path)
    made.begin(ProcessId(1, 10), "Gate", Put(GPU, Gate("1", False)))
    made.begin_row("low", [{"reset": True}])
    with path.with_suffix(".begun").open("ab") as stream:
        stream.write(b'[2, 20, "Ga')
    again = Ledger(path)
    assert again.load() == ""
    assert again.rows == {"low": [{"reset": True}]}
    again.see([replace(program(1), state=State.PAUSED), replace(program(2), state=State.PAUSED)])
    assert list(again.puts) == [(ProcessId(1, 10), "Gate")]


def test_what_is_refused_again_and_again_is_written_once(tmp_path):
    made = Ledger(tmp_path / "policy.json")
    for _ in range(3):
        made.begin(ProcessId(1, 10), "Gate", Put(GPU, Gate("1", False)))
        made.begin_row("low", [{"reset": True}])
    assert len((tmp_path / "policy.begun").read_bytes().splitlines()) == 2


@pytest.mark.parametrize("asked", ["policy set", "policy deadline", "policy resume", "policy resume of a class"])
def test_what_a_person_asked_of_the_policy_is_kept_before_he_is_answered(stepped, asked):
    stepped.engine.open_with("static", {})
    stepped.look()
    stepped.engine.hand("set-slice", "1", stepped.do("set-slice", "1", slice_us=900, level="high"))
    stepped.engine.hand("set-class", "low", Outcome("set-class"))
    stepped.turn()
    done = {
        "policy set": lambda: stepped.engine.choose("fair", {}),
        "policy deadline": lambda: stepped.engine.set_deadline({1}, 5000.0),
        "policy resume": lambda: stepped.engine.give_back({1}),
        "policy resume of a class": lambda: stepped.engine.give_back(set(), "low"),
    }[asked]()
    answered: list[Ledger] = []

    def read(_: object) -> None:
        answered.append(Ledger(stepped.run_dir / "policy.json"))
        answered[0].load()

    done.add_done_callback(read)
    stepped.turn()
    (kept,) = answered
    mine, of_one = stepped.engine.ledger, ProcessId(1, 10)
    assert (kept.chosen, kept.deadlines, kept.hand_rows) == (mine.chosen, mine.deadlines, mine.hand_rows)
    assert kept.chosen == (("fair", {}) if asked == "policy set" else None)
    assert kept.deadlines == ({of_one: 5000.0} if asked == "policy deadline" else {})
    assert kept.resumed == ({of_one} if asked == "policy resume" else set())
    assert kept.hand_rows == (set() if asked == "policy resume of a class" else {"low"})
