# SPDX-License-Identifier: Apache-2.0
"""Looks and events become hooks, answers become verbs, and people go before policies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from policy_world import GPU, Scripted, activity, program, shorten

from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.observed import Requests
from detshare.ctl.core.snapshot import Change, ClassInfo, Outcome
from detshare.ctl.policy.decisions.log import Turn, turns
from detshare.ctl.policy.edges import GAP_S
from detshare.ctl.policy.executor import BURST, RATE_S
from detshare.ctl.policy.guard import LONGEST_SHUT_US
from detshare.ctl.policy.types import Bind, ClassRow, Gate, Move, PCtx, Preempt, Reflex, Slice


def test_looks_become_attach_launch_completion_detach(world):
    made = world(programs=[program(1), program(2, busy=True)])
    policy = Scripted()
    made.use(policy)
    made.look()
    assert policy.calls == [("on_attach", "1"), ("on_attach", "2"), ("on_launch", "2")]
    made.busy(1)
    made.busy(2, False)
    made.look(1.0)
    assert policy.calls[3:] == [("on_launch", "1"), ("on_completion", "2")]
    del made.programs[1]
    made.programs[3] = program(3)
    made.look(1.0)
    assert sorted(policy.calls[5:]) == [("on_attach", "3"), ("on_detach", "1")]


def test_a_reused_pid_is_another_tenant(world):
    made = world(programs=[program(1)])
    policy = Scripted()
    made.use(policy)
    made.look()
    made.programs[1] = replace(program(1), id=type(program(1).id)(1, 999))
    made.look(1.0)
    assert policy.calls == [("on_attach", "1"), ("on_detach", "1"), ("on_attach", "1")]


def test_events_are_edges_and_those_too_soon_wait(world):
    made = world(programs=[program(1)])
    policy = Scripted()
    made.use(policy)
    made.look()
    policy.calls.clear()
    for _ in range(1000):
        made.hear("kick", 1)
    made.turn()
    assert policy.calls == [("on_launch", "1")], "it was active since the first"
    made.hear("quiet", 1)
    made.turn(0.01)
    made.hear("kick", 1)
    made.turn(0.01)
    assert policy.calls == [("on_launch", "1"), ("on_completion", "1")], "the second launch is too soon"
    made.turn(1.25 * GAP_S)
    assert policy.calls[2:] == [("on_launch", "1")]
    made.hear("kick", 77)
    made.hear("refused", 1)
    made.turn(1.0)
    assert len(policy.calls) == 3, "nobody's, and none of ours"


def test_congestion_is_told_once_for_each_wait(world):
    made = world(backend="kmod", programs=[program(1)])
    policy = Scripted()
    made.use(policy)
    waiting = replace(program(1), activity=activity("gated", waiting=1, waits=7))
    made.programs[1] = waiting
    made.look()
    policy.calls.clear()
    made.look(0.05)
    assert policy.calls == []
    made.look(0.06)
    made.look(0.25)
    assert policy.calls == [("on_congestion", "1")]
    made.programs[1] = replace(waiting, activity=activity("gated", waiting=1, waits=8))
    made.look(0.25)
    made.look(0.25)
    assert policy.calls == [("on_congestion", "1")] * 2


def test_a_policy_does_not_tick_while_nobody_works_and_nothing_of_it_stands(world):
    made = world(programs=[program(1)])
    policy = Scripted(tick_us=20_000.0)
    made.use(policy)
    made.look()
    for _ in range(20):
        made.turn(0.05)
    assert ("on_tick", None) not in policy.calls
    made.busy(1)
    made.look(0.05)
    made.turn(0.05)
    assert ("on_tick", None) in policy.calls


def test_a_policy_that_waits_for_deadlines_ticks_while_somebody_has_one(world):
    made = world(programs=[program(1)])
    policy = Scripted(tick_us=20_000.0)
    policy.ticks = "deadlines"
    made.use(policy)
    made.busy(1)
    made.look()
    for _ in range(20):
        made.turn(0.05)
    assert ("on_tick", None) not in policy.calls
    made.engine.set_deadline({1}, 5000.0)
    made.turn(0.05)
    assert ("on_tick", None) in policy.calls
    policy.calls.clear()
    made.engine.set_deadline({1}, None)
    for _ in range(20):
        made.turn(0.05)
    assert ("on_tick", None) not in policy.calls


def test_actions_become_verbs(world):
    made = world(backend="kmod", programs=[program(1), program(2, lane="spatial")])
    made.pool = (PCtx("10%", 8), PCtx("mine", 32, exclusive=True))
    made.use(
        Scripted(
            on_attach=lambda now, tenant: (
                [Slice("1", 300.4, 0), Gate("1", False), Preempt("1"), Bind("2", 16), ClassRow("low", turn_us=50_000)]
                if tenant == "2"
                else []
            ),
            on_launch=lambda now, tenant: [Move("2", "mine"), Gate("1", True)],
        )
    )
    made.look()
    assert [(r.verb, r.who, dict(r.args)) for r in made.performed] == [
        ("set-slice", "1", {"slice_us": 300, "level": "low"}),
        ("hold", "1", {"lease": 10}),
        ("preempt", "1", {}),
        ("set-sm", "2", {"percent": 13, "timeout": 0}),
        ("set-class", "low", {"turn_us": 50_000}),
    ]
    made.performed.clear()
    made.hear("kick", 1)
    made.turn()
    assert made.verbs() == [("bind", "2"), ("resume", "1")]


def test_without_the_module_a_gate_is_a_pause(world):
    made = world(programs=[program(1), program(2, lane="spatial")])
    made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    made.look()
    assert [(r.verb, r.who, dict(r.args)) for r in made.performed] == [("pause", "1", {}), ("hold", "2", {})]


def test_what_stands_is_not_asked_for_again(world):
    made = world(programs=[program(1, busy=True)])
    made.use(Scripted(tick_us=1.0, on_tick=lambda now, tenant: [*shorten(now, "1"), Gate("1", True)]))
    made.look()
    for _ in range(10):
        made.look(0.25)
    assert made.verbs() == [("set-slice", "1")]
    assert made.engine.status()["counts"]["actions"] == 1


def test_what_is_refused_is_counted_and_told(world):
    made = world(programs=[program(1)])
    made.refuse["set-slice"] = "the driver answered 0x1f"
    made.use(Scripted(on_attach=lambda now, tenant: [Slice("9", 100.0), shorten, *shorten(now, tenant)]))
    made.look()
    status = made.engine.status()
    assert (status["counts"]["actions"], status["counts"]["refused"], status["standing"]) == (0, 3, 0)
    texts = [each["text"] for each in status["refused"]]
    assert "no tenant '9'" in texts[0]
    assert "function is no action" in texts[1]
    assert "the driver answered 0x1f" in texts[2]
    assert not status["failed"]


@pytest.mark.parametrize(
    ("verb", "args"), [("set-priority", {"class": "low"}), ("set-slice", {"slice_us": 900, "level": "high"})]
)
def test_what_a_person_sets_stands_until_he_gives_it_back(world, verb, args):
    made = world(programs=[program(1, busy=True)])
    made.use(Scripted(tick_us=1.0, on_tick=lambda now, tenant: shorten(now, "1")))
    made.look()
    assert made.slices() == {1: 300}
    assert made.engine.decided() == {1: {"Slice": "policy mine"}}
    made.engine.hand(verb, "1", made.do(verb, "1", **args))
    made.performed.clear()
    for _ in range(3):
        made.look(0.25)
    assert made.performed == []
    assert made.engine.decided() == {1: {"Slice": "hand"}}
    assert "a person decided that" in made.engine.status()["refused"][-1]["text"]
    assert made.engine.give_back({1}).done() is False
    made.turn(0.1)
    made.look(0.25)
    assert made.verbs() == [("set-slice", "1")]
    assert made.engine.decided() == {1: {"Slice": "policy mine"}}


def test_a_class_that_stood_before_is_a_persons(world):
    made = world(programs=[program(1, klass="low")])
    made.use(Scripted(on_attach=shorten))
    made.look()
    assert made.performed == []
    made.engine.hand("release", "1", made.do("release", "1"))
    made.look(0.25)
    made.use(Scripted(on_attach=shorten))
    assert made.verbs() == [("set-slice", "1")]


def test_a_row_that_a_person_wrote_is_his(world):
    made = world(backend="kmod", programs=[program(1)])
    row = ClassInfo("low", None, None, 50, "low", 20, 0)
    made.classes = [row]
    made.look()
    made.engine.hand("set-class", "low", made.do("set-class", "low", turn_us=20_000))
    made.use(Scripted(on_attach=lambda now, tenant: [ClassRow("low", turn_us=50_000)]))
    assert made.performed == []
    assert "a person wrote the row" in made.engine.status()["refused"][-1]["text"]
    made.engine.give_back(set(), "low")
    made.turn()
    made.use(Scripted(on_attach=lambda now, tenant: [ClassRow("low", turn_us=50_000)]))
    assert made.verbs() == [("set-class", "low")]


def test_a_gate_opens_in_time_whatever_the_policy_does(world):
    made = world(programs=[program(1)])
    made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    made.look()
    assert made.verbs() == [("pause", "1")]
    made.turn(LONGEST_SHUT_US / 1e6 - 0.1)
    assert made.verbs() == [("pause", "1")]
    made.turn(0.2)
    assert made.verbs() == [("pause", "1"), ("resume", "1")]
    assert any("opened" in event.text for event in made.told)


@pytest.mark.parametrize("kicks", ["never", "deadlines", "always"])
def test_launches_are_heard_at_once_only_where_the_policy_needs_it(world, kicks):
    made = world(backend="kmod", programs=[program(1)])
    made.use(type("Mine", (Scripted,), {"kicks": kicks, "on_launch": lambda self, now, tenant: []})())
    made.look()
    assert made.attended == ([True] if kicks == "always" else [])
    made.engine.set_deadline({1}, 5000.0)
    made.turn()
    assert made.attended == ([] if kicks == "never" else [True])
    assert made.engine.status()["hears_kicks"] is (kicks != "never")
    made.engine.set_deadline({1}, None)
    made.use(Scripted(), "another")
    made.turn()
    assert made.attended == ([] if kicks == "never" else [True, False])


@pytest.mark.parametrize("looks", ["never", "deadlines", "always"])
def test_a_policy_has_as_many_looks_as_it_needs(world, looks):
    made = world(programs=[program(1)])
    made.use(type("Mine", (Scripted,), {"looks": looks})())
    made.look()
    assert made.engine.decides is (looks == "always")
    made.engine.set_deadline({1}, 5000.0)
    made.turn()
    assert made.engine.decides is (looks != "never")


def test_what_a_person_says_before_the_first_look_was_worked_off_counts(world):
    made = world(programs=[program(1)])
    made.engine.open_with("static", {})
    made.engine.hand("resume", "1", Outcome("resume", (Change(1),)))
    made.look()
    assert made.engine.decided() == {1: {"Gate": "hand"}}


def test_a_policy_without_hooks_costs_nothing_but_the_look(world):
    made = world(programs=[program(1, busy=True)])
    made.choose("static")
    made.look()
    for _ in range(20):
        made.look(0.25)
    assert made.performed == []
    assert made.engine.seats.default.host._thread is None


def test_the_default_policy_does_nothing_at_rest(world):
    made = world(programs=[program(1), program(2, klass="low"), program(3, lane="spatial")])
    made.engine.open_with("slo-aware", {})
    for _ in range(20):
        made.look(0.25)
    for pid in (1, 2, 3):
        made.busy(pid)
    for _ in range(20):
        made.look(0.25)
    assert made.performed == []
    assert made.engine.status()["name"] == "slo-aware"


def test_every_decision_is_logged_with_its_input_and_fate(world):
    made = world(programs=[program(1, busy=True), program(2)])
    made.use(Scripted(on_attach=lambda now, tenant: [*shorten(now, tenant), Slice("9", 1.0)]))
    made.look()
    found = [each for each in turns(made.run_dir / "decisions") if isinstance(each, Turn)]
    calls = [call for turn in found for call in turn.calls]
    attached = {tenant: actions for hook, tenant, actions in calls if hook == "on_attach"}
    assert attached["1"][0] == [
        {"do": "Slice", "tenant": "1", "slice_us": 300.0, "level": 0, "reason": "it may wait"},
        "done",
    ]
    assert "no tenant '9'" in attached["1"][1][1]
    assert [each.active for each in found[-1].now.tenants] == [True, False]
    assert found[-1].now.gpu == GPU
    json.dumps(made.engine.status())


def test_a_deadline_is_seen_by_the_policy_and_survives_a_kill(world):
    made = world(backend="kmod", programs=[program(1)])
    made.engine.open_with("static", {})
    made.look()
    made.engine.set_deadline({1}, 20_000.0)
    made.turn()
    made.again()
    made.engine.open_with("static", {})
    policy = Scripted(on_congestion=lambda now, tenant: [] if now.tenant(tenant).deadline_us == 20_000.0 else 1 / 0)
    made.programs[1] = replace(program(1), activity=activity("gated", waiting=1, waits=7))
    made.look(1.0)
    made.use(policy)
    made.look(0.03)
    assert policy.calls[-1] == ("on_congestion", "1"), "30 ms are too long for a goal of 20"
    assert not made.engine.status()["failed"]


def test_reflexes_of_the_spatial_lane_are_a_programs_own(world):
    made = world(programs=[program(2, lane="spatial")])
    made.use(
        Scripted(
            on_attach=lambda now, tenant: [Reflex(tenant, 16)], on_launch=lambda now, tenant: [Reflex(tenant, None)]
        )
    )
    made.look()
    made.hear("kick", 2)
    made.turn()
    assert [(r.verb, r.who, dict(r.args)) for r in made.performed] == [
        ("set-busy", "2", {"sms": 16}),
        ("set-busy", "2", {"sms": None}),
    ]


def test_a_policy_that_decides_without_end_is_slowed_down(world):
    made = world(programs=[program(1, busy=True)])
    made.use(Scripted(on_attach=lambda now, tenant: [Slice(tenant, 100.0 + number % 2) for number in range(4096)]))
    made.look()
    made.use(Scripted(on_attach=lambda now, tenant: [Slice(tenant, 200.0 + number % 2) for number in range(4096)]))
    assert len(made.performed) <= BURST + 10
    assert "too many decisions" in made.engine.status()["refused"][-1]["text"]
    made.performed.clear()
    made.look(1.0)
    made.use(Scripted(on_attach=lambda now, tenant: [Slice(tenant, 300.0 + number % 2) for number in range(4096)]))
    assert RATE_S <= len(made.performed) <= RATE_S + 10


def test_a_file_that_others_can_change_is_not_run(world, tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    path = folder / "mine.py"
    path.write_text("raise SystemExit")
    made = world(programs=[program(1)])
    for each, mode in ((path, 0o666), (folder, 0o777)):
        path.chmod(0o644)
        each.chmod(mode)
        with pytest.raises(ControlError, match="can be changed by others"):
            made.engine.choose(str(path), {})
        folder.chmod(0o755)
    path.chmod(0o644)
    folder.chmod(0o1777)
    path.write_text("from detshare.ctl.policy.types import Policy\nclass Mine(Policy):\n    pass\n")
    made.choose(str(path))
    assert made.engine.status()["name"] == str(path)


def test_who_gives_up_waiting_for_a_switch_does_no_harm(world):
    made = world(programs=[program(1)])
    made.choose("static")
    asked = made.engine.choose("fair", {})
    assert asked.cancel()
    made.turn()
    assert made.engine.status()["name"] == "static"
    assert made.engine.status()["failed"] == ""


def test_where_much_stands_it_is_not_written_with_each_change(world):
    made = world(programs=[program(pid, busy=True) for pid in range(1, 101)])
    slices = iter(range(100, 10_000))
    made.use(Scripted(tick_us=1.0, on_attach=shorten, on_tick=lambda now, tenant: [Slice("1", float(next(slices)))]))
    made.look()
    path = made.run_dir / "policy.json"
    wrote = set()
    for _ in range(100):
        made.turn(0.011)
        wrote.add(path.stat().st_mtime_ns)
    assert made.engine.status()["counts"]["actions"] > 180
    assert len(wrote) < 20
    made.engine.stop()
    assert made.engine.ledger.version == made.engine.ledger.saved


def test_floors_that_hold_a_p99_are_rows_that_a_switch_takes_back(world):
    slow = Requests(200, 4.0, 0.01, 0.08, 0.1, 900)
    here = [program(1, klass="high", busy=True, requests=slow), program(2, klass="low", floor=0.02)]
    made = world(programs=here, backend="root")
    made.do("set-class", "idle", floor_permille=30)
    made.look()
    made.choose("slo-aware", slo_ms="20")
    made.look(1.0)
    rows = [(each.who, dict(each.args)) for each in made.performed]
    assert rows == [("low", {"floor_permille": 10}), ("idle", {"floor_permille": 10})]
    made.choose("static")
    made.look(1.0)
    assert [(each.who, dict(each.args)) for each in made.performed[2:]] == [
        ("low", {"floor_permille": 20}),
        ("idle", {"floor_permille": 30}),
    ]


def test_a_policy_says_what_it_cannot_do_here(world):
    made = world(programs=[program(1, klass="high")], backend="root")
    made.choose("slo-aware")
    made.look()
    remarks = made.engine.status()["remarks"]
    assert ["detshare.ko" in remarks[0], "nobody knows how long" in remarks[1], len(remarks)] == [True, True, 2]
    made.programs[1] = program(1, klass="high", requests=Requests(9, 4.0, 0.01, 0.08, 0.1, 9))
    made.look(1.0)
    assert len(made.engine.status()["remarks"]) == 1
    made.choose("static")
    made.look(1.0)
    assert made.engine.status()["remarks"] == []

    class Odd(Scripted):
        lacks = 7

    made.use(Odd())
    assert made.engine.status()["remarks"] == []
