# SPDX-License-Identifier: Apache-2.0
"""Limits of cgroups follow the processes that are moved. The truth is the simulated driver's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CGROUP, MIB, Hog, family, hog, row, truth, vctxs

__all__ = ["family", "hog"]  # fixtures

ROOT = Path("/sys/fs/cgroup")
LIMITS_MAX = 8  # that a process can have at once


def move(process: Hog, to: Path) -> None:
    (to / "cgroup.procs").write_text(str(process.pid))


def limit(family: genl.DetShare, cgroup: Path, mib: int) -> int:
    """Sets it; MiB used at that moment."""
    return int(row(family.limit_set(mib * MIB, kind=CGROUP, cgroup_id=cgroup.stat().st_ino))["used"]) // MIB


def used(family: genl.DetShare) -> dict[int, int]:
    """MiB used by cgroup."""
    return {each["cgroup_id"]: each["used"] // MIB for each in (row(message) for message in family.limit_get())}


@pytest.fixture
def make() -> Iterator[Callable[[str], Path]]:
    """make(name): a cgroup, gone after the test with all that it has."""
    made: list[Path] = []

    def one(name: str) -> Path:
        folder = ROOT / "detshare-moves" / name
        for each in (*reversed(folder.relative_to(ROOT).parents), folder.relative_to(ROOT)):
            if each != Path() and not (ROOT / each).exists():
                (ROOT / each).mkdir()
                made.append(ROOT / each)
        return folder

    yield one
    for folder in reversed(made):
        if folder.exists():
            until(lambda folder=folder: not (folder / "cgroup.procs").read_text())  # type: ignore[misc]
            folder.rmdir()


@pytest.fixture(autouse=True)
def nothing_is_left(family: genl.DetShare) -> Iterator[None]:
    yield
    for message in family.limit_get():
        family.limit_del(kind=CGROUP, cgroup_id=row(message)["cgroup_id"])


def test_the_next_allocation_is_decided_where_the_process_is(
    family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]
) -> None:
    red, one = make("red"), hog()
    assert one.take(100)
    assert limit(family, red, 150) == 0
    move(one, red)
    assert not one.take(51)
    assert one.take(50)
    move(one, ROOT)
    assert one.take(52)
    assert truth() == 202 * MIB
    assert used(family) == {red.stat().st_ino: 0}


def test_what_a_process_holds_moves_with_it_past_any_limit(
    family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]
) -> None:
    red, blue, one, two = make("both/red"), make("both/blue"), hog(), hog()
    for cgroup, mib in ((red, 150), (blue, 120), (red.parent, 200)):
        limit(family, cgroup, mib)
    move(one, red)
    move(two, blue)
    assert one.take(140)
    assert two.take(20)
    assert [used(family)[each.stat().st_ino] for each in (red, blue, red.parent)] == [140, 20, 160]
    move(one, blue)
    assert [used(family)[each.stat().st_ino] for each in (red, blue, red.parent)] == [0, 160, 160]
    assert vctxs(family, one.pid)[0]["cgroup_id"] == blue.stat().st_ino
    assert not one.take(1)
    assert not two.take(1)
    two.end()
    until(lambda: truth() == 140 * MIB)
    one.say("free")
    assert one.take(120)
    assert not one.take(1)


def test_a_new_limit_counts_who_came_before_it(
    family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]
) -> None:
    red, one = make("red"), hog()
    assert one.take(100)
    move(one, red)
    assert limit(family, red, 50) == 100
    assert not one.take(1)


def test_no_depth_is_out_of_reach(family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]) -> None:
    deep = make("/".join(["red"] * 24))
    top = deep.parents[22]
    one = hog()
    assert limit(family, top, 50) == 0
    move(one, deep)
    assert not one.take(51)
    assert one.take(50)


def test_where_too_many_limits_are_meant_nothing_is_granted(
    family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]
) -> None:
    deep = make("/".join(["red"] * (LIMITS_MAX + 1)))
    one = hog()
    assert one.take(10)
    for folder in itertools.islice((deep, *deep.parents), LIMITS_MAX + 1):
        limit(family, folder, 100)
    move(one, deep)
    assert not one.take(1)
    assert truth() == 10 * MIB
    move(one, deep.parent)
    assert one.take(90)
    assert not one.take(1)
    move(one, deep)
    one.say("free")
    assert not one.take(1)
    move(one, ROOT)
    assert one.take(200)


def test_limits_end_with_their_cgroup(
    family: genl.DetShare, make: Callable[[str], Path], hog: Callable[..., Hog]
) -> None:
    red, one = make("red"), hog()
    move(one, red)
    assert one.take(10)
    limit(family, red, 100)
    move(one, ROOT)
    red.rmdir()
    assert used(family) == {}
    assert one.take(100)
