# SPDX-License-Identifier: Apache-2.0
"""What a killed program has on the GPU outlives it: here /dev/zero stands for the driver's device files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from spatial_lane import Lane, Program

from detshare.runtime import board_layout as layout
from detshare.runtime import descriptors, leaving
from detshare.runtime.board import Counters
from detshare.runtime.descriptors import Descriptors
from tests.patience import until

HELD = "/dev/zero"


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "DEVICES", HELD)
    monkeypatch.setattr(leaving, "LEAST", 0.5)


def ours() -> int:
    """Descriptors of the device file in this process; another thread may close one of its others in mid-list."""
    held = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            held += os.readlink(f"/proc/self/fd/{name}") == HELD
    return held


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    """Has two such descriptors, and becomes `sleep` at a line."""
    code = f"""
import os, sys
kept = [os.open("{HELD}", os.O_RDWR | os.O_CLOEXEC) for _ in range(2)]
print("ready", flush=True)
sys.stdin.readline()
os.execvp("sleep", ["sleep", "60"])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_duplicates_outlive_the_program_and_are_given_back(program: subprocess.Popen[str]) -> None:
    pidfd = os.pidfd_open(program.pid)
    kept = Descriptors(program.pid, pidfd)
    kept.take()
    kept.take()  # what is had twice is had once
    assert (len(kept), ours()) == (2, 2)
    assert not kept.let_go
    program.kill()
    program.wait()
    assert ours() == 2
    with pytest.raises(FileNotFoundError):
        kept.take()
    assert ours() == 2
    kept.close()
    kept.close()
    assert ours() == 0
    os.close(pidfd)


def test_a_program_that_becomes_another_lets_go(program: subprocess.Popen[str]) -> None:
    pidfd = os.pidfd_open(program.pid)
    kept = Descriptors(program.pid, pidfd)
    kept.take()
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()
    until(lambda: kept.let_go)
    kept.close()
    os.close(pidfd)


@pytest.mark.parametrize(("bucket", "seconds"), [(None, 2.0), (20, 2.0), (31, 2 * 2**32 / 1e9)])
def test_the_longest_time_that_was_seen_bounds_the_wait(
    monkeypatch: pytest.MonkeyPatch, bucket: int | None, seconds: float
) -> None:
    monkeypatch.setattr(leaving, "LEAST", 2.0)
    counters = Counters(bytearray(layout.PAGE_BYTES))
    if bucket is not None:
        counters.put("hist_graph", 1, bucket)
    assert leaving.seconds_for(counters) == pytest.approx(seconds)


def with_descriptor(lane: Lane) -> Program:
    program = lane.start()
    program.do("open " + HELD)
    tenant = next(t for t in lane.service.tenants._tenants.values() if t.record.pid == program.pid)
    lane.service.tenants.keep(tenant)
    until(lambda: ours() == 1)
    return program


def test_a_program_killed_in_mid_work_keeps_its_gates_closed_until_its_kernels_ended(lane: Lane) -> None:
    program = with_descriptor(lane)
    slot = lane.service.directory.activity(lane.view(program).record.gpu.uuid, False).slots[0]
    program.do("put in_flight 3")
    begin = time.monotonic()
    program.end()
    until(lambda: len(lane.service.tenants.leaving) == 1)
    assert slot.get("state") == layout.SLOT_LEAVING
    assert slot.held
    assert slot.get("active") == 0
    until(lambda: ours() == 1)
    assert lane.service.tenants.views() == []
    assert lane.start().slot == 1  # its place is not free yet
    until(lambda: ours() == 0)
    assert time.monotonic() - begin >= 0.5
    assert slot.get("state") == layout.SLOT_FREE
    assert slot.get("word") == 0
    assert any("on the GPU is kept for 0.5 s" in text for text in lane.events())


def test_a_program_that_ends_at_rest_is_gone_at_once(lane: Lane) -> None:
    program = with_descriptor(lane)
    program.end()
    until(lambda: lane.service.tenants.views() == [])
    assert len(lane.service.tenants.leaving) == 0
    assert ours() == 0


def test_an_exec_ends_what_the_program_had(lane: Lane) -> None:
    program = with_descriptor(lane)
    program.do("close")
    until(lambda: lane.service.tenants.views() == [])
    assert ours() == 0


def test_who_may_not_be_asked_runs_on_and_it_is_said(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pidfd: int, _fd: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(descriptors, "getfd", refuse)
    program = lane.start()
    program.do("open " + HELD)
    tenant = next(iter(lane.service.tenants._tenants.values()))
    lane.service.tenants.keep(tenant)
    assert any("its neighbours may be lost" in text for text in lane.events())
    program.do("put in_flight 3")
    program.end()
    until(lambda: lane.service.tenants.views() == [])
    assert len(lane.service.tenants.leaving) == 0


def test_the_daemons_end_leaves_kernels_their_time_where_others_live(lane: Lane) -> None:
    lane.start()
    program = with_descriptor(lane)
    program.do("put in_flight 3")
    program.end()
    until(lambda: len(lane.service.tenants.leaving) == 1)
    begin = time.monotonic()
    lane.service.close()
    assert time.monotonic() - begin > 0.2
    assert ours() == 0


def test_another_daemon_has_the_descriptors_again(lane: Lane) -> None:
    with_descriptor(lane)
    lane.again()
    until(lambda: ours() == 1)
