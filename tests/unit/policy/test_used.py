# SPDX-License-Identifier: Apache-2.0
"""GPU time of programs whose share alone is known: what buckets are filled by."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from policy_world import World, program

from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.policy.history import History
from detshare.ctl.policy.shipped.apportioning import MOST, Correction
from detshare.ctl.policy.shipped.static import Static
from detshare.ctl.policy.shipped.token_bucket import REFUSED_US, TokenBucket
from detshare.ctl.policy.types import Gate, Snapshot, TenantView

SECOND = 1e6


def test_who_is_held_uses_nothing_whatever_is_said_of_it() -> None:
    history = History()
    for at in range(3):
        history.used(at * SECOND, lambda _seconds: 1.0)
    for at in range(3, 10):
        assert history.used(at * SECOND, lambda _seconds: 1.0, open_=False) == 2 * SECOND


def test_who_was_let_go_counts_as_before_until_something_is_said_of_the_time_since() -> None:
    history = History()
    history.used(0.0, lambda _seconds: 0.8)
    history.used(SECOND, lambda _seconds: 0.8)
    history.used(3 * SECOND, lambda _seconds: 0.0, open_=False)
    assert history.used(3.5 * SECOND, lambda _seconds: 0.0) == pytest.approx(1.2 * SECOND)
    assert history.used(5 * SECOND, lambda _seconds: 0.2) == pytest.approx(1.5 * SECOND)


def test_the_newest_slots_are_of_the_interval_that_passed() -> None:
    time = GpuTime("gpu", 5.0, 0.5, 0.5, 4.0, 10_000.0, 200_000.0, (1.0,) * 25 + (0.0,) * 25)
    assert time.lately(0.5) == 0.0
    assert time.lately(5.0) == 0.5
    assert replace(time, history=()).lately(0.5) == 0.5


@pytest.mark.parametrize(
    ("switches_s", "run_us", "alone"), [(0.2, 5_000_000, True), (0.76, 13_000, False), (100, 2_000_000, False)]
)
def test_a_program_in_rare_windows_has_no_gpu_alone(switches_s: float, run_us: float, alone: bool) -> None:
    assert GpuTime("gpu", 5.0, 0.01, 0.01, switches_s, run_us, 0.0, ()).alone is alone


def test_a_gate_that_was_refused_is_asked_for_again_soon() -> None:
    policy = TokenBucket()
    tenant = TenantView(
        name="a",
        klass="low",
        sms=1,
        slice_us=1.0,
        level=0,
        gate_open=True,
        active=True,
        queued=1,
        in_flight_us=0.0,
        kind="",
        launches=0,
    )
    asked = []
    for at in range(0, 4_000_000, 10_000):
        now = Snapshot(now_us=at, lane="temporal", sms=1, tenants=(replace(tenant, used_us=float(at)),))
        asked += [at for each in policy.on_tick(now) if isinstance(each, Gate) and not each.open]
    assert len(asked) >= 4
    assert {later - earlier for earlier, later in pairwise(asked)} == {int(REFUSED_US)}


@pytest.mark.parametrize(("look_s", "verb_s"), [(0.5, 0.04), (1.0, 0.1), (0.25, 0.0)])
def test_a_cap_holds_where_only_looks_say_what_is_used(tmp_path: Path, look_s: float, verb_s: float) -> None:
    """A program that is alone and never rests: the context-switch log has it on the GPU while it is held, too."""
    world = World(tmp_path / "run", [replace(program(1), klass="low", gpu_share=1.0)])
    world.use(TokenBucket(TokenBucket.Params(low=25)), "token-bucket")
    world.look()
    begin, looked, acts, used, on = world.now, world.now, 0, 0.0, True
    due: list[tuple[float, bool]] = []
    run = longest = 0.0
    while world.now < begin + 40:
        world.turn(0.01)
        for each in world.performed[acts:]:
            due.append((world.now + verb_s, each.verb == "resume"))
        acts = len(world.performed)
        while due and due[0][0] <= world.now:
            _, on = due.pop(0)
            run = 0.0
        run += 0.01
        if world.now >= begin + 8:
            used += 0.01 * on
            longest = max(longest, run if on else 0.0)
        if world.now - looked >= look_s:
            looked = world.now
            world.look()
    world.close()
    assert used / (world.now - begin - 8) == pytest.approx(0.25, rel=0.1)
    assert longest < 0.3 + verb_s


def held(world: World, seconds: float) -> float:
    """Let time pass with a look each quarter of a second; for how long its program was paused first, 0: never."""
    acts: list[tuple[str, float]] = []
    for at in range(round(100 * seconds)):
        known = len(world.performed)
        world.turn(0.01)
        if at % 25 == 0:
            world.look()
        acts += [(each.verb, world.now) for each in world.performed[known:]]
    if not acts:
        return 0.0
    assert [verb for verb, _ in acts[:2]] == ["pause", "resume"]
    return acts[1][1] - acts[0][1]


def test_who_rested_before_it_began_pays_for_what_it_used_since(tmp_path: Path) -> None:
    """On an H100 a training that had waited ten seconds was held for ten more after its first second."""
    world = World(tmp_path / "run", [replace(program(1), klass="low", gpu_share=0.0)])
    world.use(TokenBucket(TokenBucket.Params(low=25)), "token-bucket")
    assert held(world, 12) == 0
    world.programs[1] = replace(world.programs[1], gpu_share=1.0)
    assert 0 < held(world, 18) < 3.0
    world.close()


def test_a_policy_charges_nobody_for_the_time_before_it(tmp_path: Path) -> None:
    """Under `static` nobody looks while nothing stirs: a training of thirteen seconds was held for ten (an H100)."""
    world = World(tmp_path / "run", [replace(program(1), klass="low", gpu_share=1.0)])
    world.use(Static(), "static")
    world.look()
    world.now += 13
    world.use(TokenBucket(TokenBucket.Params(low=25)), "token-bucket")
    assert 0 < held(world, 6) < 3.0
    world.close()


def views(**used: float) -> dict[str, TenantView]:
    blank = TenantView(
        name="",
        klass="",
        sms=1,
        slice_us=1.0,
        level=1,
        gate_open=True,
        active=True,
        queued=1,
        in_flight_us=0.0,
        kind="",
        launches=0,
    )
    return {name: replace(blank, name=name, used_us=each) for name, each in used.items()}


def test_who_gives_its_slices_away_has_longer_ones_until_shares_are_close() -> None:
    correction, weights = Correction(), {"a": 1.0, "b": 1.0, "c": 1.0}
    used, wasted = dict.fromkeys("abc", 0.0), {"a": 1.0, "b": 1.0, "c": 0.75}
    assert not correction.look("gpu", views(**used), weights)
    for _ in range(12):
        lengths = {name: correction.factor(name) * wasted[name] for name in used}
        used = {name: used[name] + SECOND * each / sum(lengths.values()) for name, each in lengths.items()}
        correction.look("gpu", views(**used), weights)
    shares = [each / sum(lengths.values()) for each in lengths.values()]
    assert max(abs(3 * share - 1) for share in shares) < 0.03
    assert correction.factor("c") > 1 > correction.factor("a")
    assert not correction.look("gpu", views(a=1.0, b=1.0), weights)  # another set of tenants: no telling yet


def test_shares_that_are_far_off_are_right_after_two_looks() -> None:
    """GPT-2 beside two others gave 22 % of its part away, as it rests in mid-slice (policies-gpu, fair)."""
    correction, weights = Correction(), {"a": 1.0, "b": 1.0, "c": 1.0}
    used, wasted = dict.fromkeys("abc", 0.0), {"a": 1.0, "b": 1.05, "c": 0.7}
    correction.look("gpu", views(**used), weights)
    for _ in range(2):
        lengths = {name: correction.factor(name) * wasted[name] for name in used}
        used = {name: used[name] + SECOND * each / sum(lengths.values()) for name, each in lengths.items()}
        correction.look("gpu", views(**used), weights)
    assert max(abs(3 * each / sum(lengths.values()) - 1) for each in lengths.values()) < 0.03


def test_a_slice_is_not_corrected_without_bound() -> None:
    correction, used = Correction(), {"a": 0.0, "b": 0.0}
    for _ in range(30):
        correction.look("gpu", views(**used), {"a": 1.0, "b": 1.0})
        used = {"a": used["a"] + 0.99 * SECOND, "b": used["b"] + 0.01 * SECOND}
    assert correction.factor("b") <= MOST
    assert correction.factor("a") >= 1 / MOST
