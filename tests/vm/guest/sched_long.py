# SPDX-License-Identifier: Apache-2.0
"""Kernels that outlast the linger time are seen to run and paid for; who is really idle is not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import row
from tests.vm.guest.sched_shares import settled
from tests.vm.guest.sched_tools import (
    ACTIVE,
    IDLE,
    PAUSED,
    Worker,
    family,
    long_run,
    of,
    progress,
    run_of,
    worker,
)

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
SECONDS = 20 if long_run() else 4
TRACING = Path("/sys/kernel/tracing")
TIMERS = TRACING / "events/timer/hrtimer_start"
LOOK = "ds_rotation_scan"
ASK = Path("/sys/module/detshare/parameters/ask_busy")
ENDLESS = ("nvbackground", "--endless")
# the GPU is never idle, and for half the time USERD says that all is fetched
LONG = ("nvbackground", "--us", 30_000, "--depth", 2)


@pytest.fixture
def unasked() -> Iterator[None]:
    """The driver is not asked: what a driver that cannot tell leaves."""
    ASK.write_text("0")
    yield
    ASK.write_text("1")


def bucket(family: genl.DetShare) -> dict[str, int]:
    (told,) = (row(message) for message in family.bucket_get())
    return told


@pytest.mark.parametrize("command", [ENDLESS, LONG], ids=["endless", "30 ms"])
@pytest.mark.parametrize("permille", [100, 300, 700])
def test_a_bucket_caps_long_kernels(
    family: genl.DetShare, worker: Workers, permille: int, command: tuple[object, ...]
) -> None:
    """With the linger time, one millisecond."""
    one = worker(*command)
    family.bucket_set(permille * 1000, permille * 3000, **of(one))
    begin, before, told, level = settled(family, one)
    time.sleep(SECONDS)
    end, after, tells, left = settled(family, one)
    used, came = after - before, permille * 1000 * (end - begin) - (left - level)
    assert used == pytest.approx(tells - told, rel=0.02), "the estimate"
    assert used == pytest.approx(came, rel=0.02), "the rate"


class Looks:
    """How often the module looked at a GPU's programs since, and how many timers it set that were over already."""

    def __init__(self) -> None:
        text = (TRACING / "trace").read_text()
        self.count = text.count(f": {LOOK} <-")
        timers = re.findall(r" (\d+\.\d+): hrtimer_start: .*function=on_timer.* expires=(\d+)", text)
        self.late = sum(int(expires) <= float(now) * 1e9 for now, expires in timers)


@pytest.fixture
def looks() -> Iterator[Callable[[], Looks]]:
    clock = re.findall(r"\[(\w+)\]", (TRACING / "trace_clock").read_text())[0]
    (TRACING / "trace_clock").write_text("mono")
    (TRACING / "set_ftrace_filter").write_text(LOOK)
    (TRACING / "current_tracer").write_text("function")
    (TIMERS / "enable").write_text("1")
    (TRACING / "trace").write_text("")
    yield Looks
    (TIMERS / "enable").write_text("0")
    (TRACING / "current_tracer").write_text("nop")
    (TRACING / "set_ftrace_filter").write_text("")
    (TRACING / "trace_clock").write_text(clock)


@pytest.mark.parametrize("permille", [100, 500])
def test_a_bucket_that_is_about_to_be_empty_is_looked_at_when_there_is_news(
    family: genl.DetShare, worker: Workers, looks: Callable[[], Looks], permille: int
) -> None:
    """Before the driver's answer there is none: it was looked at again at once, and again."""
    one = worker(*ENDLESS)
    family.bucket_set(permille * 1000, permille * 100, **of(one))
    until(lambda: bucket(family)["emptied"] >= 20)
    found = looks()
    assert found.count
    assert found.late < found.count / 4, vars(found)


def test_without_the_drivers_word_an_endless_kernel_escapes(
    unasked: None, family: genl.DetShare, worker: Workers
) -> None:
    one = worker(*ENDLESS)
    family.bucket_set(300_000, 30_000, **of(one))
    assert progress(one, 2) > 1_600_000


def test_who_rests_after_long_kernels_does_not_pay(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 20_000, "--period-ms", 80)
    family.bucket_set(500_000, 500_000, **of(one))
    time.sleep(0.5)
    before, told = one.gpu_us(), bucket(family)["used_us"]
    time.sleep(SECONDS)
    used = one.gpu_us() - before
    tells = bucket(family)
    assert (tells["emptied"], tells["empty"], one.off()) == (0, 0, 0)
    # one kernel more or less between the two readings
    assert tells["used_us"] - told == pytest.approx(used, rel=0.1, abs=20_000)


def test_who_has_ended_its_work_is_idle(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 30_000, "--period-ms", 60_000)
    family.bucket_set(300_000, 300_000, **of(one))
    until(lambda: one.gpu_us() >= 30_000)
    until(lambda: run_of(family, one)["state"] == IDLE)
    told = bucket(family)["used_us"]
    time.sleep(1)
    assert bucket(family)["used_us"] == told
    assert run_of(family, one)["reasons"] == 0


def test_who_has_turns_is_off_while_a_kernel_above_runs(family: genl.DetShare, worker: Workers) -> None:
    family.class_set("high", slice_us=20_000, level=genl.DETSHARE_LEVEL_HIGH)
    family.class_set("low", slice_us=2000, level=genl.DETSHARE_LEVEL_LOW, turn_us=100_000)
    low, high = worker("nvbackground"), worker(*ENDLESS)
    family.sched_set(low.pid, "low")
    family.sched_set(high.pid, "high")
    until(lambda: run_of(family, low)["state"] == PAUSED)
    assert progress(low, 1) == 0
    assert run_of(family, high)["state"] == ACTIVE
    high.end()
    until(lambda: low.off() == 0)
    assert progress(low) > 100_000
