# SPDX-License-Identifier: Apache-2.0
"""Answers of the driver about who is idle count for nothing once a pause or a launch has overtaken the question."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import PID, row
from tests.vm.guest.nvsim_rm import Rm, number
from tests.vm.guest.nvsim_steering import close, running
from tests.vm.guest.nvsim_tools import rm
from tests.vm.guest.nvsim_work import ENDLESS
from tests.vm.guest.sched_shares import settled
from tests.vm.guest.sched_tools import Worker, family, gpu_times, of, worker

__all__ = ["family", "rm", "worker"]  # fixtures

WAITING = Path("/sys/kernel/debug/nvsim/waiting")
QUESTION = number("NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS")
PAUSE = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
SECONDS = 2
MUCH_US = 10_000_000  # a burst that no test uses up
ME = {"kind": PID, "pid": os.getpid()}


@contextmanager
def waiting(command: int, before_ms: int = 0, after_ms: int = 0) -> Iterator[None]:
    """Each call of it is done so late, and answered so late after that."""
    WAITING.write_text(f"{command:#x} {before_ms} {after_ms}")
    try:
        yield
    finally:
        WAITING.write_text(f"{command:#x} 0 0")


def let_alone() -> int:
    """How often the kernel log says so of the driver."""
    told = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return told.count("the driver is not asked on GPU 0 for")


def calls(command: int) -> tuple[int, int, int]:
    """How many of it have begun, are done, are answered."""
    rows = [list(map(int, line.split()[1:])) for line in WAITING.read_text().splitlines() if f"{command:#x}" in line]
    ((begun, done, answered),) = rows
    return begun, done, answered


def is_paid_for(family: genl.DetShare, subject: dict[str, int]) -> bool:
    """Does what runs empty a bucket? One that holds more than what is charged late."""
    family.bucket_set(300_000, 500_000, **subject)
    before = row(family.bucket_get()[0])["emptied"]
    return until(lambda: row(family.bucket_get()[0])["emptied"] > before)


def test_a_question_in_the_midst_of_a_pause(family: genl.DetShare, worker: Callable[..., Worker]) -> None:
    """The driver says of channels that are off: idle. Who is believed to be is asked about no more and pays nothing."""
    one = worker("nvbackground", "--endless")
    with waiting(PAUSE, after_ms=50):
        family.bucket_set(300_000, 100_000, **of(one))
        begin, before, _, _ = settled(family, one)
        time.sleep(SECONDS)
        end, after, _, _ = settled(family, one)
    assert after - before <= 0.35e6 * (end - begin)


def test_a_pause_overtakes_a_question(family: genl.DetShare, worker: Callable[..., Worker]) -> None:
    one = worker("nvbackground", "--endless")
    with waiting(QUESTION, before_ms=900), waiting(PAUSE, after_ms=1500), ThreadPoolExecutor(1) as beside:
        family.bucket_set(300_000, MUCH_US, **of(one))
        until(lambda: calls(QUESTION)[0] > 0)
        asked = beside.submit(family.hold_set, gate=False, pause=True, **of(one))
        until(lambda: one.off() > 0)
        assert calls(QUESTION) == (1, 0, 0), "the pause came late"
        asked.result()
        assert calls(QUESTION)[2] > 0
    family.hold_del(**of(one))
    assert is_paid_for(family, of(one))


def test_a_launch_overtakes_an_answer(family: genl.DetShare, rm: Rm) -> None:
    """What the driver says of the time before it is no answer about the kernel that runs since."""
    (channel,), bell = running(rm)
    channel.compute()
    with waiting(QUESTION, after_ms=900):
        family.bucket_set(300_000, MUCH_US, **ME)
        until(lambda: calls(QUESTION)[1] > 0)
        channel.submit(bell, ENDLESS)
        assert calls(QUESTION) == (1, 1, 0), "the launch came late"
        until(lambda: calls(QUESTION)[2] > 0)
    assert is_paid_for(family, ME)
    close([channel], bell)


def test_who_makes_the_driver_slow_blinds_nobody_for_good(family: genl.DetShare, worker: Callable[..., Worker]) -> None:
    """Three slow answers, and the driver is let alone for 10 s (what runs is paid for), then believed again."""
    one = worker("nvbackground", "--endless")
    with waiting(QUESTION, after_ms=1100):
        family.bucket_set(300_000, MUCH_US, **of(one))
        until(lambda: calls(QUESTION)[2] >= 3)
        time.sleep(1)
        begun, before = calls(QUESTION)[0], row(family.bucket_get()[0])["used_us"]
        time.sleep(SECONDS)
        used = row(family.bucket_get()[0])["used_us"] - before
        assert calls(QUESTION)[0] == begun, "it is still asked"
        assert used >= SECONDS * 500_000, "it runs for nothing"
    WAITING.write_text(f"{QUESTION:#x} 0 1")
    assert until(lambda: calls(QUESTION)[2] > 0), "it is not asked again"
    WAITING.write_text(f"{QUESTION:#x} 0 0")
    assert is_paid_for(family, of(one))


def test_turns_go_on_while_the_driver_is_let_alone(family: genl.DetShare, worker: Callable[..., Worker]) -> None:
    """Two that are taken for idle have slices shorter than a switch, and never get on."""
    family.class_set("low", slice_us=50, level=genl.DETSHARE_LEVEL_LOW, turn_us=100_000, turn_rank=1)
    members = [worker("nvbackground", "--endless") for _ in range(2)]
    said = let_alone()
    with waiting(QUESTION, after_ms=1100):
        for each in members:
            family.sched_set(each.pid, "low")
        until(lambda: let_alone() > said)
        begun, before = calls(QUESTION)[0], gpu_times(*members)
        until(lambda: all(now - was > 500_000 for now, was in zip(gpu_times(*members), before, strict=True)))
        assert calls(QUESTION)[0] == begun, "it is still asked"
