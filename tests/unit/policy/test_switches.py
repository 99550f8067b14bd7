# SPDX-License-Identifier: Apache-2.0
"""Policies that come, go and fail: what stands is undone, kept, or taken up again."""

from __future__ import annotations

import threading
import time

import pytest
from policy_world import Scripted, program, shorten

from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import ClassInfo, Event, State
from detshare.ctl.policy.decisions.log import Turn, turns
from detshare.ctl.policy.types import Bind, ClassRow, Gate, Move, PCtx


def test_a_switch_undoes_what_the_new_policy_does_not_repeat(world):
    made = world(backend="kmod", programs=[program(1), program(2), program(3)])
    made.classes = [ClassInfo("low", None, None, 50, "low", 20, 0)]
    made.use(
        Scripted(
            on_attach=lambda now, tenant: [*shorten(now, tenant), Gate("3", False), ClassRow("low", turn_us=50_000)],
        ),
        "first",
    )
    made.look()
    made.performed.clear()
    made.use(Scripted(on_attach=lambda now, tenant: shorten(now, tenant) if tenant == "1" else []), "second")
    undone = [(r.verb, r.who, dict(r.args)) for r in made.performed]
    assert sorted(undone, key=str) == sorted(
        [
            ("release", "2", {}),
            ("release", "3", {}),
            ("resume", "3", {}),
            ("set-class", "low", {"reset": True}),
            (
                "set-class",
                "low",
                {
                    "slice_us": 50,
                    "level": "low",
                    "floor_permille": 20,
                    "turn_us": 0,
                },
            ),
        ],
        key=str,
    )
    assert made.slices()[1] == 300
    assert made.engine.status()["standing"] == 1


def test_what_is_put_back_at_a_switch_takes_nothing_of_the_new_policy_along(world):
    """A slice is put back by `release`, which opens gates too."""
    made = world(backend="kmod", programs=[program(1)])
    made.use(Scripted(on_attach=shorten), "first")
    made.look()
    made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]), "second")
    assert made.slices() == {1: 2048}
    assert made.programs[1].state is State.GATED
    assert made.engine.status()["standing"] == 1


def test_who_is_moved_at_a_switch_does_not_get_all_sms_in_between(world):
    made = world(backend="kmod", programs=[program(1, lane="spatial")])
    made.pool = (PCtx("25%", 32), PCtx("100%", 132))
    made.use(Scripted(on_attach=lambda now, tenant: [Bind(tenant, 66)]), "first")
    made.look()
    made.performed.clear()
    made.use(Scripted(on_attach=lambda now, tenant: [Move(tenant, "25%")]), "second")
    assert [(each.verb, each.who) for each in made.performed] == [("bind", "1")]


def test_a_switch_to_a_policy_that_fails_at_once_undoes_nothing(world):
    made = world(programs=[program(1)])
    made.use(Scripted(on_attach=shorten), "first")
    made.look()
    made.use(Scripted(on_attach=lambda now, tenant: 1 / 0), "second")
    assert made.slices() == {1: 300}
    assert "ZeroDivisionError" in made.engine.status()["failed"]


def test_a_failed_policy_is_told_of_and_begun_anew(world, tmp_path):
    path = tmp_path / "flaky.py"
    path.write_text(
        "from detshare.ctl.policy.types import Policy, Slice\n"
        "class Flaky(Policy):\n"
        "    def on_attach(self, now, tenant):\n"
        "        return [Slice(tenant, 300.0)]\n"
        "    def on_launch(self, now, tenant):\n"
        "        raise RuntimeError('as I am')\n"
    )
    made = world(programs=[program(1)])
    made.choose(str(path))
    made.look()
    made.busy(1)
    made.look(0.25)
    assert "RuntimeError: as I am" in made.engine.status()["failed"]
    assert made.engine.doctor()[0].ok is False
    assert any(event.kind == "error" and "as I am" in event.text for event in made.told)
    assert made.slices() == {1: 300}, "what it decided stands"
    made.programs[2] = program(2)
    made.look(0.25)
    assert made.slices() == {1: 300, 2: 2048}, "nothing new is decided"
    made.turn(31.0)
    assert made.slices() == {1: 300, 2: 300}
    assert made.engine.doctor()[0].ok is True


def test_who_hangs_in_a_hook_keeps_nobody_waiting(world):
    made = world(limit_s=0.1, programs=[program(1)])
    ends = threading.Event()
    made.use(Scripted(on_attach=lambda now, tenant: ends.wait()))
    made.look()  # it comes back, or this test never ends
    ends.set()
    assert "did not return within 400 ms" in made.engine.status()["failed"]


def test_a_thousand_switches_under_load_lose_nothing(world):
    made = world(programs=[program(pid, busy=True) for pid in range(1, 9)])
    made.look()
    made.engine.start()
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            for pid in range(1, 9):
                made.engine.hear(Event(time.time(), "quiet" if pid % 2 else "kick", pid, ""))
            made.now += 0.001
            time.sleep(0.0005)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        done = []
        for number in range(1000):
            done.append(made.engine.choose("strict" if number % 2 else "fair", {}))
            if number % 50 == 0:
                done[-1].result(30)
        done.append(made.engine.choose("static", {}))
        for each in done:
            each.result(60)
    finally:
        stop.set()
        thread.join()
    status = made.engine.status()
    assert status["name"] == "static"
    assert status["counts"]["switches"] == 1001
    assert status["failed"] == ""
    assert status["standing"] == 0, "what fair had set is taken back"
    assert set(made.slices().values()) == {2048}
    assert len(made.engine.decided()) == 0
    names = [record["policy"] for record in turns(made.run_dir / "decisions") if not isinstance(record, Turn)
             and record["kind"] == "switch"]  # fmt: skip
    assert names[-1] == "static"


def test_after_a_kill_the_choice_and_what_stands_are_as_they_were(world, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from detshare.ctl.policy.types import Policy, Slice, Gate\n"
        "class Mine(Policy):\n"
        "    def on_attach(self, now, tenant):\n"
        "        return [Slice(tenant, 300.0)]\n"
    )
    made = world(programs=[program(1), program(2)])
    made.engine.open_with("static", {})
    made.look()
    made.choose(str(path))
    made.engine.hand("set-slice", "2", made.do("set-slice", "2", slice_us=900, level="high"))
    made.turn()
    before = made.slices()
    assert before == {1: 300, 2: 900}
    made.performed.clear()
    made.again()
    made.engine.open_with("static", {})
    made.look(1.0)
    assert made.engine.status()["name"] == str(path)
    assert made.slices() == before
    assert made.engine.decided() == {1: {"Slice": f"policy {path}"}, 2: {"Slice": "hand"}}
    assert made.performed == []
    made.again()
    made.engine.open_with("fair", {})
    assert made.engine.status()["name"] == "fair", "the configuration was changed since"


def test_a_gate_that_a_killed_daemon_left_shut_is_opened(world):
    made = world(programs=[program(1)])
    made.engine.open_with("static", {})
    made.look()
    made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    assert made.verbs() == [("pause", "1")]
    made.again()
    made.engine.open_with("static", {})
    made.look(1.0)
    assert made.verbs() == [("pause", "1"), ("resume", "1")]
    assert made.engine.status()["standing"] == 0


def test_a_gate_whose_lease_ended_while_no_daemon_ran_is_shut_again(world):
    made = world(backend="kmod", programs=[program(1)])
    made.engine.open_with("static", {})
    made.look()
    for _ in range(2):
        made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
        made.look()
        assert made.programs[1].state is State.GATED
        made.again()  # killed; the kernel lets go
        made.do("resume", "1")
        made.engine.ledger.load()
        assert made.engine.ledger.puts
        made.performed.clear()


def test_a_policy_that_cannot_be_had_leaves_static(world):
    made = world(programs=[program(1)])
    made.engine.open_with("nosuch", {})
    made.look()
    status = made.engine.status()
    assert status["name"] == "static"
    assert "nosuch" in status["failed"]
    assert made.engine.doctor()[0].ok is False


def test_what_cannot_be_loaded_changes_nothing(world):
    made = world(programs=[program(1)])
    made.choose("fair")
    with pytest.raises(ControlError, match="no policy 'nosuch'"):
        made.engine.choose("nosuch", {})
    assert made.engine.status()["name"] == "fair"


@pytest.mark.parametrize("ends_by", ["policy", "time", "switch"])
def test_a_hold_that_could_not_be_ended_at_once_ends_when_it_can_and_is_no_persons(world, ends_by):
    made = world(programs=[program(1, busy=True)])
    gates = iter([False, True] if ends_by == "policy" else [False])

    def tick(now, tenant):
        return [Gate("1", each) for each in [next(gates, None)] if each is not None]

    made.use(Scripted(tick_us=1e5, on_tick=tick))
    made.look()
    assert made.programs[1].state is State.GATED
    made.refuse = {"resume": "the driver is busy"}
    if ends_by == "switch":
        made.use(Scripted(), "another")
    for _ in range(200):
        made.look(0.25)
    assert made.programs[1].state is State.GATED
    assert made.engine.decided() == {1: {"Gate": "policy another" if ends_by == "switch" else "policy mine"}}
    made.refuse = {}
    made.look(0.25)
    assert made.programs[1].state is State.RUNNING
    tried = len(made.performed)
    for _ in range(5):
        made.look(0.25)
    assert (len(made.performed), made.engine.decided()) == (tried, {})


def test_a_slice_that_could_not_be_taken_back_at_once_is_taken_back_when_it_can(world):
    made = world(programs=[program(1, busy=True)])
    made.use(Scripted(on_attach=shorten))
    made.look()
    assert made.slices() == {1: 300}
    made.refuse = {"release": "the driver is busy"}
    made.use(Scripted(), "another")
    made.look(0.25)
    made.refuse = {}
    made.look(0.25)
    assert made.slices() == {1: 2048}
