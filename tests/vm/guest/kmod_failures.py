# SPDX-License-Identifier: Apache-2.0
"""The driver fails the module's calls, each in turn: nothing is left held, nothing leaks, and it is told once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import row
from tests.vm.guest.nvsim_rm import number, status
from tests.vm.guest.sched_tools import PAUSED, Worker, family, of, progress, run_of, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
FAILING = Path("/sys/kernel/debug/nvsim/failing")
KMSG = Path("/dev/kmsg")
LOW = genl.DETSHARE_LEVEL_LOW
STACK = 1  # in the place of a control: no memory for the call itself
STATUSES = ("NV_ERR_NO_MEMORY", "NV_ERR_INVALID_STATE", "NV_ERR_BUSY_RETRY", "NV_ERR_NOT_SUPPORTED")

STEERING = (
    "NVA06C_CTRL_CMD_GET_TIMESLICE",
    "NVA06C_CTRL_CMD_SET_TIMESLICE",
    "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL",
    "NVA06C_CTRL_CMD_MAKE_REALTIME",
    "NVA06C_CTRL_CMD_PREEMPT",
    "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE",
    "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
    "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS",
    "NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE",
    "NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE",
    "NV2080_CTRL_CMD_GR_GET_GPC_MASK",
    "NV2080_CTRL_CMD_GR_GET_TPC_MASK",
)
ASKING = (
    "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO",
    "NV0041_CTRL_CMD_GET_SURFACE_INFO",
    "NV2080_CTRL_CMD_GPU_GET_GID_INFO",
    "NV2080_CTRL_CMD_FB_GET_INFO_V2",
)


def fail(command: int, code: int, count: int = 0, late: bool = False) -> None:
    FAILING.write_text(f"{command:#x} {code:#x} {count}{' late' if late else ''}")


@contextmanager
def failing(command: int, code: int, late: bool = False) -> Iterator[None]:
    fail(command, code, late=late)
    try:
        yield
    finally:
        fail(command, 0)


def failed(command: int) -> int:
    """How often a call of it was failed."""
    rows = [line.split() for line in FAILING.read_text().splitlines()[1:]]
    return sum(int(each[3]) for each in rows if int(each[0], 16) == command)


class Log:
    """What the module writes to the kernel's log from now on."""

    def __init__(self) -> None:
        self._file = KMSG.open("rb", buffering=0)
        self._file.seek(0, 2)

    def lines(self) -> list[str]:
        os.set_blocking(self._file.fileno(), False)
        found = []
        with suppress(BlockingIOError):
            while line := self._file.read(8192):
                found.append(line.decode(errors="replace").partition(";")[2].splitlines()[0])
        return [line for line in found if line.startswith("detshare:")]

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


def steer(family: genl.DetShare, one: Worker) -> None:
    """All that the module can do to a program; what the driver refuses is answered, not raised."""
    family.sched_set(one.pid, "low", 500, LOW, tpc_percent=50)
    family.hold_set(True, True, 60_000, **of(one))
    with suppress(NetlinkError):
        family.preempt(**of(one))
    time.sleep(0.1)
    family.hold_del(**of(one))
    family.sched_del(one.pid)


def healthy(family: genl.DetShare, one: Worker) -> None:
    """Once the driver answers again, all is as if nothing had been."""
    until(lambda: run_of(family, one)["reasons"] == 0)
    until(lambda: one.off() == 0)
    until(lambda: [(each["slice_us"], each["level"]) for each in one.rows()] == [(2048, 1)])
    until(lambda: progress(one, 0.1) > 0)
    family.hold_set(True, True, 60_000, **of(one))
    until(lambda: run_of(family, one)["state"] == PAUSED)
    family.hold_del(**of(one))
    until(lambda: progress(one, 0.1) > 0)


@pytest.mark.parametrize("name", STEERING)
def test_a_call_that_fails_leaves_nothing_behind(family: genl.DetShare, worker: Workers, log: Log, name: str) -> None:
    one = worker("nvbackground")
    for code in map(status, STATUSES):
        with failing(number(name), code):
            steer(family, one)
        healthy(family, one)
    told = log.lines()
    assert len(told) == len(set(told)), "the same twice"
    assert len(told) <= len(STATUSES)


@pytest.mark.parametrize("off", [True, False], ids=["pause", "resume"])
def test_a_call_that_was_done_though_it_failed(family: genl.DetShare, worker: Workers, off: bool) -> None:
    """Channels go off, or on, and the driver says that they did not: they end as they are wanted, and not twice off."""
    one = worker("nvbackground")
    command = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
    if not off:
        family.hold_set(True, True, 60_000, **of(one))
        assert one.off() == 1
    with failing(command, status("NV_ERR_INVALID_STATE"), late=True):
        if off:
            family.hold_set(True, True, 60_000, **of(one))
        else:
            family.hold_del(**of(one))
        assert failed(command) > 0
    if off:
        until(lambda: run_of(family, one)["state"] == PAUSED)
        assert (one.off(), progress(one, 0.2)) == (1, 0)
        family.hold_del(**of(one))
    until(lambda: one.off() == 0)
    until(lambda: progress(one, 0.1) > 0)


def test_a_resume_that_fails_is_tried_until_it_is_done(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    family.hold_set(True, True, 60_000, **of(one))
    with failing(number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"), status("NV_ERR_INVALID_STATE")):
        family.hold_del(**of(one))
        time.sleep(1)
        assert one.off() == 1
    until(lambda: one.off() == 0)


def test_a_program_that_ends_meanwhile_takes_all_along(family: genl.DetShare, worker: Workers) -> None:
    command = number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS")
    with failing(command, status("NV_ERR_INVALID_STATE")):
        for _ in range(3):
            one = worker("nvbackground")
            family.sched_set(one.pid, "low", 500, LOW)
            family.hold_set(True, True, 60_000, **of(one))
            one.end()
            until(lambda: not family.entity_get())


@pytest.mark.parametrize("name", ASKING)
def test_a_question_that_fails_harms_no_program(family: genl.DetShare, worker: Workers, log: Log, name: str) -> None:
    for code in map(status, STATUSES[:2]):
        with failing(number(name), code):
            one = worker("nvbackground")
            family.sched_set(one.pid, "low", 500, LOW)
            assert [row(each)["gpu"] for each in family.gpu_get()] == [0]
            assert progress(one, 0.2) > 0
            one.end()
    told = log.lines()
    assert len(told) == len(set(told)), "the same twice"


def test_no_memory_for_any_call(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    with failing(STACK, 1):
        steer(family, one)
        assert failed(STACK) > 0
    healthy(family, one)
