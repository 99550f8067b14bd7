# SPDX-License-Identifier: Apache-2.0
"""Standing orders are carried out and taken back; clients older than the module; unloading under load."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CLIENTS, MIB, PID, TRUTH, Hog, family, hog, load, row, truth, unload, vctxs

__all__ = ["family", "hog"]  # fixtures

GR0 = 1
DEFAULT = (2048, 1)


def compute_tsgs() -> list[tuple[int, int]]:
    """(slice in us, level) of each compute channel group, as the simulated GPU has it."""
    header, *lines = (line.split() for line in (TRUTH / "tsgs").read_text().splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    return [(int(each["slice_us"]), int(each["level"])) for each in rows if int(each["engine"]) == GR0]


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    """A process that will keep the GPU busy once it is sent a line; its number stays."""
    words = ["sh", "-c", 'read line; exec "$0" --window 60', str(CLIENTS / "nvbackground")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()
    until(lambda: compute_tsgs() == [])


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert "ready" in process.stdout.readline()


def test_an_order_holds_from_the_first_channel_group_on(family: genl.DetShare, worker: subprocess.Popen[str]) -> None:
    answer = row(family.sched_set(worker.pid, "low", 50, genl.DETSHARE_LEVEL_LOW))
    assert (answer["tsgs_set"], answer["tsgs_failed"]) == (0, 0)
    begin(worker)
    assert compute_tsgs() == [(50, 0)]
    (tsg,) = (row(message) for message in family.tsg_get(worker.pid) if row(message)["compute"])
    assert (tsg["slice_us"], tsg["slice_before_us"], tsg["level"], tsg["managed"]) == (50, DEFAULT[0], 0, 1)
    assert vctxs(family, worker.pid)[0]["class"] == "low"
    answer = row(family.sched_del(worker.pid))
    assert answer["tsgs_set"] == 1
    assert compute_tsgs() == [DEFAULT]
    assert family.sched_get() == ()


def test_an_order_for_a_running_process_can_be_changed_and_taken_back(
    family: genl.DetShare, worker: subprocess.Popen[str]
) -> None:
    begin(worker)
    assert compute_tsgs() == [DEFAULT]
    assert row(family.sched_set(worker.pid, "high", 20000, genl.DETSHARE_LEVEL_HIGH))["tsgs_set"] == 1
    assert compute_tsgs() == [(20000, 2)]
    family.sched_set(worker.pid, "slice", 100, None)
    assert compute_tsgs() == [(100, DEFAULT[1])]
    family.sched_del(worker.pid)
    assert compute_tsgs() == [DEFAULT]


def test_unloading_puts_back_what_was(worker: subprocess.Popen[str]) -> None:
    begin(worker)
    with genl.DetShare() as family:
        family.sched_set(worker.pid, "low", 50, genl.DETSHARE_LEVEL_LOW)
    assert compute_tsgs() == [(50, 0)]
    unload()
    assert compute_tsgs() == [DEFAULT]
    load()


def test_what_an_older_client_holds_is_found_and_limited(hog: Callable[..., Hog]) -> None:
    unload()
    one = hog()
    assert one.take(200)
    load()
    with genl.DetShare() as family:
        family.limit_set(250 * MIB, kind=PID, pid=one.pid)
        assert not one.take(51)
        (found,) = vctxs(family, one.pid)
        assert found["partial"] == 1
        assert found["memory_used"] == 200 * MIB
        assert one.take(50)
        assert truth() == 250 * MIB
        one.say("free")
        assert one.take(250)


def test_unloading_under_load(family: genl.DetShare) -> None:
    """A few rounds; the long run is an experiment of its own (docs/results: unload)."""
    family.close()
    words = [CLIENTS / "nvloop", "--kind", "client", "--batches", "1000", "--calls", "1000"]
    loops = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(4)]
    for _ in range(int(os.environ.get("DETSHARE_ROUNDS", "3"))):
        unload()
        load()
    assert all(loop.poll() is None for loop in loops)
    for loop in loops:
        loop.kill()
        loop.wait()
