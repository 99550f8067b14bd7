# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.core.classes import TURN_US
from detshare.ctl.policy import registry
from detshare.ctl.policy.guard import Guard
from detshare.ctl.policy.shipped.apportioning import apportion
from detshare.ctl.policy.shipped.asked import Asked
from detshare.ctl.policy.shipped.cost_aware import CostAware
from detshare.ctl.policy.shipped.fair import Fair
from detshare.ctl.policy.shipped.phases import DECODE, PREFILL, Phases
from detshare.ctl.policy.shipped.room import WHEN_FULL
from detshare.ctl.policy.shipped.slo_aware import SloAware
from detshare.ctl.policy.shipped.strict import Strict
from detshare.ctl.policy.shipped.token_bucket import TokenBucket
from detshare.ctl.policy.shipped.tpot_first import TpotFirst
from detshare.ctl.policy.types import (
    HOOKS,
    Action,
    Bind,
    ClassRow,
    Gate,
    Move,
    Park,
    PCtx,
    Policy,
    Preempt,
    Reflex,
    Shape,
    Slice,
    Snapshot,
    TenantView,
)

NAMES = tuple(registry.SHIPPED)
SMS = 132
KINDS = ("Slice", "Bind", "Move", "Gate", "Reflex", "Preempt", "Park")


def view(name: str = "a", **more: Any) -> TenantView:
    plain: dict[str, Any] = {
        "klass": "", "sms": SMS, "slice_us": 2048.0, "level": 1, "gate_open": True, "active": True, "queued": 1,
        "in_flight_us": 0.0, "kind": "", "launches": 0,
    }  # fmt: skip
    return TenantView(name=name, **{**plain, **more})


def snapshot(*tenants: TenantView, now_us: float = 1e6, lane: str = "temporal", **more: Any) -> Snapshot:
    return Snapshot(now_us, lane, SMS, tenants, **more)


@st.composite
def views(draw: st.DrawFn, name: str, lane: str) -> TenantView:
    active = draw(st.booleans())
    return view(
        name,
        klass=draw(st.sampled_from(("high", "normal", "low", "idle", "", "batch"))),
        slice_us=draw(st.sampled_from((20.0, 50.0, 2048.0, 20_000.0, 1e6))),
        level=draw(st.integers(0, 2)),
        gate_open=draw(st.booleans()),
        active=active,
        queued=draw(st.integers(1, 3)) if active else 0,
        in_flight_us=draw(st.floats(0, 1e7)) if active else 0.0,
        lane=draw(st.sampled_from(("", "temporal", "spatial"))) if lane != "mps" else "",
        weight=draw(st.none() | st.floats(0.1, 100)),
        deadline_us=draw(st.none() | st.floats(100, 1e6)),
        standing_sms=draw(st.none() | st.integers(1, SMS)),
        reflex_sms=draw(st.none() | st.integers(0, SMS)),
        graph_launches=draw(st.integers(0, 50)),
        blocks=draw(st.integers(0, 5000)),
        used_us=draw(st.floats(0, 1e5)),
        shapes=tuple(draw(st.lists(st.builds(Shape, st.sampled_from(("graph", "gemm", "softmax")),
                     st.integers(0, 4000), st.just(256), st.integers(1, 99), *[st.floats(1, 1e5)] * 3), max_size=2))),
        group=draw(st.sampled_from(("", "team", "other"))),
        kind=draw(st.sampled_from(("", "kernels", "decode"))),
        residence=draw(st.sampled_from(("", "home", "leaving", "parked", "waiting"))),
        parkable_bytes=draw(st.sampled_from((0, 1 << 30))),
        wants_bytes=draw(st.sampled_from((0, 1 << 30))),
        idle_us=draw(st.floats(0, 1e8)),
        home_us=draw(st.floats(0, 1e8)),
        copy_us=draw(st.floats(0, 1e6)),
        by_hand=tuple(draw(st.sets(st.sampled_from(KINDS), max_size=2))),
    )  # fmt: skip


@st.composite
def pools(draw: st.DrawFn, names: list[str]) -> tuple[PCtx, ...]:
    """Where the world begins nobody shares an exclusive member."""
    made = []
    free = list(names)
    for index in range(draw(st.integers(0, 5))):
        bound = (free.pop(),) if free and draw(st.booleans()) else ()
        made.append(PCtx(f"p{index}", draw(st.integers(1, SMS)), draw(st.booleans()), bound))
    return tuple(made)


class World:
    """Applies what the guard lets through, as a backend does, and looks at what comes of it."""

    def __init__(self, now: Snapshot) -> None:
        self.now = now
        self.guard = Guard()
        self.rows: list[ClassRow] = []

    def step(self, actions: Iterable[Action]) -> None:
        for action in actions:
            problem = self.guard.check(action, self.now)
            assert problem is None or problem.startswith("its gate"), f"{action}: {problem}"
            assert action.reason
            if problem is None:
                self._apply(action)
        self.guard.see(self.now)
        for member in self.now.pool:
            assert not member.exclusive or len(member.bound) <= 1

    def _apply(self, action: Action) -> None:
        if isinstance(action, ClassRow):
            self.rows.append(action)
            return
        changes: dict[str, Any] = {}
        match action:
            case Bind(sms=sms):
                changes = {"sms": sms, "standing_sms": sms, "pctx": ""}
            case Move(pctx=pctx):
                changes = {"pctx": pctx}
            case Slice(slice_us=slice_us, level=level):
                changes = {"slice_us": slice_us, "level": level}
            case Gate(open=is_open):
                changes = {"gate_open": is_open}
            case Reflex(busy_sms=sms):
                changes = {"reflex_sms": sms}
            case Park():
                changes = {"residence": "parked"}
        tenants = tuple(replace(each, **changes) if each.name == action.tenant else each for each in self.now.tenants)
        pool = self.now.pool
        if isinstance(action, Move | Bind):
            left = [replace(each, bound=tuple({*each.bound} - {action.tenant})) for each in pool]
            pool = tuple(
                replace(each, bound=(*each.bound, action.tenant))
                if isinstance(action, Move) and each.name == action.pctx
                else each
                for each in left
            )
        self.now = replace(self.now, tenants=tenants, pool=pool)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(NAMES))
def test_no_action_names_what_is_not_there_or_fills_a_member_twice(data: st.DataObject, name: str) -> None:
    params = {"when_full": data.draw(st.sampled_from(WHEN_FULL))} if name in ("slo-aware", "strict") else {}
    policy = registry.load(name, params).policy
    lane = data.draw(st.sampled_from(("temporal", "spatial", "mps")))
    names = [f"t{index}" for index in range(data.draw(st.integers(1, 5)))]
    tenants = [data.draw(views(each, lane)) for each in names]
    world = World(snapshot(*tenants, lane=lane, pool=data.draw(pools(names)), hour=data.draw(st.floats(0, 23.9))))
    for each in names:
        world.step(policy.on_attach(world.now, each))
    for _ in range(data.draw(st.integers(1, 12))):
        hook = data.draw(
            st.sampled_from((*(hook for hook in HOOKS if hook != "on_attach"), "new"))
        )
        who = data.draw(st.sampled_from(names))
        passed = data.draw(st.floats(1, 2e6))
        known = {each.name: each for each in world.now.tenants}
        if hook == "new" or who not in known:  # it comes anew, in another state
            fresh = data.draw(views(who, lane))
            pctx = next((each.name for each in world.now.pool if who in each.bound), "")
            known[who] = replace(fresh, pctx=pctx)
            hook = "on_attach"
        for each in list(known):
            moved = data.draw(st.floats(0, 1)) * passed
            known[each] = replace(known[each], used_us=known[each].used_us + moved, active=data.draw(st.booleans()))
        pool = world.now.pool
        if hook == "on_detach":
            del known[who]
            pool = tuple(replace(each, bound=tuple({*each.bound} - {who})) for each in pool)
        world.now = replace(world.now, now_us=world.now.now_us + passed, tenants=tuple(known.values()), pool=pool)
        world.guard.see(world.now)
        arguments = (world.now,) if hook == "on_tick" else (world.now, who)
        world.step(getattr(policy, hook)(*arguments))


@pytest.mark.parametrize("name", NAMES)
def test_under_mps_without_the_runtime_nothing_is_asked_of_tenants(name: str) -> None:
    policy = registry.load(name).policy
    tenants = [view("a", klass="low", deadline_us=1.0, in_flight_us=1e5), view("b", graph_launches=1, klass="low")]
    found = []
    for now_us in (2e7, 2.1e7, 4e7):
        used = [replace(each, used_us=now_us, blocks=1000) for each in tenants]
        now = snapshot(*used, now_us=now_us, lane="mps", hour=23.0)
        for who in "ab":
            found += [*policy.on_attach(now, who), *policy.on_launch(now, who), *policy.on_congestion(now, who)]
        found += policy.on_tick(now)
    assert [each for each in found if not isinstance(each, ClassRow)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_says_rule_source_and_limits_and_the_file_is_short(name: str) -> None:
    kind = type(registry.load(name).policy)
    text = kind.__doc__ or ""
    assert [word for word in ("Rule:", "Source:", "Limits:") if word not in text] == []
    import inspect

    assert len(inspect.getsource(inspect.getmodule(kind) or kind).splitlines()) < 150


@pytest.mark.parametrize("name", ["static", "slo-aware", "tpot-first", "token-bucket"])
def test_nothing_is_done_while_nobody_is_in_the_way(name: str) -> None:
    policy = registry.load(name).policy
    now = snapshot(view("a", klass="high"), view("b", klass="low", slice_us=50.0, level=0))
    for who in ("a", "b"):
        assert list(policy.on_attach(now, who)) == []
        assert list(policy.on_launch(now, who)) == []
        assert list(policy.on_completion(now, who)) == []
    assert list(policy.on_tick(now)) == []


# slo-aware


def test_who_would_miss_its_deadline_gets_a_way_through_and_later_all_is_given_back() -> None:
    policy = SloAware()
    other = view("other", slice_us=20_000.0)
    now = snapshot(view("urgent", deadline_us=20_000.0), other)
    assert list(policy.on_launch(now, "urgent")) == [
        Slice("other", 200.0, 0, "urgent would be late: other may hold the GPU for 20.2 ms"),
        Preempt("other", "urgent would be late: other may hold the GPU for 20.2 ms"),
    ]
    assert list(policy.on_launch(now, "urgent")) == []  # once, however often it launches
    squeezed = replace(other, slice_us=200.0, level=0)
    calm = snapshot(view("urgent", deadline_us=20_000.0, active=False), squeezed, now_us=2.1e6)
    assert list(policy.on_tick(calm)) == [Slice("other", 20_000.0, 1, "nobody was at risk for 1000 ms")]


def test_a_higher_class_and_who_has_less_time_left_do_not_make_way() -> None:
    policy = SloAware()
    late = view("late", deadline_us=1000.0, in_flight_us=900.0)
    now = snapshot(late, view("high", klass="high"), view("later", deadline_us=1000.0, in_flight_us=950.0))
    assert list(policy.on_launch(now, "late")) == []
    lower = snapshot(view("congested"), view("low", klass="low", slice_us=5000.0), view("equal"))
    assert [action.tenant for action in policy.on_congestion(lower, "congested")] == ["low", "low"]  # type: ignore[union-attr]


def test_in_the_spatial_lane_a_grid_that_fills_the_gpu_blocks_and_a_small_one_does_not() -> None:
    long = Shape("gemm", 1000, 256, 10, 5e4, 9e4, 9e4)
    urgent = view("urgent", klass="high", deadline_us=50_000.0)
    blocker = view("be", klass="low", blocks=1000, shapes=(long,))
    found = list(SloAware().on_launch(snapshot(urgent, blocker, lane="spatial"), "urgent"))
    assert found == [Reflex("be", 0, "urgent would be late: be may hold the GPU for 90.0 ms")]
    small = replace(blocker, blocks=8, shapes=(replace(long, blocks=8),))
    assert list(SloAware().on_launch(snapshot(urgent, small, lane="spatial"), "urgent")) == []


# tpot-first


def test_phases_are_told_from_graphs_and_grids() -> None:
    phases = Phases()
    assert phases.look(view(blocks=1000), SMS) == PREFILL
    assert phases.look(view(blocks=200), SMS) == PREFILL  # in between: as before
    assert phases.look(view(blocks=64), SMS) == DECODE
    assert phases.look(view("g", graph_launches=5, blocks=1000), SMS) == DECODE
    assert phases.look(view("g", graph_launches=5, blocks=1000), SMS) == PREFILL
    assert phases.look(view("low", klass="low", blocks=1000), SMS) == ""
    assert phases.look(view("unknown"), SMS) == ""


def decode_and_prefill(now_us: float, graphs: int, slice_us: float = 20_000.0, **more: Any) -> Snapshot:
    decoder = view("d", graph_launches=graphs, slice_us=20_000.0, level=2)
    return snapshot(decoder, view("p", blocks=1000, slice_us=slice_us, **more), now_us=now_us)


def test_slow_tokens_shrink_the_slices_of_prefill_down_to_the_shortest() -> None:
    policy = TpotFirst(TpotFirst.Params(tpot_ms=20.0))
    slices, slice_us = [], 20_000.0
    for look in range(15):  # two tokens in 100 ms: 50 ms each
        for action in policy.on_tick(decode_and_prefill(1e6 + look * 1e5, 2 * look + 1, slice_us)):
            if isinstance(action, Slice) and action.tenant == "p":
                slice_us = action.slice_us
                slices.append(slice_us)
    assert slices == sorted(slices, reverse=True)
    assert slices[-1] == 1000.0


def test_slow_tokens_on_one_gpu_shrink_prefill_there_and_not_on_another() -> None:
    policy = TpotFirst(TpotFirst.Params(tpot_ms=20.0))
    slices: dict[str, list[float]] = {"d": [], "p": [], "e": [], "q": []}
    for look in range(15):  # on the first GPU 50 ms a token, on the second 10 ms
        now_us = 1e6 + look * 1e5
        one = decode_and_prefill(now_us, 2 * look + 1, (slices["p"] or [20_000.0])[-1])
        fast = view("e", graph_launches=10 * look + 1, slice_us=20_000.0, level=2)
        beside = view("q", blocks=1000, slice_us=(slices["q"] or [20_000.0])[-1])
        two = snapshot(fast, beside, now_us=now_us, gpu="two")
        for action in (*policy.on_tick(one), *policy.on_tick(two)):
            if isinstance(action, Slice):
                slices[action.tenant].append(action.slice_us)
    assert (slices["p"][-1], slices["q"][-1]) == (1000.0, 40_000.0)


def test_a_server_on_two_gpus_keeps_its_phase_and_its_slice_between_their_ticks() -> None:
    policy, found = TpotFirst(), []
    for look in range(1, 6):
        server = view("s", graph_launches=10 * look, blocks=1000, slice_us=2048.0 if look == 1 else 20_000.0)
        alone = snapshot(server, now_us=1e5 * look, gpu="one")
        beside = snapshot(server, view("t", slice_us=9000.0), now_us=1e5 * look + 5, gpu="two")
        found += [each for now in (alone, beside) for each in policy.on_tick(now) if getattr(each, "tenant", "") == "s"]
    assert found == [Slice("s", 20_000.0, 2, "decodes: goes first")]


def test_a_prefill_that_waited_long_gets_back_what_it_had() -> None:
    policy = TpotFirst()
    begin = [action for action in policy.on_tick(decode_and_prefill(1e6, 1, 2048.0)) if action.tenant == "p"]  # type: ignore[union-attr]
    assert begin == [Slice("p", 10_000.0, 1, "d decodes: 50% for prefill")]
    late = list(policy.on_tick(decode_and_prefill(1.1e6, 10, 10_000.0, in_flight_us=2.1e6)))
    assert late == [Slice("p", 2048.0, 1, "in prefill for 2.1 s: long enough")]


def test_who_is_no_server_makes_way_and_who_never_rests_is_no_prefill() -> None:
    """A training without a class, beside a server that does both phases in one process."""
    policy = TpotFirst()
    decoder = view("d", graph_launches=1, slice_us=20_000.0, level=2)
    training = view("t", slice_us=2048.0, in_flight_us=60e6)
    low = view("low", klass="low", blocks=1000, slice_us=2048.0)
    found = [each for each in policy.on_tick(snapshot(decoder, training, low, now_us=1e6)) if isinstance(each, Slice)]
    assert found == [Slice("t", 10_000.0, 1, "d decodes: 50% for prefill")]


def test_all_is_given_back_when_nobody_decodes_any_more() -> None:
    policy = TpotFirst()
    list(policy.on_tick(decode_and_prefill(1e6, 1, 2048.0)))
    idle = view("d", graph_launches=1, slice_us=20_000.0, level=2, active=False)
    now = snapshot(idle, view("p", blocks=1000, slice_us=10_000.0), now_us=2.2e6)
    back = [action for action in policy.on_tick(now) if isinstance(action, Slice)]
    assert {(each.tenant, each.slice_us, each.level) for each in back} == {("p", 2048.0, 1)}


# strict, fair, cost-aware, token-bucket


def test_strict_writes_its_rows_once_and_a_reflex_for_each_below_high() -> None:
    policy = Strict()
    now = snapshot(view("a", klass="high"), view("b", klass="low"), lane="spatial")
    first, second = list(policy.on_attach(now, "a")), list(policy.on_attach(now, "b"))
    assert {(row.klass, row.turn_us, row.floor_permille) for row in first if isinstance(row, ClassRow)} == {
        ("normal", TURN_US, 100), ("low", TURN_US, 20), ("idle", TURN_US, 10),
    }  # fmt: skip
    assert [type(each) for each in second] == [Reflex]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=40), st.integers(1, 1000))
def test_sms_are_apportioned_exactly_and_to_the_last(weights: list[float], whole: int) -> None:
    parts = apportion(weights, whole)
    assert sum(parts) == whole
    assert all(part >= 0 for part in parts)
    exact = [whole * weight / sum(weights) for weight in weights]
    if whole >= len(weights):
        assert min(parts) >= 1
    if min(exact) >= 1:
        assert all(abs(part - each) < 1 + 1e-6 for part, each in zip(parts, exact, strict=True))


def test_fair_gives_an_idle_tenants_sms_to_the_others_and_uses_the_pool() -> None:
    pool = (PCtx("half", 66), PCtx("own", 60, exclusive=True, bound=("c",)))
    now = snapshot(view("a"), view("b", active=False), view("c", klass="high"), lane="spatial", pool=pool)
    found = list(Fair().on_launch(now, "a"))
    assert found == [
        Bind("a", 44, "weight 4 of 12: 44 of 132 SMs"),
        Move("c", "half", "weight 8 of 12: 88 of 132 SMs"),
    ]


def test_cost_aware_is_cheap_off_peak_until_a_deadline_comes() -> None:
    policy = CostAware()
    low = view("low", klass="low", slice_us=50.0, level=0)
    cheap = list(policy.on_attach(snapshot(low, hour=23.0, now_us=2e7), "low"))
    assert Slice("low", 5000.0, 1, "off-peak at 23.0 h") in cheap
    slow = replace(low, slice_us=5000.0, level=1)
    dear = list(policy.on_launch(snapshot(slow, view("u", deadline_us=1e4), hour=23.1, now_us=3e7), "u"))
    assert ("low", 50.0, 0) in [(each.tenant, each.slice_us, each.level) for each in dear if isinstance(each, Slice)]
    assert [CostAware(CostAware.Params(22.0, 6.0)).peak(hour) for hour in (23.0, 5.0, 6.0, 12.0)] == [
        True,
        True,
        False,
        False,
    ]


def test_without_the_module_strict_and_cost_aware_set_floors_alone_and_ask_for_nothing_that_is_refused() -> None:
    tenants = (view("a", klass="high"), view("b", klass="low", by_hand=("Slice",)))
    turns = snapshot(*tenants, rows=False, now_us=2e7, hour=23.0)
    strict = [each for who in "ab" for each in Strict().on_attach(turns, who)]
    assert {(each.klass, each.floor_permille, each.turn_us) for each in strict if isinstance(each, ClassRow)} == {
        ("normal", 100, None), ("low", 20, None), ("idle", 10, None),
    }  # fmt: skip
    policy = CostAware()
    cheap, dear = list(policy.on_tick(turns)), list(policy.on_tick(replace(turns, hour=12.0)))
    assert [{row.klass: row.floor_permille for row in rows if isinstance(row, ClassRow)} for rows in (cheap, dear)] == [
        {"low": 250, "idle": 125, "normal": 20}, {"low": 20, "idle": 10, "normal": 20},
    ]  # fmt: skip
    bare = replace(turns, floors=False)
    for nothing in (Strict(), CostAware(), Fair()):
        found = [*nothing.on_attach(bare, "b"), *nothing.on_tick(bare)]
        assert [each for each in found if isinstance(each, ClassRow)] == []


def test_fair_gives_classes_of_the_background_their_part_of_all_weights_as_a_floor() -> None:
    hand = ("Slice",)
    low = [view(name, klass="low", by_hand=hand) for name in "bc"]
    idle = view("d", klass="idle", by_hand=hand, weight=2)
    policy = Fair()
    now = snapshot(view("a", klass="high", by_hand=hand), *low, idle, rows=False, gpu="one")
    found = [each for each in policy.on_attach(now, "d") if isinstance(each, ClassRow)]
    assert {each.klass: each.floor_permille for each in found} == {"low": 167, "idle": 167}  # 2 of 12 each
    assert [each for each in policy.on_attach(now, "d") if isinstance(each, ClassRow)] == []
    many = [view(f"x{n}", klass="low", by_hand=hand) for n in range(40)]
    other = replace(now, tenants=(now.tenants[0], *many), gpu="two")
    rows = [each for each in policy.on_attach(other, "x0") if isinstance(each, ClassRow)]
    assert [(each.klass, each.floor_permille) for each in rows] == [("low", 500)]  # the GPU that asks for more
    alone = snapshot(low[0], rows=False)
    assert not [each for each in Fair().on_attach(alone, "b") if isinstance(each, ClassRow)]


def test_an_empty_bucket_of_a_group_holds_all_of_it() -> None:
    policy = TokenBucket(TokenBucket.Params(group=50.0))
    both = [view(name, klass="high", group="team") for name in "ab"]
    list(policy.on_tick(snapshot(*both, view("c", klass="high"))))
    used = [replace(each, used_us=2e5) for each in both]
    found = list(policy.on_tick(snapshot(*used, view("c", klass="high", used_us=9e5), now_us=1.01e6)))
    assert [(each.tenant, each.open) for each in found if isinstance(each, Gate)] == [("a", False), ("b", False)]


def test_buckets_fill_at_their_rate_on_each_of_several_gpus() -> None:
    policy, shut, opened = TokenBucket(), {}, {}
    used = {"one": 0.0, "two": 0.0}
    for tick in range(100):
        for number, gpu in enumerate(used):
            now_us = 1e6 + 1e4 * tick + 5 * number
            free = gpu not in shut or gpu in opened
            now = snapshot(view(gpu, klass="low", used_us=used[gpu], gate_open=free), now_us=now_us, gpu=gpu)
            for gate in policy.on_tick(now):
                assert isinstance(gate, Gate)
                (opened if gate.open else shut).setdefault(gpu, tick)
            used[gpu] = 1.5e5  # half more than the burst
    assert shut == {"one": 1, "two": 1}
    assert opened == {"one": 41, "two": 41}  # 100 ms at a quarter of the time


def test_a_group_stays_in_debt_when_somebody_ends_on_another_gpu() -> None:
    policy = TokenBucket(TokenBucket.Params(group=50.0))
    member = view("a", klass="high", group="team")
    list(policy.on_tick(snapshot(member, gpu="one")))
    spent = replace(member, used_us=3e5)
    assert [type(each) for each in policy.on_tick(snapshot(spent, now_us=1.01e6, gpu="one"))] == [Gate]
    list(policy.on_detach(snapshot(now_us=1.02e6, gpu="two"), "b"))
    assert list(policy.on_tick(snapshot(spent, now_us=1.03e6, gpu="one"))) == []


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("slo-aware", {"margin": "2"}, "margin is 2"),
        ("tpot-first", {"tpot_ms": "0"}, "tpot_ms must be above 0"),
        ("strict", {"low": "0"}, "at least 1"),
        ("fair", {"high": "-1"}, "above 0"),
        ("cost-aware", {"peak_from": "25"}, "hours from 0 to 24"),
        ("token-bucket", {"low": "0"}, "1 to 100 percent"),
    ],
)
def test_a_parameter_that_cannot_be_meant_says_why(name: str, params: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        registry.load(name, params)


def test_what_a_person_set_since_is_not_taken_back() -> None:
    asked = Asked()
    assert asked.put(view("a"), Slice("a", 100.0, 0, "why"))
    assert asked.put(view("a", by_hand=("Slice",)), Slice("a", 50.0, 0, "why")) == []
    assert asked.back(view("a", klass="low", slice_us=50.0, level=0), "over") == []
    assert asked.changed == set()


def test_hooks_take_a_tenant_that_has_gone_already() -> None:
    for name in NAMES:
        policy: Policy = registry.load(name).policy
        for hook in (policy.on_attach, policy.on_launch, policy.on_completion, policy.on_congestion, policy.on_detach):
            assert [action for action in hook(snapshot(), "gone") if not isinstance(action, ClassRow)] == []
