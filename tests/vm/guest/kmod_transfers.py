# SPDX-License-Identifier: Apache-2.0
"""Memory that lives on without its handle stays charged until the driver lets go of it. nvsim tells the truth."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import (
    CLIENTS,
    LEAKS,
    MIB,
    MODULE,
    NO_MEMORY,
    PID,
    TENANT,
    TRUTH,
    Hog,
    family,
    leak,
    row,
    truth,
    vctxs,
)

__all__ = ["family"]  # fixture

WAYS = ["uvm", "export", "dmabuf", "fabric"]


class Keeper(Hog):
    """An nvkeep: a process that keeps memory without handles as told."""

    program = "nvkeep"

    def keep(self, way: str, mib: int) -> bool:
        """False: refused as the driver refuses."""
        answer = self.say(f"{way} {mib * MIB}")
        assert answer["status"] in (0, NO_MEMORY), answer
        return bool(answer["status"] == 0)

    def take_from(self, other: Keeper, descriptor: int) -> bool:
        answer = self.say(f"import {other.pid} {descriptor}")
        assert answer["status"] in (0, NO_MEMORY), answer
        return bool(answer["status"] == 0)

    def close(self) -> None:
        assert self.say("close")["kept"] == 0


@pytest.fixture
def keeper() -> Iterator[Callable[[], Keeper]]:
    """keeper(): a Keeper that ends with the test; after it nothing may be left."""
    made: list[Keeper] = []

    def make() -> Keeper:
        made.append(Keeper())
        return made[-1]

    yield make
    for each in made:
        each.end()
    until(lambda: truth() == 0 and all(leak(name) == 0 for name in ("objects", "clients", "shadows", "memrefs")))


def used(family: genl.DetShare, kind: int = PID) -> int:
    (limit,) = (entry for entry in map(row, family.limit_get()) if entry["kind"] == kind)
    return int(limit["used"])


def shown(family: genl.DetShare, pid: int) -> int:
    return sum(int(vctx["memory_used"]) for vctx in vctxs(family, pid))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_without_a_handle_counts_until_it_is_let_go(
    family: genl.DetShare, keeper: Callable[[], Keeper], way: str
) -> None:
    one = keeper()
    family.limit_set(64 * MIB, kind=PID, pid=one.pid)
    (TRUTH / "peak").write_text("0")
    for _ in range(3):
        assert [one.keep(way, 16) for _ in range(6)] == [True] * 4 + [False] * 2
        assert truth() == used(family) == shown(family, one.pid) == 64 * MIB
        one.close()
        assert truth() == used(family) == shown(family, one.pid) == 0
        assert leak("memrefs") == 0
    assert truth("peak") == 64 * MIB
    assert one.keep("alloc", 64)


@pytest.mark.parametrize("way", WAYS)
def test_killed_keepers_leave_nothing(family: genl.DetShare, keeper: Callable[[], Keeper], way: str) -> None:
    many = [keeper() for _ in range(3)]
    family.tenant_set("red", many[0].pid)
    family.tenant_set("red", many[1].pid)
    family.limit_set(128 * MIB, kind=TENANT, tenant="red")
    assert all(each.keep(way, 16) for each in many for _ in range(2))
    assert truth() == 96 * MIB
    assert used(family, TENANT) == 64 * MIB
    (tenant,) = map(row, family.tenant_get())
    assert tenant["used"] == 64 * MIB
    for each in many:
        each.process.kill()
    for each in many:
        each.process.wait()
    until(lambda: truth() == 0 and used(family, TENANT) == 0)
    assert [leak(name) for name in ("memrefs", "objects", "clients")] == [0, 0, 0]
    family.tenant_del("red")
    until(lambda: leak("processes") == 0)


def test_one_allocation_used_in_every_way_counts_once(family: genl.DetShare, keeper: Callable[[], Keeper]) -> None:
    one = keeper()
    family.limit_set(64 * MIB, kind=PID, pid=one.pid)
    assert [one.keep("share", 32) for _ in range(3)] == [True, True, False]
    assert truth() == used(family) == 64 * MIB
    one.close()
    assert truth() == used(family) == 0


def test_an_export_outlives_its_client_and_stays_charged(family: genl.DetShare, keeper: Callable[[], Keeper]) -> None:
    """The descriptor goes to another process, which keeps it open after the first has died."""
    one, two = keeper(), keeper()
    family.tenant_set("red", one.pid)
    family.limit_set(64 * MIB, kind=TENANT, tenant="red")
    descriptor = one.say(f"export {32 * MIB}")["fd"]
    assert two.take_from(one, descriptor)
    one.end()
    # red's part ends with its file; the importer is no tenant's
    until(lambda: used(family, TENANT) == 0)
    assert truth() == shown(family, two.pid) == 32 * MIB
    two.close()
    assert truth() == 0
    family.tenant_del("red")


def test_who_imports_pays(family: genl.DetShare, keeper: Callable[[], Keeper]) -> None:
    one, two = keeper(), keeper()
    family.limit_set(40 * MIB, kind=PID, pid=two.pid)
    descriptors = [one.say(f"export {16 * MIB}")["fd"] for _ in range(3)]
    assert [two.take_from(one, each) for each in descriptors] == [True, True, False]
    assert used(family) == 32 * MIB
    assert two.take_from(one, descriptors[0])  # what it has already costs nothing
    assert used(family) == 32 * MIB
    assert not two.keep("alloc", 16)
    one.close()
    assert truth() == used(family) == 32 * MIB
    two.close()
    assert truth() == used(family) == 0
    assert two.keep("alloc", 40)


def test_places_of_a_descriptor_are_followed_one_by_one(family: genl.DetShare, keeper: Callable[[], Keeper]) -> None:
    one, two = keeper(), keeper()
    family.limit_set(64 * MIB, kind=PID, pid=one.pid)
    family.limit_set(24 * MIB, kind=PID, pid=two.pid)

    def place(mib: int, descriptor: int, index: int) -> tuple[int, int]:
        answer = one.say(f"place {mib * MIB} {descriptor} {index}")
        return answer["status"], answer["fd"]

    def charged(who: Keeper) -> int:
        (limit,) = (entry for entry in map(row, family.limit_get()) if entry["pid"] == who.pid)
        return int(limit["used"]) // MIB

    status, descriptor = place(16, -1, 0)
    assert status == 0
    assert place(8, descriptor, 2)[0] == 0
    assert place(32, descriptor, 7)[0] == 0
    assert place(32, descriptor, 3)[0] == NO_MEMORY
    assert place(2, descriptor, 8)[0] not in (0, NO_MEMORY)  # there are 8 places
    assert truth() // MIB == charged(one) == 56
    assert two.say(f"import-places {one.pid} {descriptor} 0 4")["status"] == 0
    assert charged(two) == 24
    assert two.say(f"import-places {one.pid} {descriptor} 4 4")["status"] == NO_MEMORY
    assert charged(two) == 24
    assert place(4, descriptor, 0)[0] == 0  # what was there is free, but two has it still
    assert (charged(one), truth() // MIB) == (44, 60)
    assert place(0, descriptor, 7)[0] == 0
    assert (charged(one), truth() // MIB) == (12, 28)
    two.close()
    assert (charged(one), charged(two), truth() // MIB) == (12, 0, 12)
    one.close()
    assert truth() == charged(one) == 0


def test_a_limit_that_comes_later_counts_what_is_kept(family: genl.DetShare, keeper: Callable[[], Keeper]) -> None:
    one = keeper()
    for way in WAYS:
        assert one.keep(way, 16)
    assert row(family.limit_set(80 * MIB, kind=PID, pid=one.pid))["used"] == 64 * MIB
    assert one.keep("alloc", 16)
    assert not one.keep("alloc", 2)
    family.limit_del(kind=PID, pid=one.pid)
    assert one.keep("alloc", 16)


def test_every_way_to_keep_is_hooked() -> None:
    hooks = (LEAKS / "hooks").read_text().split("\n")
    assert not [name for name in hooks if "missing" in name]
    assert "nvidia:nvUvmInterfaceDupMemory" in hooks


@pytest.mark.parametrize("way", ["mapped", "exported", "imported"])
def test_a_handle_freed_under_way_gives_nothing_away(family: genl.DetShare, way: str) -> None:
    """Never above the limit, and afterwards exactly nothing is charged."""
    family.tenant_set("red", os.getpid())
    family.limit_set(64 * MIB, kind=TENANT, tenant="red")
    (TRUTH / "peak").write_text("0")
    done = subprocess.run(
        [CLIENTS / "nvattack", "--ways", way, "--threads", "6", "--seconds", "4", "--fill", "40m", "--slack", "24m"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    (line,) = [entry for entry in map(json.loads, done.stdout.splitlines()) if "way" in entry]
    assert line["granted"] > 100
    assert truth("peak") <= 64 * MIB
    until(lambda: truth() == 0 and used(family, TENANT) == 0 and leak("memrefs") == 0)
    family.tenant_del("red")


def test_the_module_can_go_while_memory_is_kept(keeper: Callable[[], Keeper]) -> None:
    one = keeper()
    for way in WAYS:
        assert one.keep(way, 16)
    subprocess.run(["rmmod", "detshare"], check=True)
    one.close()
    assert truth() == 0
    assert one.keep("uvm", 16)
    subprocess.run(["insmod", MODULE], check=True)
    one.close()
    assert truth() == 0
