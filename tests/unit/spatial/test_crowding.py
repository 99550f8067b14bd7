# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from spatial_lane import Lane

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity, Counters, Slot, monotonic_ns
from detshare.runtime.crowding import ENTER, LEAVE, WINDOW_NS, Share, active_ns, crowded
from detshare.runtime.reflexes import HOLD, Desired, Mode, Override, reflex
from detshare.runtime.tiers import FULL, Gpu, Kind, Tier
from tests.patience import until

GPU = Gpu("GPU-1", 132, 8)
LOW = Desired("low")
SMALL = Tier(Kind.FIRST, 16)


def test_the_share_is_that_of_the_last_window() -> None:
    share = Share()
    assert share.value is None
    for tick in range(5):  # a quarter of a second each, a fifth of it active
        share.note(tick * WINDOW_NS // 4, tick * WINDOW_NS // 20)
    assert share.value == pytest.approx(0.2)
    for tick in range(5, 9):  # and then all of it
        share.note(tick * WINDOW_NS // 4, WINDOW_NS // 5 + (tick - 4) * WINDOW_NS // 4)
    assert share.value == pytest.approx(1.0)


def test_nothing_is_said_before_a_whole_window() -> None:
    share = Share()
    share.note(0, 0)
    share.note(WINDOW_NS - 1, WINDOW_NS - 1)
    assert share.value is None


def test_a_look_that_came_late_still_gives_a_share() -> None:
    share = Share()
    share.note(0, 0)
    share.note(10 * WINDOW_NS, 5 * WINDOW_NS)
    assert share.value == pytest.approx(0.5)


def test_a_share_between_the_bounds_changes_nothing() -> None:
    between = (ENTER + LEAVE) / 2
    assert crowded(True, between)
    assert not crowded(False, between)
    assert crowded(False, ENTER)
    assert not crowded(True, LEAVE - 0.01)


def test_only_class_low_moves_to_a_small_set_where_it_is_crowded_out() -> None:
    made = reflex(LOW, GPU, None, crowded=True)
    assert (made.mode, made.idle, made.busy) == (Mode.TIER, FULL, SMALL)
    for klass in ("idle", "normal", "high"):
        assert reflex(Desired(klass), GPU, None, crowded=True) == reflex(Desired(klass), GPU, None)


@pytest.mark.parametrize(
    ("desired", "reserve", "override"),
    [
        (LOW, 32, None),
        (Desired("low", percent=25), None, None),
        (LOW, None, Override(busy=HOLD)),
        (LOW, None, Override(busy="first:64")),
    ],
)
def test_what_somebody_set_is_not_changed_by_crowding(
    desired: Desired, reserve: int | None, override: Override | None
) -> None:
    assert reflex(desired, GPU, reserve, override, crowded=True) == reflex(desired, GPU, reserve, override)


def test_other_settings_of_the_class_stay_with_the_small_set() -> None:
    made = reflex(LOW, GPU, None, Override(floor_permille=100), crowded=True)
    assert (made.busy, made.floor_permille) == (SMALL, 100)


class TestActiveTime:
    def page(self, **fields: int) -> Counters:
        counters = Counters(bytearray(layout.PAGE_BYTES))
        for name, value in fields.items():
            counters.put(name, value)
        return counters

    def slot(self, **fields: int) -> Slot:
        slot = Activity(bytearray(layout.PAGE_BYTES)).slots[0]
        for name, value in fields.items():
            slot.put(name, value)
        return slot

    def test_what_is_going_on_counts_up_to_now(self) -> None:
        slot = self.slot(active=1, active_since=700, beat=900)
        assert active_ns(slot, self.page(active_ns=50), 1000) == 350

    def test_an_idle_program_has_what_it_had(self) -> None:
        slot = self.slot(active=0, active_since=700, beat=900)
        assert active_ns(slot, self.page(active_ns=50), 1000) == 50

    def test_a_stopped_program_is_active_until_its_last_beat(self) -> None:
        slot = self.slot(active=1, active_since=700, beat=900)
        assert active_ns(slot, self.page(active_ns=50), 900 + layout.BEAT_STALE_NS) == 250


def busy(lane: Lane, pid: int) -> tuple[Tier, bool]:
    view = next(view for view in lane.service.tenants.views() if view.record.pid == pid)
    return view.busy, view.hold


def test_the_daemon_moves_a_crowded_program_and_lets_it_hold_again(lane: Lane) -> None:
    high, low = lane.start(tenant="high"), lane.start(tenant="low")
    for program, klass in ((high, "high"), (low, "low")):
        process = next(v.record.process for v in lane.service.tenants.views() if v.record.pid == program.pid)
        lane.service.policies.change(process, klass=klass)
    assert busy(lane, low.pid) == (FULL, True)
    began = monotonic_ns()

    def work(share: float) -> bool:
        """What the high program's runtime would have counted, had it been active for this share of the time."""
        high.do(f"put active_ns {int((monotonic_ns() - began) * share)}")
        return True

    until(lambda: work(0.95) and busy(lane, low.pid) == (SMALL, False))
    assert any("higher classes are active" in text and "the first 16 SMs" in text for text in lane.events())
    began = monotonic_ns() - int(lane.view(high).counters["active_ns"] / 0.3)
    until(lambda: work(0.3) and busy(lane, low.pid) == (FULL, True))
    assert any("it holds" in text for text in lane.events())
    assert lane.page(low).ahead_us == 0
