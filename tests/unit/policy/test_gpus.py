# SPDX-License-Identifier: Apache-2.0
"""Policies of single GPUs: who decides for whom, and what becomes of it when that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policy_world import GPU, Scripted, World, program

from detshare.ctl.core.driver import Gpu, Instance
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import ClassInfo, Program, State
from detshare.ctl.policy.decisions.log import Turn, turns
from detshare.ctl.policy.decisions.replay import Replay
from detshare.ctl.policy.registry import Loaded, load
from detshare.ctl.policy.types import ClassRow, Gate, Slice

OTHER = "GPU-11111111-1111-2222-3333-444444444444"
FIRST, SECOND = Gpu(GPU, 0, "Fake H100", "0000:01:00.0"), Gpu(OTHER, 1, "Fake H100", "0000:02:00.0")
NO_GPU = "there is no such GPU"


def on(made: Program, *gpus: str) -> Program:
    return replace(made, gpus=gpus, tsgs=tuple(replace(tsg, gpu=gpu) for gpu in gpus for tsg in made.tsgs[:1]))


def at(us: float, **more) -> Scripted:
    """Whoever comes has a slice of that length."""
    return Scripted(on_attach=lambda now, tenant: [Slice(tenant, us, 0)], **more)


def pair(world, **options) -> World:
    """1 on GPU 0, 2 on GPU 1, 3 on both."""
    made: World = world(programs=[program(1), on(program(2), OTHER), on(program(3), GPU, OTHER)], **options)
    made.gpus = (FIRST, SECOND)
    return made


def give(made: World, policy: Scripted, gpu: str = "1", name: str = "own") -> None:
    made.engine._ask(lambda: made.engine._heirs.choose(Loaded(policy, name, {}, "a test"), "ann", gpu))
    made.turn()


def status(made: World, gpu: int | None = 1) -> dict:
    return next(each for each in made.engine.status()["gpus"] if each["gpu"] == gpu)


def file(tmp_path, name: str, us: float) -> str:
    path = tmp_path / f"{name}.py"
    path.write_text(
        "from detshare.ctl.policy.types import Policy, Slice\n"
        f"class {name.title()}(Policy):\n"
        "    def on_attach(self, now, tenant):\n"
        f"        return [Slice(tenant, {us})]\n"
    )
    return str(path)


def test_one_gpu_has_another_policy_and_a_program_on_several_is_its_lowest_ones(world):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    assert made.slices() == {1: 300, 2: 300, 3: 300}
    made.performed.clear()
    own = at(700.0)
    give(made, own)
    assert made.slices() == {1: 300, 2: 700, 3: 300}
    assert [call for call in own.calls if call[0] == "on_attach"] == [("on_attach", "2")]
    assert ("set-slice", "1") not in made.verbs(), "nobody else is touched"
    assert ("set-slice", "3") not in made.verbs()
    assert made.engine.decided()[2] == {"Slice": "policy own"}
    assert made.engine.decided()[3] == {"Slice": "policy all"}
    assert made.engine.status_of(2)["name"] == "own"
    assert (made.engine.status()["standing"], status(made)["standing"]) == (2, 1)
    made.programs[4] = on(program(4), OTHER)
    made.programs[5] = program(5)
    made.look(0.25)
    assert (made.slices()[4], made.slices()[5]) == (700, 300)


def test_the_policy_that_leaves_hears_that_everybody_went_and_its_answers_count_for_nothing(world):
    made = pair(world)
    old = at(300.0, on_detach=lambda now, tenant: [Slice("1", 999.0, 0), Gate(tenant, False)])
    made.use(old, "all")
    made.look()
    give(made, at(700.0))
    assert ("on_detach", "2") in old.calls
    assert made.slices()[1] == 300
    assert made.programs[2].state is State.RUNNING


def test_what_the_new_policy_does_not_want_is_put_back_and_so_is_its_own_at_unset(world):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    give(made, Scripted())
    assert made.slices() == {1: 300, 2: 2048, 3: 300}
    give(made, Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]), name="holds")
    assert made.programs[2].state is State.GATED
    assert made.programs[3].state is State.RUNNING
    done = made.engine.unset("1", "ann")
    made.turn()
    assert done.result()["was"] == "holds"
    assert made.programs[2].state is State.RUNNING
    assert made.slices() == {1: 300, 2: 300, 3: 300}
    assert made.engine.status()["gpus"] == []
    refused = made.engine.unset("1")
    made.turn()
    with pytest.raises(ControlError, match="no policy of its own"):
        refused.result()


def test_a_program_on_both_changes_hands_with_its_lowest_gpu(world):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    own = at(700.0)
    give(made, own, "0")
    assert made.slices() == {1: 700, 2: 300, 3: 700}
    assert made.engine.decided()[3] == {"Slice": "policy own"}
    made.look(0.25)
    made.look(0.25)
    assert made.slices() == {1: 700, 2: 300, 3: 700}
    assert sum(call == ("on_attach", "3") for call in own.calls) == 1
    made.engine.unset(GPU[:8])
    made.turn()
    assert made.slices() == {1: 300, 2: 300, 3: 300}


def test_a_program_that_moves_has_the_policy_of_where_it_came_to(world):
    made = pair(world)
    made.use(Scripted(on_attach=lambda now, tenant: [Slice(tenant, 300.0, 0), Gate(tenant, False)]), "all")
    made.look()
    own = at(700.0)
    give(made, own)
    assert made.programs[1].state is State.GATED
    made.programs[1] = on(made.programs[1], OTHER)
    made.look(0.25)
    assert made.slices()[1] == 700
    assert made.programs[1].state is State.RUNNING, "the hold was the other policy's"
    assert own.calls.count(("on_attach", "1")) == 1
    assert made.engine.decided()[1] == {"Slice": "policy own"}
    made.programs[1] = on(made.programs[1], GPU)
    made.look(0.25)
    assert made.slices()[1] == 300
    assert made.programs[1].state is State.GATED
    made.turn(11.0)
    assert made.programs[1].state is State.RUNNING, "nobody is held for longer, wherever he was held"


def test_a_hold_that_both_want_lasts_no_longer_for_a_move(world):
    made = pair(world)
    made.use(Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]), "all")
    made.look()
    give(made, Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]))
    made.look(8.0)
    made.programs[1] = on(made.programs[1], OTHER)
    made.look(0.25)
    assert made.programs[1].state is State.GATED
    made.turn(2.0)
    assert made.programs[1].state is State.RUNNING


@pytest.mark.parametrize(
    ("gpu", "told"),
    [("7", r"no GPU '7'; there are 0 \(GPU-0"), ("GPU-2", "no GPU"), ("GPU-", "no GPU"), ("MIG-1", "whole GPU")],
)
def test_a_gpu_that_is_not_there_is_refused(world, gpu, told):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    for done in (made.engine.choose("fair", {}, gpu=gpu), made.engine.unset(gpu)):
        made.turn()
        with pytest.raises(ControlError, match=told):
            done.result()
    assert made.engine.status()["gpus"] == []


def test_a_gpu_that_mig_cut_has_one_policy(world):
    made = pair(world)
    made.gpus = (FIRST, replace(SECOND, mig=(Instance("MIG-1", "1g.10gb"),)))
    made.use(at(300.0), "all")
    made.look()
    give(made, at(700.0))
    assert made.slices() == {1: 300, 2: 700, 3: 300}


def test_a_policy_that_raises_takes_no_other_along(world):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    give(made, Scripted(on_attach=lambda now, tenant: 1 / 0))
    assert "ZeroDivisionError" in status(made)["failed"]
    assert made.engine.status()["failed"] == ""
    assert made.slices()[2] == 300, "what was decided stands"
    made.programs[4], made.programs[5] = on(program(4), OTHER), program(5)
    made.look(0.25)
    assert (made.slices()[4], made.slices()[5]) == (2048, 300)
    checks = made.engine.doctor()
    assert [check.ok for check in checks] == [True, False]
    assert checks[1].detail.startswith("GPU 1: own failed")
    assert "--gpu 1" in (checks[1].advice or "")
    assert any(event.text.startswith("GPU 1: policy own failed") for event in made.told)


def test_ticks_and_calls_are_each_ones_own(world):
    made = pair(world)
    one, two = Scripted(tick_us=1e5), Scripted(tick_us=1e6)
    for pid in (1, 2, 3):
        made.busy(pid)
    made.use(one, "all")
    made.look()
    give(made, two)
    for _ in range(10):
        made.turn(0.1)
    assert sum(hook == "on_tick" for hook, _ in two.calls) <= 2
    assert sum(hook == "on_tick" for hook, _ in one.calls) >= 9


def test_what_a_person_set_stands_against_each_policy(world):
    made = pair(world)
    made.use(at(300.0), "all")
    made.look()
    give(made, at(700.0))
    for pid in (1, 2):
        made.engine.hand("set-slice", str(pid), made.do("set-slice", str(pid), slice_us=900, level="high"))
    made.turn()
    made.use(at(400.0), "another")
    give(made, at(800.0))
    assert made.slices() == {1: 900, 2: 900, 3: 400}
    made.engine.unset("1")
    made.turn()
    assert made.slices()[2] == 900
    made.engine.give_back({1, 2})
    made.turn()
    assert made.slices() == {1: 400, 2: 400, 3: 400}


def rows(made: World) -> list[dict]:
    return [dict(each.args) for each in made.performed if each.verb == "set-class"]


def lower(floor: int) -> Scripted:
    return Scripted(on_attach=lambda now, tenant: [ClassRow("low", floor_permille=floor)])


def test_with_the_module_a_policy_of_one_gpu_writes_rows_of_that_gpu_alone(world):
    made = pair(world, backend="kmod")
    made.classes = [ClassInfo("low", None, None, 50, "low", 20, 0)]
    made.use(lower(50), "all")
    made.look()
    give(made, lower(80))
    assert rows(made) == [{"floor_permille": 50}, {"floor_permille": 80, "gpu": 1}]
    made.performed.clear()
    made.use(Scripted(), "nothing")
    assert rows(made)[0] == {"reset": True}
    assert rows(made)[-1] == {"floor_permille": 80, "gpu": 1}, "a reset of all takes those of single GPUs along"
    made.performed.clear()
    made.engine.unset("1")
    made.turn()
    assert rows(made) == [{"reset": True, "gpu": 1}]
    assert made.engine.ledger.rows == {}


def test_the_row_of_a_class_that_a_person_wrote_is_no_policys(world):
    made = pair(world, backend="kmod")
    made.use(Scripted(), "all")
    made.look()
    give(made, lower(80))
    made.engine.hand("set-class", "low", made.do("set-class", "low", floor_permille=10))
    made.turn()
    made.performed.clear()
    give(made, lower(90))
    made.engine.unset("1")
    made.turn()
    assert rows(made) == []


@pytest.mark.parametrize("backend", ["root", "model"])
def test_without_the_module_a_policy_of_one_gpu_sets_floors_of_that_gpu_alone(world, backend):
    made = pair(world, backend=backend)
    seen = []
    made.use(lower(50), "all")
    made.look()
    own = lower(80)
    give(made, Scripted(on_attach=lambda now, tenant: seen.append(now.floors) or own.on_attach(now, tenant)))
    assert seen == [True]
    assert rows(made) == [{"floor_permille": 50}, {"floor_permille": 80, "gpu": 1}]
    made.performed.clear()
    made.use(Scripted(), "nothing")
    assert rows(made) == [{"floor_permille": 20}]
    assert made.floors.of("low", OTHER) == 0.08
    made.performed.clear()
    made.engine.unset("1")
    made.turn()
    assert rows(made) == [{"reset": True, "gpu": 1}]
    assert made.engine.ledger.rows == {}
    assert made.floors.apart == {}


# -- the configuration, and restarts ------------------------------------------------------------------------------


def test_the_configuration_gives_gpus_their_own_by_number_or_uuid(world, tmp_path):
    made = pair(world)
    gpus = {"1": (file(tmp_path, "one", 700.0), {}), "5": ("fair", {})}
    made.engine.open_with(file(tmp_path, "all", 300.0), {}, gpus)
    made.look()
    assert made.slices() == {1: 300, 2: 700, 3: 300}
    assert (status(made)["uuid"], status(made, None)["uuid"]) == (OTHER, "5")
    absent = made.engine.doctor()[2]
    assert absent.ok is False
    assert NO_GPU in absent.detail
    assert any(NO_GPU in event.text for event in made.told)
    refused = made.engine.choose("fair", {}, gpu="5")
    made.turn()
    with pytest.raises(ControlError, match="no GPU '5'"):
        refused.result()
    made.gpus = (*made.gpus, Gpu("GPU-55555555-0000", 5, "Fake H100", "0000:03:00.0"))
    made.look(0.25)
    assert status(made, 5)["name"] == "fair"
    assert all(check.ok for check in made.engine.doctor())


def test_what_was_taken_back_while_its_gpu_was_away_stays_so_when_that_is_there(world, tmp_path):
    made = pair(world)
    made.gpus = (FIRST,)
    made.programs = {1: made.programs[1]}
    gpus = {"1": (file(tmp_path, "one", 700.0), {})}
    made.engine.open_with("static", {}, gpus)
    made.look()
    made.engine.unset("1")
    made.turn()
    made.again()
    made.gpus = (FIRST, SECOND)
    made.engine.open_with("static", {}, gpus)
    made.look(1.0)
    assert made.engine.status()["gpus"] == []


def test_a_policy_of_one_gpu_that_cannot_be_had_leaves_static_there(world, tmp_path):
    made = pair(world)
    made.engine.open_with(file(tmp_path, "all", 300.0), {}, {OTHER: ("nosuch", {})})
    made.look()
    assert made.slices() == {1: 300, 2: 2048, 3: 300}
    assert status(made)["name"] == "static"
    assert "nosuch cannot be had" in status(made)["failed"]


def test_after_a_kill_each_gpu_has_what_it_had_and_nothing_is_done_again(world, tmp_path):
    made = pair(world)
    every, one, two = (file(tmp_path, *each) for each in (("all", 300.0), ("one", 700.0), ("two", 800.0)))
    made.engine.open_with(every, {}, {"1": (one, {})})
    made.look()
    made.engine.choose(two, {}, gpu="1")
    made.turn()
    before = made.slices()
    assert before == {1: 300, 2: 800, 3: 300}
    made.performed.clear()
    made.again()
    made.engine.open_with(every, {}, {"1": (one, {})})
    made.look(1.0)
    assert (made.slices(), made.performed) == (before, [])
    assert made.engine.decided()[2] == {"Slice": f"policy {two}"}
    made.engine.unset("1")
    made.turn()
    made.again()
    made.engine.open_with(every, {}, {"1": (one, {})})
    made.look(1.0)
    assert made.engine.status()["gpus"] == [], "a person took it back, whatever the configuration says"
    assert made.slices() == {1: 300, 2: 300, 3: 300}
    made.again()
    made.engine.open_with(every, {}, {"1": (two, {})})
    made.look(1.0)
    assert status(made)["name"] == two, "the configuration says something else since"


def test_a_gpu_that_is_gone_after_a_restart_keeps_its_policy_until_it_is_taken_back(world, tmp_path):
    made = pair(world)
    made.engine.open_with("static", {})
    made.look()
    one = file(tmp_path, "one", 700.0)
    made.engine.choose(one, {}, gpu="1")
    made.turn()
    made.again()
    made.gpus = (FIRST,)
    made.programs = {1: made.programs[1]}
    made.engine.open_with("static", {})
    made.look(1.0)
    assert status(made, None)["uuid"] == OTHER
    assert made.engine.doctor()[1].ok is False
    made.gpus = (FIRST, SECOND)
    made.programs[2] = on(program(2), OTHER)
    made.look(1.0)
    assert made.slices()[2] == 700, "it is back"
    made.gpus = (FIRST,)
    del made.programs[2]
    made.look(1.0)
    done = made.engine.unset(OTHER[:12])
    made.turn()
    assert done.result()["gpu"] is None
    assert made.engine.status()["gpus"] == []
    assert made.engine.ledger.chosen_gpus == {}


def test_a_gate_that_a_killed_daemon_left_shut_on_a_gpu_of_its_own_is_opened(world):
    made = pair(world)
    made.engine.open_with("static", {})
    made.look()
    give(made, Scripted(on_attach=lambda now, tenant: [Gate(tenant, False)]), name="static")
    assert made.programs[2].state is State.GATED
    made.again()
    made.engine.open_with("static", {})
    made.look(1.0)
    assert made.programs[2].state is State.RUNNING
    assert status(made)["name"] == "static"


def test_the_log_says_which_gpu_and_a_replay_of_the_same_differs_in_nothing(world, tmp_path):
    made = pair(world)
    for pid in (1, 2, 3):
        made.busy(pid)
    made.choose("fair", unit_ms="20")
    made.look()
    for step in range(12):
        if step == 3:
            made.engine.choose("fair", {"unit_ms": "20"}, gpu="1")
        if step == 8:
            made.engine.unset("1")
        made.look(0.25)
    made.engine.stop()
    notes = [each for each in turns(made.run_dir / "decisions") if not isinstance(each, Turn)]
    assert [(each["kind"], each.get("gpu")) for each in notes if each["kind"] in ("switch", "unset")] == [
        ("switch", None),
        ("switch", OTHER),
        ("unset", OTHER),
    ]
    replayed = Replay(load("fair", {"unit_ms": "20"}), made.run_dir / "decisions")
    assert list(replayed.differences()) == []
    assert replayed.recorded > 0
