# SPDX-License-Identifier: Apache-2.0
"""Gates and pauses by order: what is held stands still, leases end, and nothing stays off."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import ended, until
from tests.vm.guest.kmod_tools import load, row, unload
from tests.vm.guest.nvsim_rm import number
from tests.vm.guest.sched_answers import waiting
from tests.vm.guest.sched_tools import GATED, ORDER, PAUSED, Worker, family, of, progress, run_of, runs, tsgs, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]


def test_a_pause_stops_what_runs_and_resume_goes_on(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 2000)
    other = worker("nvbackground", "--us", 2000)
    answer = row(family.hold_set(gate=False, pause=True, **of(one)))
    assert (answer["vctxs"], answer["paused"], answer["failed"]) == (1, 1, 0)
    assert one.off() == run_of(family, one)["channels_off"] >= 1
    assert progress(one) == 0
    assert progress(other) > 100_000
    assert run_of(family, one)["state"] == PAUSED
    family.hold_del(**of(one))
    assert one.off() == 0
    assert progress(one) > 50_000
    assert family.hold_get() == ()


def test_off_twice_is_off_once(family: genl.DetShare, worker: Workers) -> None:
    """The driver counts. Two programs once hung for good because somebody did not."""
    one = worker("nvbackground")
    for _ in range(3):
        family.hold_set(gate=False, pause=True, **of(one))
    off = one.off()
    assert off >= 1
    family.hold_set(gate=True, pause=True, **of(one))
    assert one.off() == off
    family.hold_del(**of(one))
    assert one.off() == 0
    assert progress(one) > 100_000


def test_a_gate_lets_what_is_queued_go_on_and_keeps_new_work_out(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 500, "--period-ms", 5)
    until(lambda: progress(one, 0.1) > 0)
    answer = row(family.hold_set(gate=True, pause=False, **of(one)))
    assert (answer["gated"], answer["paused"]) == (1, 0)
    time.sleep(0.1)
    assert progress(one) == 0
    assert one.off() == 0
    found = run_of(family, one)
    assert (found["state"], found["reasons"], found["waiting"]) == (GATED, ORDER, 1)
    family.hold_del(**of(one))
    assert progress(one) > 5_000


def test_the_end_of_a_lease_lets_go(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    family.hold_set(gate=True, pause=True, lease_ms=1500, **of(one))
    assert progress(one, 0.2) == 0
    # asking again renews it, and may ask for something else
    family.hold_set(gate=True, pause=True, lease_ms=3000, **of(one))
    time.sleep(1.6)
    assert progress(one, 0.2) == 0
    assert row(family.hold_get()[0])["lease_ms"] < 1500
    until(lambda: family.hold_get() == () and one.off() == 0)
    assert progress(one) > 100_000


def test_holds_outlive_who_asked_but_not_their_lease(worker: Workers) -> None:
    """A daemon that dies leaves nothing held."""
    one = worker("nvbackground")
    child = os.fork()
    if not child:
        with genl.DetShare() as made:
            made.hold_set(gate=True, pause=True, lease_ms=2000, **of(one))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert progress(one, 0.2) == 0
    until(lambda: one.off() == 0)
    assert progress(one) > 100_000


def test_what_is_made_while_paused_is_paused(family: genl.DetShare, worker: Workers) -> None:
    """A program whose number is known begins its GPU work while it is held: its first channel is off from birth."""
    import subprocess

    from tests.vm.guest.kmod_tools import CLIENTS

    shell = subprocess.Popen(
        ["sh", "-c", 'read line; exec "$0" --us 2000', str(CLIENTS / "nvbackground")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        subject = {"kind": genl.DETSHARE_KIND_PID, "pid": shell.pid}
        answer = row(family.hold_set(gate=False, pause=True, **subject))
        assert answer["vctxs"] == 0
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write("\n")
        shell.stdin.flush()
        # its channels are off from birth, and to schedule them has to wait
        until(lambda: [each["off"] for each in tsgs()] == [each["channels"] for each in tsgs()] == [1])
        time.sleep(0.3)
        assert tsgs()[0]["gpu_time_us"] == 0
        family.hold_del(**subject)
        assert "ready" in shell.stdout.readline()
        assert tsgs()[0]["off"] == 0
        until(lambda: tsgs()[0]["gpu_time_us"] > 10_000)
    finally:
        shell.kill()
        shell.communicate()
    until(lambda: tsgs() == [])


def test_who_shares_a_channel_group_is_not_paused(family: genl.DetShare, worker: Workers) -> None:
    """Under MPS pausing one client's channels hung the other; the gate may still be shut."""
    server = worker("nvbackground", "--share")
    client = worker("nvbackground", "--join", f"{server.ready['client']}:{server.ready['tsg']}")
    for each in (server, client):
        with pytest.raises(NetlinkError) as refused:
            family.hold_set(gate=False, pause=True, **of(each))
        assert refused.value.code == errno.EOPNOTSUPP
        answer = row(family.hold_set(gate=True, pause=True, **of(each)))
        assert (answer["gated"], answer["paused"], answer["failed"]) == (1, 0, 1)
        assert "MPS" in answer["why"]
        family.hold_del(**of(each))
    assert {each["off"] for each in tsgs()} == {0}
    assert {each["hung"] for each in tsgs()} == {0}


def test_a_gate_stays_shut_until_the_pause_in_its_place_is_there(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvlatency", "--us", 500, "--period-ms", 5)
    until(lambda: progress(one, 0.1) > 0)
    family.hold_set(gate=True, pause=False, lease_ms=60_000, **of(one))
    until(lambda: run_of(family, one)["waiting"] == 1 and progress(one, 0.1) == 0)
    before = one.gpu_us()
    with waiting(number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"), before_ms=1000):
        answer = row(family.hold_set(gate=False, pause=True, lease_ms=60_000, **of(one)))
    assert one.gpu_us() == before
    assert (answer["gated"], answer["paused"], answer["failed"]) == (0, 1, 0)
    assert run_of(family, one)["state"] == PAUSED
    family.hold_del(**of(one))
    until(lambda: progress(one, 0.1) > 0)


def refused_pause(family: genl.DetShare, worker: Worker, lease_ms: int) -> None:
    with pytest.raises(NetlinkError) as refused:
        family.hold_set(gate=False, pause=True, lease_ms=lease_ms, **of(worker))
    assert refused.value.code == errno.EOPNOTSUPP


def sharing(worker: Workers) -> Worker:
    """One whose channel group another process shares."""
    one = worker("nvbackground", "--share")
    worker("nvbackground", "--join", f"{one.ready['client']}:{one.ready['tsg']}")
    return one


# one that is shorter than its own answer takes, and one that is longer than what stands
@pytest.mark.parametrize("lease_ms", [1, 60_000])
def test_a_refused_pause_leaves_what_stood(family: genl.DetShare, worker: Workers, lease_ms: int) -> None:
    one = sharing(worker)
    family.hold_set(gate=True, pause=False, lease_ms=4000, **of(one))
    refused_pause(family, one, lease_ms)
    (left,) = map(row, family.hold_get())
    assert (left["gate"], left["pause"]) == (1, 0)
    assert left["lease_ms"] <= 4000
    found = run_of(family, one)
    assert (found["state"], found["reasons"]) == (GATED, ORDER)
    until(lambda: family.hold_get() == () and not run_of(family, one)["reasons"])
    # nothing stood; a lease that is over before the answer is there ends such a pause, which is not refused then
    refused_pause(family, one, 60_000)
    assert family.hold_get() == ()
    assert run_of(family, one)["reasons"] == 0


@pytest.mark.parametrize("last", ["set", "del"])
def test_refused_pauses_change_nothing_that_others_did_meanwhile(
    family: genl.DetShare, worker: Workers, last: str
) -> None:
    one = sharing(worker)

    def refuse() -> None:
        with genl.DetShare() as own:
            for _ in range(5):
                # one that is removed before its answer is there is not refused
                with suppress(NetlinkError):
                    own.hold_set(gate=False, pause=True, lease_ms=60_000, **of(one))

    for _ in range(20):
        rivals = [threading.Thread(target=refuse) for _ in range(2)]
        for each in rivals:
            each.start()
        for word in ("set", "del") if last == "del" else ("set", "del", "set"):
            if word == "set":
                family.hold_set(gate=True, pause=False, lease_ms=30_000, **of(one))
            else:
                family.hold_del(**of(one))
        for each in rivals:
            each.join()
        holds = [(each["gate"], each["pause"]) for each in map(row, family.hold_get())]
        assert holds == ([(1, 0)] if last == "set" else [])
    assert run_of(family, one)["reasons"] == (ORDER if last == "set" else 0)


@pytest.mark.parametrize("gate", [False, True], ids=["paused", "paused-gated"])
def test_a_held_program_can_be_killed(family: genl.DetShare, worker: Workers, gate: bool) -> None:
    one = worker("nvbackground")
    family.hold_set(gate=gate, pause=True, **of(one))
    one.process.kill()
    ended(one.process)
    until(lambda: runs(family) == [] and tsgs() == [])
    # the hold goes with whom it was for
    until(lambda: family.hold_get() == ())


def test_preempt_takes_what_runs_off_once(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground", "--us", 5000)
    before = one.rows()[0]["preempts"]
    answer = row(family.preempt(**of(one)))
    assert (answer["tsgs_set"], answer["tsgs_failed"]) == (1, 0)
    assert one.rows()[0]["preempts"] == before + 1
    assert progress(one) > 100_000


def test_unloading_lets_everybody_go(worker: Workers) -> None:
    one, other = worker("nvbackground"), worker("nvlatency")
    with genl.DetShare() as made:
        made.hold_set(gate=True, pause=True, lease_ms=60_000, **of(one))
        made.hold_set(gate=True, pause=False, lease_ms=60_000, **of(other))
        assert one.off() >= 1
    unload()
    try:
        assert one.off() == 0
        assert progress(one) > 50_000
        assert progress(other) > 1_000
    finally:
        load()
