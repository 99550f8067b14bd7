# SPDX-License-Identifier: Apache-2.0
"""Processes, files and RM objects from records, without a kernel; and the decoder against each driver's tables."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.abi.tables import VERSIONS
from detshare.ctl.abi.versions import branches, for_version
from detshare.ebpf.records import Decoder, Kind, Record, unpack
from detshare.ebpf.world import World

ABI = for_version("580.142")
DECODER = Decoder(ABI)
CTL = 255


class Machine:
    """Makes records as the kernel would, for one World."""

    def __init__(self) -> None:
        self.world = World(DECODER, lambda pid, fd: (pid, fd) in self.inherited)
        self.inherited: set[tuple[int, int]] = set()
        self.now = 0

    def record(self, kind: Kind, pid: int, **more: int) -> list[tuple[str, bool, int]]:
        self.now += 1
        fields = {"file": 0, "fd": 0, "other": 0, "ret": 0, "escape": 0, **more}
        found = self.world.take(Record(when=self.now, pid=pid, kind=kind, minor=CTL, block=b"", **fields))
        return [(each.kind, each.born, each.handle or each.pid) for each in found]

    def call(
        self, pid: int, file: int, escape: str, layout: str, fd: int = 3, **values: int
    ) -> list[tuple[str, bool, int]]:
        block = ABI.layout(layout).pack(**values)
        self.now += 1
        found = self.world.take(
            Record(self.now, file, pid, fd, len(block), 0, Kind.CALL, CTL, ABI.constant(escape), bytes(block))
        )
        return [(each.kind, each.born, each.handle or each.pid) for each in found]

    def client(self, pid: int, file: int, handle: int, fd: int = 3) -> list[tuple[str, bool, int]]:
        root = ABI.klass("NV01_ROOT_CLIENT")
        return self.call(pid, file, "NV_ESC_RM_ALLOC", "NVOS64_PARAMETERS", fd, hObjectNew=handle, hClass=root)

    def object(self, client: int, parent: int, handle: int, **more: int) -> list[tuple[str, bool, int]]:
        values = {"hRoot": client, "hObjectParent": parent, "hObjectNew": handle, "hClass": 0x3E, **more}
        return self.call(1, 10, "NV_ESC_RM_ALLOC", "NVOS64_PARAMETERS", **values)


def test_a_program_from_birth_to_death() -> None:
    machine = Machine()
    assert machine.record(Kind.HOLD, 1, file=10, fd=3, other=1) == [("process", True, 1)]
    assert machine.client(1, 10, 0xC1D00001) == [("client", True, 0xC1D00001)]
    assert machine.object(0xC1D00001, 0xC1D00001, 5) == [("object", True, 5)]
    assert machine.object(0xC1D00001, 5, 6) == [("object", True, 6)]
    free = {"hRoot": 0xC1D00001, "hObjectOld": 5}
    assert machine.call(1, 10, "NV_ESC_RM_FREE", "NVOS00_PARAMETERS", **free) == [
        ("object", False, 6),
        ("object", False, 5),
    ]
    machine.object(0xC1D00001, 0xC1D00001, 7)
    assert machine.record(Kind.EXIT, 1) == [
        ("object", False, 7),
        ("client", False, 0xC1D00001),
        ("process", False, 1),
    ]
    assert not machine.world.clients
    assert machine.world.notes() == []


def test_refused_calls_change_nothing() -> None:
    machine = Machine()
    machine.client(1, 10, 0xC1D00001)
    assert machine.object(0xC1D00001, 0xC1D00001, 5, status=0x51) == []
    assert machine.world.clients[0xC1D00001].objects == {}


def test_both_forms_of_allocation_and_the_older_ways() -> None:
    machine = Machine()
    machine.client(1, 10, 1)
    values = {"hRoot": 1, "hObjectParent": 1, "hObjectNew": 5, "hClass": 0x40}
    assert machine.call(1, 10, "NV_ESC_RM_ALLOC", "NVOS21_PARAMETERS", **values) == [("object", True, 5)]
    assert machine.call(1, 10, "NV_ESC_RM_ALLOC_OBJECT", "NVOS05_PARAMETERS", **{**values, "hObjectNew": 6}) != []
    old = {f"params.{name}": value for name, value in values.items()} | {"params.hObjectNew": 7}
    assert machine.call(1, 10, "NV_ESC_RM_ALLOC_MEMORY", "nv_ioctl_nvos02_parameters_with_fd", **old) != []
    heap = {"hRoot": 1, "hObjectParent": 1, "function": ABI.constant("NVOS32_FUNCTION_ALLOC_SIZE")}
    heap["data.AllocSize.hMemory"] = 8
    assert machine.call(1, 10, "NV_ESC_RM_VID_HEAP_CONTROL", "NVOS32_PARAMETERS", **heap) == [("object", True, 8)]
    gone = {"hRoot": 1, "function": ABI.constant("NVOS32_FUNCTION_FREE"), "data.Free.hMemory": 8}
    assert machine.call(1, 10, "NV_ESC_RM_VID_HEAP_CONTROL", "NVOS32_PARAMETERS", **gone) == [("object", False, 8)]
    assert sorted(machine.world.clients[1].objects) == [5, 6, 7]


def test_a_duplicate_has_its_sources_class_and_a_life_of_its_own() -> None:
    machine = Machine()
    machine.client(1, 10, 1)
    machine.client(1, 11, 2, fd=4)
    machine.object(1, 1, 5)
    dup = {"hClient": 2, "hParent": 2, "hObject": 9, "hClientSrc": 1, "hObjectSrc": 5}
    assert machine.call(1, 11, "NV_ESC_RM_DUP_OBJECT", "NVOS55_PARAMETERS", 4, **dup) == [("object", True, 9)]
    assert machine.record(Kind.CLOSE, 1, fd=3) == [("object", False, 5), ("client", False, 1)]
    assert machine.world.clients[2].objects[9].number == 0x3E


def test_a_forked_child_keeps_its_parents_client_alive() -> None:
    machine = Machine()
    machine.client(1, 10, 1)
    assert machine.record(Kind.FORK, 1, other=2) == [("process", True, 2)]
    assert machine.record(Kind.EXIT, 1) == [("process", False, 1)]
    assert machine.record(Kind.CLOSE_RANGE, 2, fd=0, other=100) == [("client", False, 1)]
    assert machine.record(Kind.EXIT, 2) == [("process", False, 2)]


def test_exec_keeps_what_is_still_open() -> None:
    machine = Machine()
    machine.client(1, 10, 1, fd=3)
    machine.client(1, 11, 2, fd=4)
    machine.inherited = {(1, 4)}
    assert machine.record(Kind.EXEC, 1) == [("client", False, 1)]


def test_an_address_that_is_used_again_buries_what_was_there() -> None:
    """A close that nobody told: passed through a socket and dropped there."""
    machine = Machine()
    machine.client(1, 10, 1)
    assert machine.record(Kind.HOLD, 2, file=10, fd=7, other=1) == [("client", False, 1), ("process", True, 2)]


def test_a_descriptor_over_another_closes_it() -> None:
    machine = Machine()
    machine.client(1, 10, 1, fd=3)
    assert machine.record(Kind.HOLD, 1, file=11, fd=3, other=1) == [("client", False, 1)]


def test_objects_of_older_clients_make_the_view_partial() -> None:
    machine = Machine()
    assert machine.object(7, 7, 5) == [("process", True, 1), ("object", True, 5)]
    assert machine.world.unknown == 1
    assert "1 client(s) began before this trace" in machine.world.notes()[0]


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_every_driver_has_what_the_program_is_told(version: str) -> None:
    decoder = Decoder(for_version(version))
    assert set(decoder.escapes()) == {0x27, 0x28, 0x29, 0x2B, 0x34, 0x4A}
    assert decoder.xfer == 211
    assert max(decoder.escapes().values()) <= 192  # DS_BLOCK
    assert version.split(".")[0] in branches()


@given(data=st.binary(min_size=40, max_size=232))
def test_any_block_is_taken_without_harm(data: bytes) -> None:
    head = bytearray(data)
    struct.pack_into("<H", head, 32, 1 + data[32] % 7)
    machine = Machine()
    machine.world.take(unpack(bytes(head)))


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["open", "dup", "close", "fork", "exit"]),
            st.integers(1, 4),
            st.integers(0, 5),
            st.integers(0, 5),
        ),
        max_size=60,
    )
)
def test_a_file_is_alive_exactly_while_somebody_holds_it(steps: list[tuple[str, int, int, int]]) -> None:
    machine = Machine()
    tables: dict[int, dict[int, int]] = {}
    files = 0
    for what, pid, a, b in steps:
        table = tables.setdefault(pid, {})
        if what == "open" and a not in table:
            files += 1
            table[a] = files
            machine.record(Kind.HOLD, pid, file=files, fd=a, other=1)
            machine.client(pid, files, files, fd=a)
        elif what == "dup" and a in table and a != b:
            if b in table:
                machine.record(Kind.CLOSE, pid, fd=b)
            table[b] = table[a]
            machine.record(Kind.HOLD, pid, file=table[a], fd=b)
        elif what == "close" and a in table:
            del table[a]
            machine.record(Kind.CLOSE, pid, fd=a)
        elif what == "fork" and not tables.get(5 + a) and table:
            tables[5 + a] = dict(table)
            machine.record(Kind.FORK, pid, other=5 + a)
        elif what == "exit":
            table.clear()
            machine.record(Kind.EXIT, pid)
        held = {file for each in tables.values() for file in each.values()}
        assert {client.file for client in machine.world.clients.values()} == held
