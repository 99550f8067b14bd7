# SPDX-License-Identifier: Apache-2.0
"""Orders for cgroups and tenants follow who belongs to them: born there, moved in, moved out, nested, gone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CGROUP, CLIENTS, PID, TENANT, row, vctxs
from tests.vm.guest.sched_tools import LEVEL, PAUSED, SLICE, Worker, family, progress, run_of, tsgs, worker

__all__ = ["family", "worker"]  # fixtures

Workers = Callable[..., Worker]
ROOT = Path("/sys/fs/cgroup")
LOW, HIGH = {"slice_us": 50, "level": genl.DETSHARE_LEVEL_LOW}, {"slice_us": 20_000, "level": genl.DETSHARE_LEVEL_HIGH}


@pytest.fixture
def make() -> Iterator[Callable[[str], Path]]:
    """make(NAME): a cgroup, gone after the test."""
    made: list[Path] = []

    def one(name: str) -> Path:
        folder = ROOT / name
        for each in (*reversed(folder.relative_to(ROOT).parents[:-1]), folder.relative_to(ROOT)):
            if not (ROOT / each).exists():
                (ROOT / each).mkdir()
                made.append(ROOT / each)
        return folder

    yield one
    for folder in reversed(made):
        with suppress(FileNotFoundError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    (ROOT / "cgroup.procs").write_text(pid)
            until(lambda folder=folder: not (folder / "cgroup.procs").read_text())  # type: ignore[misc]
            folder.rmdir()


def move(pid: int, to: Path) -> None:
    (to / "cgroup.procs").write_text(str(pid))


def of(cgroup: Path) -> dict[str, int]:
    return {"kind": CGROUP, "cgroup_id": cgroup.stat().st_ino}


def has(one: Worker, wanted: dict[str, int]) -> bool:
    return [(each["slice_us"], each["level"]) for each in one.rows()] == [(wanted["slice_us"], wanted["level"])]


FOUND = {"slice_us": SLICE, "level": LEVEL}


def test_an_order_of_a_cgroup_is_for_who_is_there_and_who_comes(
    family: genl.DetShare, worker: Workers, make: Callable[[str], Path]
) -> None:
    red = make("red")
    one, other = worker("nvbackground"), worker("nvbackground")
    move(one.pid, red)
    answer = row(family.sched_set(klass="low", **LOW, **of(red)))
    assert (answer["tsgs_set"], answer["tsgs_failed"], answer["processes"]) == (1, 0, 1)
    assert has(one, LOW)
    assert has(other, FOUND)
    assert vctxs(family, one.pid)[0]["class"] == "low"
    move(other.pid, red)
    until(lambda: has(other, LOW))
    move(one.pid, ROOT)
    until(lambda: has(one, FOUND))
    assert "class" not in vctxs(family, one.pid)[0]
    answer = row(family.sched_del(**of(red)))
    assert answer["tsgs_set"] == 1
    assert has(other, FOUND)


def test_who_is_born_there_has_it_from_the_first_channel_group_on(
    family: genl.DetShare, make: Callable[[str], Path]
) -> None:
    red = make("red")
    family.sched_set(klass="low", **LOW, **of(red))
    script = f'echo $$ > {red}/cgroup.procs; "$0" --us 2000 & wait'
    shell = subprocess.Popen(["sh", "-c", script, str(CLIENTS / "nvbackground")], stdout=subprocess.PIPE, text=True)
    try:
        assert shell.stdout is not None
        assert "ready" in shell.stdout.readline()
        assert [(each["slice_us"], each["level"]) for each in tsgs()] == [(50, 0)]
    finally:
        for pid in (red / "cgroup.procs").read_text().split():
            subprocess.run(["kill", "-9", pid], check=False)
        shell.communicate()
    until(lambda: tsgs() == [])


def test_the_nearest_order_holds_and_holds_whole(
    family: genl.DetShare, worker: Workers, make: Callable[[str], Path]
) -> None:
    outer, inner = make("red"), make("red/inner")
    one = worker("nvbackground")
    move(one.pid, inner)
    family.sched_set(klass="low", **LOW, **of(outer))
    assert has(one, LOW)
    family.sched_set(klass="high", slice_us=20_000, **of(inner))
    assert has(one, {"slice_us": 20_000, "level": LEVEL})  # what it leaves out is not taken from the outer one
    family.sched_set(one.pid, "own", 777, None)
    assert has(one, {"slice_us": 777, "level": LEVEL})
    family.sched_del(one.pid)
    assert has(one, {"slice_us": 20_000, "level": LEVEL})
    family.sched_del(**of(inner))
    assert has(one, LOW)
    family.sched_del(**of(outer))
    assert has(one, FOUND)


def test_orders_and_holds_end_with_their_cgroup(
    family: genl.DetShare, worker: Workers, make: Callable[[str], Path]
) -> None:
    red = make("red")
    one = worker("nvbackground")
    move(one.pid, red)
    family.sched_set(klass="low", **LOW, **of(red))
    family.hold_set(gate=True, pause=True, lease_ms=60_000, **of(red))
    assert progress(one) == 0
    move(one.pid, ROOT)
    until(lambda: has(one, FOUND) and one.off() == 0)
    assert progress(one) > 50_000
    red.rmdir()
    until(lambda: family.sched_get() == ())
    until(lambda: family.hold_get() == ())


def test_a_hold_of_a_cgroup_is_for_who_comes(
    family: genl.DetShare, worker: Workers, make: Callable[[str], Path]
) -> None:
    red = make("red/deep")
    one = worker("nvbackground")
    answer = row(family.hold_set(gate=True, pause=True, **of(red.parent)))
    assert (answer["vctxs"], answer["paused"]) == (0, 0)
    move(one.pid, red)
    until(lambda: run_of(family, one)["state"] == PAUSED)
    assert progress(one) == 0
    answer = row(family.hold_del(**of(red.parent)))
    assert (answer["vctxs"], answer["gated"], answer["paused"]) == (1, 0, 0)
    assert progress(one) > 50_000


def test_a_tenant(family: genl.DetShare, worker: Workers) -> None:
    one, other = worker("nvbackground"), worker("nvbackground")
    family.tenant_set("crew", one.pid)
    subject = {"kind": TENANT, "tenant": "crew"}
    assert row(family.sched_set(klass="low", **LOW, **subject))["processes"] == 1
    assert has(one, LOW)
    family.tenant_set("crew", other.pid)
    until(lambda: has(other, LOW))
    family.sched_set(other.pid, "high", 20_000, genl.DETSHARE_LEVEL_HIGH)
    assert has(other, HIGH)
    family.sched_del(other.pid)
    assert has(other, LOW)
    family.tenant_del("crew", one.pid)
    until(lambda: has(one, FOUND))
    family.hold_set(gate=True, pause=False, lease_ms=60_000, **subject)
    family.tenant_del("crew")
    until(lambda: has(other, FOUND))
    assert family.sched_get() == ()
    assert family.hold_get() == ()
    assert family.tenant_get() == ()


def test_a_thousand_moves_lose_nobody(family: genl.DetShare, worker: Workers, make: Callable[[str], Path]) -> None:
    red, blue = make("red"), make("blue")
    one = worker("nvbackground")
    family.sched_set(klass="low", **LOW, **of(red))
    family.sched_set(klass="high", **HIGH, **of(blue))
    for _ in range(100):
        for _ in range(5):
            move(one.pid, red)
            move(one.pid, blue)
        until(lambda: has(one, HIGH))
    move(one.pid, red)
    until(lambda: has(one, LOW))


def test_who_is_named_and_gone_is_forgotten(family: genl.DetShare, worker: Workers) -> None:
    one = worker("nvbackground")
    family.sched_set(one.pid, "low", 50, None)
    family.bucket_set(100_000, kind=PID, pid=one.pid)
    one.end()
    until(lambda: family.sched_get() == ())
    until(lambda: family.bucket_get() == ())
    with pytest.raises(NetlinkError, match="no such process"):
        family.sched_del(one.pid)
