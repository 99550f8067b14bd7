# SPDX-License-Identifier: Apache-2.0
"""Limits hold, whatever way memory is asked for. The truth is the simulated driver's."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import (
    CGROUP,
    CLIENTS,
    INVALID_CLIENT,
    MIB,
    NO_MEMORY,
    PID,
    TENANT,
    Hog,
    family,
    hog,
    leak,
    row,
    truth,
    vctxs,
)

__all__ = ["family", "hog"]  # fixtures


@pytest.fixture
def tenant(family: genl.DetShare) -> Iterator[str]:
    """A tenant that this process belongs to, and so its children."""
    family.tenant_set("red", os.getpid())
    yield "red"
    family.tenant_del("red")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A fresh cgroup v2 with one below it."""
    top = Path("/sys/fs/cgroup/detshare-test")
    (top / "inner").mkdir(parents=True)
    yield top
    for folder in (top / "inner", top):
        until(lambda folder=folder: not (folder / "cgroup.procs").read_text())  # type: ignore[misc]
        folder.rmdir()


def ways(mib: int) -> dict[str, int]:
    """Status by way of asking for that much."""
    done = subprocess.run(
        [CLIENTS / "nvalloc", "ways", "--size", f"{mib}m"], stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["way"]: line["status"] for line in lines if line["event"] == "way"}


def test_every_way_is_refused_at_the_limit_and_granted_below_it(family: genl.DetShare, tenant: str) -> None:
    bare = ways(64)
    granted = {way for way, status in bare.items() if status == 0}
    (stranger,) = (way for way in bare if "not bound" in way)
    assert bare[stranger] == INVALID_CLIENT
    assert len(granted) >= 10
    assert any("DUP" in way for way in granted)
    # the instrumented kernel is built without 32-bit calls
    assert any("32-bit" in way for way in granted) or os.uname().release.endswith("debug")
    assert any("XFER" in way for way in granted)
    assert any("managed" in way for way in granted)
    assert len([way for way in granted if "bound" in way or "by a child" in way]) == 3
    family.limit_set(32 * MIB, kind=TENANT, tenant=tenant)
    (TRUTH_PEAK := Path("/sys/kernel/debug/nvsim/gpu0/peak")).write_text("0")
    refused = ways(64)
    for way in granted:
        # the managed way is refused by mmap, with ENOMEM; nvalloc marks errno by the highest bit
        assert refused[way] == (errno.ENOMEM | 1 << 31 if "managed" in way else NO_MEMORY), way
    assert int(TRUTH_PEAK.read_text()) <= 32 * MIB
    assert refused[stranger] == INVALID_CLIENT  # the driver's own word: the client was neither locked nor charged
    family.limit_set(200 * MIB, kind=TENANT, tenant=tenant)
    # ALLOC_MEMORY shows everybody's memory on a genuine driver: who has a limit does not get it at all
    assert {way for way, status in ways(64).items() if status == 0} == {
        way for way in granted if not way.startswith("ALLOC_MEMORY")
    }
    assert truth() == 0
    assert leak("objects") == 0


def test_a_process_gets_up_to_its_limit_and_not_a_byte_more(family: genl.DetShare, hog: Callable[..., Hog]) -> None:
    one = hog()
    family.limit_set(100 * MIB, kind=PID, pid=one.pid)
    assert one.take(60)
    assert not one.take(50)
    assert one.take(40)
    assert not one.take(1)
    assert truth() == 100 * MIB
    (found,) = vctxs(family, one.pid)
    assert found["memory_used"] == 100 * MIB
    assert found["refused"] == 2
    (limit,) = (row(message) for message in family.limit_get())
    assert (limit["used"], limit["limit"], limit["refused"]) == (100 * MIB, 100 * MIB, 2)
    one.say("free")
    assert one.take(100)


def test_the_driver_shows_the_quota(family: genl.DetShare, hog: Callable[..., Hog]) -> None:
    one = hog()
    whole = one.say("info")["total"]
    family.limit_set(512 * MIB, kind=PID, pid=one.pid)
    assert whole > 512 * MIB
    seen = one.say("info")
    assert (seen["total"], seen["free"]) == (512 * MIB, 512 * MIB)
    assert one.take(200)
    seen = one.say("info")
    assert (seen["total"], seen["free"]) == (512 * MIB, 312 * MIB)
    family.limit_del(kind=PID, pid=one.pid)
    assert one.say("info")["total"] == whole


def test_a_limit_below_the_use_takes_nothing_and_grants_nothing(family: genl.DetShare, hog: Callable[..., Hog]) -> None:
    one = hog()
    assert one.take(200)
    answer = row(family.limit_set(100 * MIB, kind=PID, pid=one.pid))
    assert (answer["used"], answer["limit"]) == (200 * MIB, 100 * MIB)
    assert not one.take(1)
    assert truth() == 200 * MIB
    one.say("free")
    assert one.take(100)
    assert not one.take(1)


def test_the_tightest_of_process_tenant_and_cgroups_holds(
    family: genl.DetShare, cgroup: Path, hog: Callable[..., Hog]
) -> None:
    inner = cgroup / "inner"

    def enter() -> None:
        (inner / "cgroup.procs").write_text("0")

    one, two = hog(preexec_fn=enter), hog(preexec_fn=enter)
    assert vctxs(family, one.pid)[0]["cgroup_id"] == inner.stat().st_ino
    family.limit_set(300 * MIB, kind=CGROUP, cgroup_id=cgroup.stat().st_ino)
    family.limit_set(200 * MIB, kind=CGROUP, cgroup_id=inner.stat().st_ino)
    family.limit_set(150 * MIB, kind=PID, pid=one.pid)
    assert not one.take(151)
    assert one.take(150)
    assert not two.take(51)  # the inner cgroup has 50 left
    assert two.take(50)
    family.tenant_set("blue", two.pid)
    family.limit_set(60 * MIB, kind=TENANT, tenant="blue")
    family.limit_del(kind=CGROUP, cgroup_id=inner.stat().st_ino)
    assert not two.take(11)  # blue counts what two had already
    assert two.take(10)
    used = {row(message)["kind"]: row(message)["used"] for message in family.limit_get()}
    assert used == {PID: 150 * MIB, CGROUP: 210 * MIB, TENANT: 60 * MIB}
    family.tenant_del("blue")
    family.limit_set(400 * MIB, kind=CGROUP, cgroup_id=cgroup.stat().st_ino)
    assert two.take(100)
    family.limit_del(kind=CGROUP, cgroup_id=cgroup.stat().st_ino)


def test_children_belong_to_the_tenant_of_their_parent(
    family: genl.DetShare, tenant: str, hog: Callable[..., Hog]
) -> None:
    family.limit_set(50 * MIB, kind=TENANT, tenant=tenant)
    one = hog()
    assert vctxs(family, one.pid)[0]["tenant"] == tenant
    assert not one.take(51)
    (found,) = (row(message) for message in family.tenant_get())
    assert {os.getpid(), one.pid} <= set(found["pid"])
    family.tenant_del(tenant, one.pid)
    assert one.take(51)


def test_killed_clients_leave_nothing(family: genl.DetShare, hog: Callable[..., Hog]) -> None:
    many = [hog() for _ in range(8)]
    assert all(each.take(10) for each in many)
    assert truth() == 80 * MIB
    for each in many:
        each.process.kill()
    for each in many:
        each.process.wait()
    until(lambda: truth() == 0)
    until(lambda: vctxs(family) == [] and leak("objects") == 0)


def test_limits_end_with_their_process(family: genl.DetShare, hog: Callable[..., Hog]) -> None:
    one = hog()
    family.limit_set(100 * MIB, kind=PID, pid=one.pid)
    one.end()
    assert family.limit_get() == ()
    until(lambda: leak("processes") == 0)


@pytest.mark.parametrize(
    ("limit", "account", "code"),
    [
        (0, {"kind": PID, "pid": os.getpid()}, errno.EINVAL),
        ((1 << 64) - 1, {"kind": PID, "pid": os.getpid()}, errno.ERANGE),
        (MIB, {"kind": PID, "pid": 0}, errno.ESRCH),
        (MIB, {"kind": PID, "pid": (1 << 32) - 1}, errno.ESRCH),
        (MIB, {"kind": PID}, errno.EINVAL),
        (MIB, {"kind": TENANT, "tenant": "nobody"}, errno.ENOENT),
        (MIB, {"kind": CGROUP, "cgroup_id": (1 << 63) + 5}, errno.ENOENT),
        (MIB, {"kind": CGROUP, "cgroup_id": 1}, errno.EINVAL),
        (MIB, {"kind": PID, "pid": os.getpid(), "gpu": 77}, errno.ERANGE),
        (MIB, {"kind": 9, "pid": os.getpid()}, errno.ERANGE),
    ],
)
def test_nonsense_changes_nothing(family: genl.DetShare, limit: int, account: dict[str, int], code: int) -> None:
    with pytest.raises(NetlinkError) as caught:
        family.limit_set(limit, **account)
    assert caught.value.code in (code, errno.EINVAL if code == errno.ERANGE and account.get("kind") == 9 else code)
    assert family.limit_get() == ()


def test_what_is_not_there_cannot_be_taken_away(family: genl.DetShare) -> None:
    for call in (
        lambda: family.limit_del(kind=PID, pid=os.getpid()),
        lambda: family.tenant_del("nobody"),
        lambda: family.sched_del(os.getpid()),
    ):
        with pytest.raises(NetlinkError) as caught:
            call()
        assert caught.value.code == errno.ENOENT
