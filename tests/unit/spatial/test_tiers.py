# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.backend import BadRequest
from detshare.runtime import board_layout as layout
from detshare.runtime.reflexes import RANKS, Desired, Mode, overlaps, reflex
from detshare.runtime.tiers import FULL, Gpu, Kind, Table, Tier, check_percent, check_reserve, of_percent

H100 = Gpu("GPU-x", 132, 8)


@pytest.mark.parametrize(
    ("percent", "sms"), [(1, 8), (6, 8), (12, 8), (13, 16), (25, 32), (50, 64), (75, 96), (97, 120), (99, 120)]
)
def test_a_share_is_rounded_down_to_what_the_gpu_cuts(percent: int, sms: int) -> None:
    assert of_percent(percent, H100) == Tier(Kind.FIRST, sms)


def test_all_is_the_whole_gpu() -> None:
    assert of_percent(100, H100) == FULL


@pytest.mark.parametrize("percent", [0, 101, -1, True, 2.5, "25", None])
def test_what_is_no_share_is_refused_with_the_range(percent: object) -> None:
    with pytest.raises(BadRequest, match="1 to 100"):
        check_percent(percent)


@given(st.integers(1, 100), st.integers(2, 512), st.sampled_from([2, 4, 8]))
def test_a_share_is_never_more_than_asked_unless_the_gpu_has_nothing_smaller(percent: int, sms: int, step: int) -> None:
    gpu = Gpu("GPU-x", max(sms, 2 * step), step)
    tier = of_percent(percent, gpu)
    if tier != FULL:
        assert tier.sms % step == 0
        assert tier.sms <= gpu.sms * percent / 100 or tier.sms == step


@pytest.mark.parametrize(("sms", "told"), [(30, "take 24 or 32"), (0, "8 to 120"), (128, "8 to 120"), (True, "8 to")])
def test_a_reserve_that_is_no_tier_is_refused(sms: object, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        check_reserve(sms, H100)


def test_first_and_rest_share_no_sm_and_leave_none() -> None:
    for n in range(8, 121, 8):
        assert Tier(Kind.FIRST, n).size(132) + Tier(Kind.REST, n).size(132) == 132


@given(st.lists(st.integers(1, 100), max_size=200), st.sampled_from([None, 32]))
def test_a_table_rewrites_no_entry_and_grants_no_more_than_asked(asked: list[int], reserve: int | None) -> None:
    table = Table(H100)
    before = table.tiers
    if reserve:
        table.index(Tier(Kind.REST, reserve))
    for percent in asked:
        tier = of_percent(percent, H100)
        index = table.index(tier)
        assert table.tiers[: len(before)] == before
        assert len(table.tiers) <= layout.TIERS
        granted = table.tiers[index]
        assert granted.size(132) <= tier.size(132)
        assert granted.kind is tier.kind
        before = table.tiers


def test_a_class_only_holds_for_a_higher_one_and_never_starves() -> None:
    assert sorted(RANKS, key=RANKS.__getitem__) == ["idle", "low", "normal", "high"]
    assert reflex(Desired("high"), H100, None).mode is Mode.TIER
    floors = [reflex(Desired(name), H100, None).floor_permille for name in ("idle", "low", "normal")]
    assert 0 < floors[0] < floors[1] < floors[2] < 1000
    assert reflex(Desired("low"), H100, None).idle == FULL


def test_a_reserve_splits_the_gpu_between_high_and_the_others() -> None:
    high, low = (reflex(Desired(name), H100, 32) for name in ("high", "low"))
    assert high.idle == high.busy == Tier(Kind.FIRST, 32)
    assert low.idle == low.busy == Tier(Kind.REST, 32)
    assert low.mode is Mode.TIER


def test_a_share_of_ones_own_goes_before_the_reserve_and_says_where_it_overlaps() -> None:
    desired = Desired("low", 25)
    assert reflex(desired, H100, 32).idle == Tier(Kind.FIRST, 32)
    assert overlaps(desired, 32)
    assert not overlaps(desired, None)
    assert not overlaps(Desired("high", 25), 32)
