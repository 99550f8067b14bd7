# SPDX-License-Identifier: Apache-2.0
"""RM objects out of the recorder's lines, and their comparison with what the observer told."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from detshare.ebpf.world import ObjectChange
from detshare.tools.bench.ebpf import objects
from detshare.tools.bench.ebpf.trees import Recorded, differences, replay

CLIENT, OTHER, DEVICE, CHILD = 0xC1D00001, 0xC1D00002, 0x5C000001, 0x5C000002


def call(escape: int, block: bytes, fd: int = 3, ret: int = 0) -> dict[str, Any]:
    return {"fd": fd, "path": "/dev/nvidiactl", "nr": escape, "ret": ret, "out": block.hex()}


def alloc(root: int, parent: int, handle: int, klass: int, status: int = 0, fd: int = 3) -> dict[str, Any]:
    return call(0x2B, struct.pack("<IIIIQQIIII", root, parent, handle, klass, 0, 0, 0, 0, status, 0), fd)


def old_alloc(root: int, parent: int, handle: int, klass: int, status: int = 0) -> dict[str, Any]:
    return call(0x2B, struct.pack("<IIIIQII", root, parent, handle, klass, 0, 0, status))


def free(root: int, handle: int, status: int = 0) -> dict[str, Any]:
    return call(0x29, struct.pack("<IIII", root, root, handle, status))


TREE = [alloc(0, 0, CLIENT, 0x41), alloc(CLIENT, CLIENT, DEVICE, 0x80), old_alloc(CLIENT, DEVICE, CHILD, 0x2080)]


def test_what_was_made_is_born_and_dies_with_its_program() -> None:
    found = replay(TREE)
    assert found.births == {
        (CLIENT, CLIENT, 0x41, 0): 1,
        (CLIENT, DEVICE, 0x80, CLIENT): 1,
        (CLIENT, CHILD, 0x2080, DEVICE): 1,
    }
    assert found.freed.total() == 0
    assert found.deaths == found.births


def test_a_free_ends_all_below() -> None:
    found = replay([*TREE, free(CLIENT, DEVICE)])
    assert sorted(birth[1] for birth in found.freed) == [DEVICE, CHILD]
    assert [birth[1] for birth in found.ended] == [CLIENT]


@pytest.mark.parametrize(
    "refused",
    [
        alloc(CLIENT, CLIENT, 0x77, 0x80, status=0x1B),
        old_alloc(CLIENT, CLIENT, 0x77, 0x80, status=0x1B),
        free(CLIENT, DEVICE, status=0x57),
        call(0x29, struct.pack("<IIII", CLIENT, CLIENT, DEVICE, 0), ret=-1),
        call(0x34, struct.pack("<IIIIIII", CLIENT, CLIENT, 0x77, CLIENT, DEVICE, 0, 0x1B)),
    ],
)
def test_what_the_driver_refused_changes_nothing(refused: dict[str, Any]) -> None:
    before, after = replay(TREE), replay([*TREE, refused])
    assert (after.births, after.freed) == (before.births, before.freed)


def test_a_duplicate_has_its_sources_class() -> None:
    found = replay([*TREE, call(0x34, struct.pack("<IIIIIII", CLIENT, CLIENT, 0x77, CLIENT, CHILD, 0, 0))])
    assert found.births[CLIENT, 0x77, 0x2080, CLIENT] == 1


def test_a_closed_file_ends_the_clients_that_were_made_on_it() -> None:
    found = replay([*TREE, alloc(0, 0, OTHER, 0x41, fd=4), {"fd": 3, "path": "/dev/nvidiactl", "close": 1}])
    assert {birth[0] for birth in found.freed} == {CLIENT}
    assert [birth[0] for birth in found.ended] == [OTHER]


def test_blocks_of_another_length_are_told() -> None:
    assert replay([call(0x2B, bytes(64))]).odd == 1


def change(born: bool, handle: int, number: int, parent: int, when: int = 1, kind: str = "object") -> ObjectChange:
    return ObjectChange(when, born, kind, 7, CLIENT, handle, parent, number)


HEARD = [
    change(True, 0, 0, 0, kind="process"),
    change(True, CLIENT, 0x41, 0, kind="client"),
    change(True, DEVICE, 0x80, CLIENT),
    change(True, CHILD, 0x2080, DEVICE),
    change(False, CHILD, 0x2080, DEVICE, when=5),
    change(False, DEVICE, 0x80, CLIENT, when=9),
    change(False, CLIENT, 0, 0, when=9, kind="client"),
    change(False, 0, 0, 0, when=9, kind="process"),
]


def test_what_the_observer_tells_equals_what_was_recorded() -> None:
    mine, recorded = objects.observed(HEARD, 7), replay([*TREE, free(CLIENT, CHILD)])
    assert (mine.births, mine.freed, mine.deaths) == (recorded.births, recorded.freed, recorded.deaths)
    assert objects.observed(HEARD, 8) == Recorded()


def test_each_difference_is_found_on_its_side() -> None:
    mine, recorded = objects.observed(HEARD[:3], 7), replay(TREE)
    assert differences(mine.births, recorded.births) == ([], [(CLIENT, CHILD, 0x2080, DEVICE)])
    twice = replay([*TREE[:2], free(CLIENT, DEVICE), *TREE[1:]])
    assert differences(recorded.births, twice.births) == ([], [(CLIENT, DEVICE, 0x80, CLIENT)])
