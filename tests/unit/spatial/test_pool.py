# SPDX-License-Identifier: Apache-2.0
"""The pool of pCtxs, and programs that are bound to its members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spatial_lane import GPU_TEXT, Lane

from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.backends.spatial.pool import Pool, exclusive_tier
from detshare.ctl.core import config
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import Snapshot
from detshare.runtime.reflexes import RANKS, Desired, Mode, Override, apart, reflex
from detshare.runtime.tiers import FULL, Gpu, Kind, Tier, of_percent
from tests.patience import until

H100 = Gpu(GPU_TEXT, 132, 8)
RULES = config.Pool((10, 25, 50, 100), (config.Exclusive("inference", 30),))


@pytest.fixture
def pool() -> Pool:
    return Pool(RULES)


@pytest.fixture
def backend(lane: Lane, pool: Pool) -> ShimBackend:
    return ShimBackend(lane.service, pool)


def rows(pool: Pool, now: Snapshot) -> dict[str, tuple[str, int, tuple[int, ...]]]:
    return {row.name: (row.set, row.sms, row.bound) for row in pool.rows(now)}


def bound(pool: Pool, now: Snapshot) -> dict[int, str]:
    return {binding.pid: binding.pctx for binding in pool.bindings(now)}


def test_the_pool_is_known_before_its_size_is(pool):
    members = pool.members("GPU-1")
    assert [(each.name, each.sms, each.exclusive) for each in members] == [
        ("inference", 0, True),
        ("10%", 0, False),
        ("25%", 0, False),
        ("50%", 0, False),
        ("100%", 0, False),
    ]


def test_programs_are_bound_and_seen_where_they_are(lane, pool, backend):
    first, second = lane.start(), lane.start()
    first.send("acks 5")
    assert bound(pool, backend.look()) == {first.pid: "100%", second.pid: "100%"}
    done = backend.bind(str(first.pid), "25%")
    assert "the first 32 SMs of 132" in done.changed[0].note
    assert lane.view(first).idle == Tier(Kind.FIRST, 32)
    now = pool.placed(backend.look())
    assert {p.id.pid: p.pctx for p in now.programs} == {first.pid: "25%", second.pid: "100%"}
    assert rows(pool, now)["25%"] == ("first:32", 32, (first.pid,))
    assert rows(pool, now)["100%"] == ("full", 132, (second.pid,))
    backend.bind(str(first.pid), "100%")
    assert lane.view(first).idle == FULL


def test_a_share_that_is_none_of_the_pool_is_shown_as_such(lane, pool, backend):
    program = lane.start()
    program.send("acks 5")
    backend.set_sm(str(program.pid), 75)
    assert bound(pool, backend.look()) == {program.pid: ""}


def test_an_exclusive_pctx_has_one_program_and_all_others_keep_off(lane, pool, backend):
    owner, other = lane.start(), lane.start()
    for program in (owner, other):
        program.send("acks 30")
    backend.bind(str(other.pid), "10%")
    backend.bind(str(owner.pid), "inference")
    assert lane.view(owner).idle == Tier(Kind.FIRST, 32)
    assert lane.view(other).idle == lane.view(other).busy == Tier(Kind.REST, 32)
    late = lane.start()
    assert lane.view(late).idle == Tier(Kind.REST, 32)
    now = backend.look()
    assert bound(pool, now) == {owner.pid: "inference", other.pid: "rest", late.pid: "rest"}
    assert rows(pool, now)["inference"] == ("first:32", 32, (owner.pid,))
    assert rows(pool, now)["rest"] == ("rest:32", 100, (other.pid, late.pid))
    refused = backend.bind(str(other.pid), "inference")
    assert not refused.changed
    assert f"PID {owner.pid} has inference to itself" in refused.skipped[0].reason
    with pytest.raises(BadRequest, match="to itself"):
        backend.set_reserve(16)
    owner.end()
    until(lambda: lane.view(other).idle == Tier(Kind.FIRST, 8))  # 10 % again, by itself
    assert lane.view(late).idle == FULL


def test_who_leaves_an_exclusive_pctx_gives_it_back(lane, backend):
    owner, other = lane.start(), lane.start()
    for leave in (
        lambda: backend.bind(str(owner.pid), "50%"),
        lambda: backend.set_sm(str(owner.pid), 50),
        lambda: backend.release(str(owner.pid)),
    ):
        owner.send("acks 2")
        backend.bind(str(owner.pid), "inference")
        assert lane.view(other).idle == Tier(Kind.REST, 32)
        leave()
        assert lane.view(other).idle == FULL
        assert owner.do("") == "done"


def test_bindings_survive_a_restart(lane, pool):
    owner, other = lane.start(), lane.start()
    owner.send("acks 5")
    ShimBackend(lane.service, pool).bind(str(owner.pid), "inference")
    before = (lane.view(owner).epoch, lane.view(other).epoch)
    lane.again(restore=False)
    assert bound(pool, ShimBackend(lane.service, pool).look()) == {owner.pid: "inference", other.pid: "rest"}
    assert (lane.view(owner).epoch, lane.view(other).epoch) == before  # nothing was written: nobody noticed


def test_a_reserve_and_an_exclusive_pctx_exclude_each_other(lane, backend):
    program = lane.start()
    backend.set_reserve(16)
    refused = backend.bind(str(program.pid), "inference")
    assert "reserved for class high" in refused.skipped[0].reason


def test_names_that_are_none_are_told_with_those_there_are(lane, backend):
    program = lane.start()
    with pytest.raises(BadRequest, match="its pool has inference, 10%, 25%, 50%, 100%"):
        backend.bind(str(program.pid), "30%")
    with pytest.raises(BadRequest, match="is exclusive: it takes a program of the spatial lane"):
        backend.pool.percent("inference")


def sms(tier: Tier, gpu: Gpu) -> set[int]:
    return {
        Kind.FULL: set(range(gpu.sms)),
        Kind.FIRST: set(range(tier.sms)),
        Kind.REST: set(range(tier.sms, gpu.sms)),
    }[tier.kind]


gpus = st.builds(Gpu, st.just("GPU-1"), st.integers(16, 200), st.sampled_from([2, 8]))
sets = st.none() | st.sampled_from(["full", "first:8", "rest:8", "first:16", "rest:16"])


@given(
    gpus,
    st.integers(1, 4096),
    st.builds(Desired, st.sampled_from(list(RANKS)), st.none() | st.integers(1, 100)),
    st.none() | st.just(8),
    sets,
    st.booleans(),
    st.booleans(),
)
def test_nobody_but_the_owner_ever_runs_on_exclusive_sms(gpu, wanted, desired, reserve, override, crowded, contended):
    own = exclusive_tier(wanted, gpu)
    assert sms(own, gpu) <= sms(FULL, gpu)
    assert len(sms(own, gpu)) < gpu.sms  # a rest is left
    chosen = None
    if override is not None:
        chosen = Override(busy=override)
        try:
            chosen.check(gpu)
        except BadRequest:
            chosen = None
    reserve = reserve if reserve is None or reserve <= gpu.largest else None
    made = apart(reflex(desired, gpu, reserve, chosen, crowded), own.sms, False, contended)
    assert not sms(made.idle, gpu) & sms(own, gpu)
    assert made.mode is Mode.HOLD or not sms(made.busy, gpu) & sms(own, gpu)
    owner = apart(reflex(desired, gpu, reserve, chosen, crowded), own.sms, True, contended)
    assert (owner.idle, owner.busy, owner.mode) == (own, own, Mode.TIER)


@given(gpus)
def test_each_tier_is_a_set_that_the_gpu_can_be_cut_into(gpu):
    for member in Pool(RULES).members(gpu.uuid, gpu):
        assert 0 < member.sms <= gpu.sms
        assert member.sms == gpu.sms or member.sms % gpu.step == 0
        if member.percent is not None:
            assert member.sms == of_percent(member.percent, gpu).size(gpu.sms)
