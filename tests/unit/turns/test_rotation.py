# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.backends.root.turns.engine import WINDOW_TICK_S
from detshare.ctl.backends.root.turns.rotation import (
    CREDIT_S,
    ENTRY_S,
    MISSED_S,
    MOST_ENTRY_S,
    PATIENCE_S,
    ROUND_S,
    WINDOW_S,
    Rotation,
    Tenant,
)
from detshare.ctl.core.gputime import Standing

GPU = "GPU-0"
OTHER = "GPU-1"
TICK = 0.01


def tenant(key: str, weight: int = 1, rank: int = 2, floor: float = 0.0, gpus: tuple[str, ...] = (GPU,)) -> Tenant:
    return Tenant(key, frozenset(gpus), rank, weight, floor)


class Machine:
    """Whoever may run works all the time, unless it has no work; one tenant at a time on each GPU."""

    def __init__(self, *tenants: Tenant) -> None:
        self.rotation = Rotation()
        self.now = 1.0
        self.idle: set[str] = set()
        self.silent: set[str] = set()
        """no work, and nobody asks: who has a window is not asked"""
        self.full: set[str] = set()
        self.busy: set[str] = set()
        self.tight: dict[str, float] = {}
        """GPU -> part of a turn in which the foreground lets its holder work"""
        self.windowed = 1.0
        """the same of a window"""
        self.work: dict[str, float] = defaultdict(float)
        self.longest: dict[str, float] = defaultdict(float)
        self._last: dict[str, float] = {}
        self.tenants = {each.key: each for each in tenants}
        self.rotation.update(tenants, self.now)

    def run(self, seconds: float, tick: float = TICK) -> None:
        for _ in range(round(seconds / tick)):
            for key in self.idle:
                if self.rotation.standing(key) is not Standing.RESTS:
                    self.rotation.rest(key)
            on = self.rotation.step(self.now, self.full, self.busy, self.tight)
            holders = [key for key in on if key in self.rotation.grants]
            held = [gpu for key in holders for gpu in self.tenants[key].gpus]
            assert len(held) == len(set(held)), "two holders of one GPU"
            self.now += tick
            for key in holders:
                if key not in self.idle | self.silent:
                    self.rotation.ran(key, self.now)
                    window = self.rotation.grants[key].window
                    part = self.windowed if window else min(self.tight.get(gpu, 1.0) for gpu in self.tenants[key].gpus)
                    self.rotation.worked(key, dict.fromkeys(self.tenants[key].gpus, part * tick))
                    self.work[key] += part * tick
                    self.longest[key] = max(self.longest[key], self.now - self._last.get(key, 1.0))
                    self._last[key] = self.now

    def share(self, key: str) -> float:
        return self.work[key] / sum(self.work.values())


@pytest.mark.parametrize("floor", [0.01, 0.05])
def test_a_window_in_which_others_are_on_takes_nobodys_turn(floor: float) -> None:
    """What a floor is owed is paid by work alone: beside an MPS server, whose channels cannot be off, windows paid
    nothing, and one followed the other for as long as that worked (dice 7065)."""
    machine = Machine(tenant("a"), tenant("b", rank=1, floor=floor))
    machine.windowed = 0.01
    machine.run(20)
    assert machine.longest["a"] < 0.1
    assert machine.work["a"] > 0.8 * 20


def test_two_of_one_class_both_go_on() -> None:
    machine = Machine(tenant("a"), tenant("b"))
    machine.run(4)
    assert machine.share("a") == pytest.approx(0.5, abs=0.06)
    assert sum(machine.work.values()) == pytest.approx(4, rel=0.01)


def test_who_comes_to_a_gpu_that_another_holds_waits_for_it() -> None:
    """Both held it from then on, without end: neither was one that the other's turn would have ended for."""
    machine = Machine(tenant("a"), tenant("b", gpus=(OTHER,)))
    machine.run(1)
    machine.tenants["a"] = tenant("a", gpus=(GPU, OTHER))
    machine.rotation.update(machine.tenants.values(), machine.now)
    before = dict(machine.work)
    machine.run(4)
    assert machine.work["a"] - before["a"] == pytest.approx(2, abs=0.4)
    assert machine.work["b"] - before["b"] == pytest.approx(2, abs=0.4)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_turns_are_by_weight_and_nobody_waits_long(weights: list[int]) -> None:
    machine = Machine(*(tenant(str(n), weight) for n, weight in enumerate(weights)))
    machine.run(40)
    for n, weight in enumerate(weights):
        assert machine.share(str(n)) == pytest.approx(weight / sum(weights), rel=0.05)
        assert machine.longest[str(n)] < 2 * ROUND_S


def test_who_rests_is_left_on_and_costs_the_others_nothing() -> None:
    machine = Machine(tenant("a"), tenant("b"), tenant("c"))
    machine.idle = {"c"}
    machine.run(4)
    assert machine.work["a"] + machine.work["b"] == pytest.approx(4, rel=0.02)
    assert "c" in machine.rotation.step(machine.now)
    machine.idle.clear()
    machine.rotation.ran("c", machine.now)
    before = dict(machine.work)
    machine.run(6)
    assert machine.work["c"] - before.get("c", 0.0) == pytest.approx(2, abs=0.4)


def test_who_comes_back_with_less_than_the_holder_is_next_whoever_else_waits_with_less_still() -> None:
    rotation = Rotation()
    rotation.update([tenant("holder"), tenant("waits"), tenant("sleeper")], 1.0)
    rotation.rest("sleeper")
    assert "holder" in rotation.step(1.0)
    rotation.worked("holder", {GPU: 0.05})
    rotation.worked("sleeper", {GPU: 0.03})
    rotation.ran("sleeper", 1.05)
    assert rotation.step(1.05) == {"sleeper"}
    rotation.worked("sleeper", {GPU: 0.04})
    rotation.rest("sleeper")
    assert "waits" in rotation.step(1.1)
    rotation.worked("waits", {GPU: 0.06})
    rotation.ran("sleeper", 1.16)  # it has had more than the holder by now
    assert rotation.step(1.16) == {"waits"}
    rotation.worked("waits", {GPU: 0.02})
    assert rotation.step(1.18) == {"sleeper"}


def test_nobody_waits_for_ever_while_others_are_let_through() -> None:
    rotation, now, waited, longest = Rotation(), 1.0, 0.0, 0.0
    sleepers = [f"sleeper {n}" for n in range(4)]
    rotation.update(map(tenant, ["waits", *sleepers]), now)
    for _ in range(2000):
        now += TICK
        for key in sleepers:  # a moment's rest before each tick, but for the holder's
            if rotation.standing(key) is not Standing.HOLDS:
                rotation.rest(key)
                rotation.ran(key, now)
        wanted = rotation.step(now)
        for key in wanted:
            rotation.worked(key, {GPU: TICK})
        waited = 0.0 if "waits" in wanted else waited + TICK
        longest = max(longest, waited)
    assert longest <= ROUND_S + PATIENCE_S + TICK


@given(st.floats(0.0, 100.0))
def test_a_rest_gives_a_credit_and_no_more(others: float) -> None:
    rotation = Rotation()
    rotation.update([tenant("a"), tenant("b")], 1.0)
    rotation.rest("b")
    rotation.worked("a", {GPU: others})
    rotation.ran("b", 2.0)
    assert rotation.states["b"].count == max(0.0, others - CREDIT_S)


def test_who_ends_hands_its_turn_on_at_once() -> None:
    machine = Machine(tenant("a"), tenant("b"))
    machine.run(0.05)
    (holder,) = machine.rotation.grants
    other = ({"a", "b"} - {holder}).pop()
    machine.rotation.update([machine.tenants[other]], machine.now)
    assert machine.rotation.step(machine.now) == {other}


def test_a_turn_is_prolonged_for_the_foreground_but_not_for_ever() -> None:
    machine = Machine(tenant("a"), tenant("b"))
    machine.rotation.step(machine.now)
    ((key, grant),) = machine.rotation.grants.items()
    late = grant.until + PATIENCE_S / 2
    assert key in machine.rotation.step(late, busy={GPU})
    assert key not in machine.rotation.step(grant.until + PATIENCE_S + 0.001, busy={GPU})


@pytest.mark.parametrize("floor", [0.0, 0.02, 0.05, 0.1])
def test_a_full_foreground_leaves_floors(floor: float) -> None:
    machine = Machine(tenant("a", floor=floor), tenant("b", floor=floor))
    machine.full = {GPU}
    machine.run(20, WINDOW_TICK_S)
    assert sum(machine.work.values()) / 20 == pytest.approx(floor, abs=0.005)
    if floor:
        assert machine.share("a") == pytest.approx(0.5, abs=0.1)
        windows = sum(machine.work.values()) / WINDOW_S
        assert windows >= 1


@pytest.mark.parametrize("full", [True, False], ids=["windows", "turns"])
def test_nobody_is_woken_for_a_floor_that_nobody_can_use(full: bool) -> None:
    """Where two rest that share a floor, and above them one that works or leaves no gaps."""
    machine = Machine(tenant("a", rank=3), tenant("b", floor=0.02), tenant("c", floor=0.02))
    machine.full = {GPU} if full else set()
    for key in ("b", "c"):
        machine.rotation.rest(key)
    steps = 0
    while machine.now < 11:
        machine.rotation.step(machine.now, machine.full)
        if not full:
            machine.rotation.ran("a", machine.now)
        wake = machine.rotation.wake(machine.now)
        machine.now += max(0.0003, min(TICK, TICK if wake is None else wake - machine.now))
        steps += 1
    assert steps < 2 * 10 / TICK


@pytest.mark.parametrize(("left", "floor"), [(0.02, 0.1), (0.0, 0.02), (0.3, 0.2), (0.1, 0.0)])
def test_a_tight_foreground_leaves_floors_at_least(left: float, floor: float) -> None:
    machine = Machine(tenant("a", floor=floor), tenant("b", floor=floor))
    machine.tight = {GPU: left}
    machine.run(20)
    assert sum(machine.work.values()) / 20 == pytest.approx(max(left, floor), abs=0.006)
    assert machine.share("a") == pytest.approx(0.5, abs=0.1)


def test_a_lower_class_has_its_floor_while_a_higher_one_works() -> None:
    machine = Machine(tenant("low"), tenant("idle", rank=1, floor=0.01))
    machine.run(20)
    assert machine.work["idle"] / 20 == pytest.approx(0.01, abs=0.006)
    machine.idle = {"low"}
    before = machine.work["idle"]
    machine.run(4)
    assert machine.work["idle"] - before == pytest.approx(4, rel=0.05)


def test_a_job_has_all_its_gpus_at_once_and_half_of_the_time() -> None:
    both = (GPU, OTHER)
    machine = Machine(tenant("job1", gpus=both), tenant("job2", gpus=both))
    machine.run(8)
    assert machine.share("job1") == pytest.approx(0.5, abs=0.05)


def test_a_job_beside_programs_of_one_gpu() -> None:
    machine = Machine(tenant("job", gpus=(GPU, OTHER)), tenant("a"), tenant("b", gpus=(OTHER,)))
    machine.run(20)
    for key in ("job", "a", "b"):
        assert machine.work[key] / 20 == pytest.approx(0.5, abs=0.12)
        assert machine.longest[key] < 2.0


def test_a_newcomer_does_not_make_up_for_what_it_missed() -> None:
    machine = Machine(tenant("a"), tenant("b"))
    machine.run(10)
    machine.tenants["c"] = tenant("c")
    machine.rotation.update(machine.tenants.values(), machine.now)
    before = dict(machine.work)
    machine.run(6)
    for key in "abc":
        assert machine.work[key] - before.get(key, 0.0) == pytest.approx(2, abs=0.5)


def test_a_window_that_nobody_uses_is_not_granted_again_at_once() -> None:
    machine = Machine(tenant("a", floor=0.02))
    machine.full = {GPU}
    begun = 0
    for _ in range(2000):
        machine.rotation.step(machine.now, machine.full)
        grant = machine.rotation.grants.get("a")
        begun += grant is not None and grant.begun == machine.now
        machine.now += TICK
    assert begun == pytest.approx(20 / (WINDOW_S / 0.02 + ENTRY_S), rel=0.15)


def test_who_has_no_work_has_one_window_and_is_at_rest_from_then_on() -> None:
    """Each other one would take the GPU from who has work for a twentieth of a second, and it would seem to wait."""
    machine = Machine(tenant("a"), tenant("b", rank=1, floor=0.01))
    machine.silent = {"b"}
    machine.run(10)
    assert machine.rotation.standing("b") is Standing.RESTS
    assert machine.work["a"] > 10 - 0.1
    machine.silent = set()
    machine.rotation.ran("b", machine.now)
    before = machine.work["a"]
    machine.run(20, tick=0.002)
    assert machine.work["b"] / 20 == pytest.approx(0.01, abs=0.004)
    assert machine.work["a"] - before > 20 * 0.97


def test_a_job_has_no_more_of_a_gpu_than_who_shares_that_one_with_it_alone() -> None:
    """The other's turns ended early so that the job's free GPU need not wait for them: a sixth was left to it."""
    machine = Machine(tenant("job", gpus=(GPU, OTHER)), tenant("b", gpus=(OTHER,)))
    machine.run(20)
    assert machine.share("job") == pytest.approx(0.5, abs=0.025)


@pytest.mark.parametrize("mode", ["full", "tight"])
def test_a_job_that_lives_off_its_floor_on_one_gpu_leaves_the_others_turns_on_the_next(mode: str) -> None:
    """Its windows take both. It was owed one after another, for it could not use them, and `b` had nothing."""
    machine = Machine(tenant("job", floor=0.2, gpus=(GPU, OTHER)), tenant("b", gpus=(OTHER,)))
    part = 0.1
    if mode == "full":
        machine.full = {GPU}
    machine.tight = {GPU: part}
    rotation, since, longest = machine.rotation, machine.now, 0.0
    while machine.now < 21:
        on = rotation.step(machine.now, machine.full, (), machine.tight)
        machine.now += WINDOW_TICK_S
        if "job" in on:
            rotation.ran("job", machine.now)
            rotation.worked("job", {GPU: part * WINDOW_TICK_S, OTHER: WINDOW_TICK_S})
            machine.work["job"] += WINDOW_TICK_S
        if "b" in on:
            rotation.worked("b", {OTHER: WINDOW_TICK_S})
            machine.work["b"] += WINDOW_TICK_S
            since = machine.now
        longest = max(longest, machine.now - since)
    assert longest <= ROUND_S + ENTRY_S
    assert min(machine.work.values()) / 20 > 0.45, machine.work


def test_a_window_is_held_open_for_who_has_work_but_not_for_ever() -> None:
    rotation, now = Rotation(), 1.0
    rotation.update([tenant("blocked", floor=0.1)], now)
    opened: list[float] = []
    while now < 3:
        for key in rotation.unentered(now):
            rotation.let_in(key, now)
        rotation.step(now, {GPU})
        opened += [grant.begun for grant in rotation.grants.values() if grant.begun == now]
        now += WINDOW_TICK_S
    spans = [after - before for before, after in pairwise(opened)]
    assert len(spans) > 2
    assert min(spans) >= MISSED_S
    assert max(spans) <= MISSED_S + MOST_ENTRY_S + WINDOW_TICK_S


@pytest.mark.parametrize("seed", range(6))
def test_nobody_of_three_waits_for_a_second_whatever_the_weights_and_rests(seed: int) -> None:
    """A heavy one that came back had half a round more than a round, right before who had waited for one."""
    dice = random.Random(seed)
    machine = Machine(*(tenant(str(n), dice.choice([1, 2, 3, 10, 30])) for n in range(3)))
    changes, waited, longest = dict.fromkeys("012", 0.0), dict.fromkeys("012", 0.0), 0.0
    for _ in range(2000):
        for key in "12":
            if machine.now >= changes[key]:
                changes[key] = machine.now + dice.choice([0.02, 0.1, 0.3, 1.0])
                if dice.random() < 0.4:
                    machine.idle.add(key)
                elif key in machine.idle:
                    machine.idle.remove(key)
                    machine.rotation.ran(key, machine.now)
        before = dict(machine.work)
        machine.run(TICK)
        for key in "012":
            still = key not in machine.idle and machine.work[key] == before.get(key, 0.0)
            waited[key] = waited[key] + TICK if still else 0.0
        longest = max(longest, *waited.values())
    assert longest < 1.0


def test_a_jobs_window_begins_to_count_on_the_gpu_that_it_is_owed_on() -> None:
    """It runs on the next one at once, and its window was over before the foreground let it in here."""
    rotation, now = Rotation(), 1.0
    rotation.update([tenant("job", floor=0.1, gpus=(GPU, OTHER))], now)
    while not rotation.step(now, {GPU}):
        now += WINDOW_TICK_S
    begun = now
    rotation.ran("job", begun, OTHER)
    assert rotation.grants["job"].until == begun + ENTRY_S
    assert rotation.unentered(begun + ENTRY_S) == {"job": {GPU}}
    rotation.ran("job", begun, GPU)
    assert rotation.grants["job"].until == begun + WINDOW_S
