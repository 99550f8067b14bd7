# SPDX-License-Identifier: Apache-2.0
"""Context switches of the simulated GPU as an H200 showed them, and its log of them as an administrator reads it."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import until
from tests.vm.guest.nvsim_rm import Block, Rm, escape, status
from tests.vm.guest.nvsim_steering import close, level, running, set_slice
from tests.vm.guest.nvsim_tools import in_child, other, rm
from tests.vm.guest.nvsim_work import ENDLESS, MS, Channel, Doorbell

__all__ = ["other", "rm"]  # fixtures

DEVICELESS, EVENT_BUFFER = 0x90CE, 0x90CD
BIND, BIND_V2, ENABLE, GET, FLUSH = 0x20801231, 0x20801238, 0x90CD0101, 0x90CD0102, 0x90CD0104
START, END = 6, 7
SIZE = 32
READ_ONLY = 1 << 22  # NVOS32_ATTR2_PROTECTION_USER
NEWEST, OLDEST = 2, 1
US = 1000
SWITCH, RESTORE, LATE = 85 * US, 120 * US, 120 * US
NOBODY = 65534


class Switch(NamedTuple):
    tag: int
    number: int
    context: int
    pid: int
    when: int


class Log:
    """A reader of the log: an event buffer with its two memories."""

    def __init__(self, rm: Rm, count: int = 4096, attr2: int = READ_ONLY) -> None:
        self.rm, self.count, self.at = rm, count, 0
        self.header_handle, self.records_handle, self.handle = rm.handle(), rm.handle(), rm.handle()
        self.header = self._memory(self.header_handle, 4096, attr2)
        self.records = self._memory(self.records_handle, SIZE * count, attr2)
        assert self.make() == 0

    def _memory(self, handle: int, size: int, attr2: int) -> mmap.mmap:
        params = Block.of("NV_MEMORY_ALLOCATION_PARAMS", size=size, attr=1 << 25 | 2 << 27 | 1 << 29, attr2=attr2)
        assert self.rm.alloc(DEVICELESS, self.rm.client, handle, params)[0] == 0
        file = self.rm.open("nvidiactl")
        assert self.map(handle, size, file) == 0
        return mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def map(self, handle: int, size: int, file: int, flags: int = 1) -> int:
        """RM_MAP_MEMORY of memory of no device, for reading; the status."""
        block = Block.of("nv_ioctl_nvos33_parameters_with_fd", fd=file)
        for name, value in (("hClient", self.rm.client), ("hDevice", self.rm.client), ("hMemory", handle)):
            block.put(f"params.{name}", value)
        block.put("params.length", size)
        block.put("params.flags", flags)
        escape(self.rm.ctl, "NV_ESC_RM_MAP_MEMORY", block)
        return block.get("params.status")

    def make(self, handle: int | None = None, **values: int) -> int:
        """RM_ALLOC of the event buffer; the status."""
        wanted = {
            "recordSize": SIZE, "recordCount": self.count, "recordsFreeThreshold": self.count // 2,
            "notificationHandle": self.rm.ctl, "hSubDevice": self.rm.subdevice,
            "hBufferHeader": self.header_handle, "hRecordBuffer": self.records_handle,
        }  # fmt: skip
        params = Block.of("NV_EVENT_BUFFER_ALLOC_PARAMETERS", **wanted | values)
        return self.rm.alloc(EVENT_BUFFER, self.rm.client, self.handle if handle is None else handle, params)[0]

    def control(self, command: int, params: bytes = b"") -> int:
        target = self.rm.subdevice if command in (BIND, BIND_V2) else self.handle
        return self.rm.control(target, command, bytearray(params))

    def bind(self, all_users: bool = True, buffer: int | None = None) -> int:
        return self.control(
            BIND, struct.pack("<4IB3x", self.handle if buffer is None else buffer, SIZE, 1, 0, all_users)
        )

    def start(self, policy: int = NEWEST, all_users: bool = True) -> None:
        assert self.bind(all_users) == 0
        assert self.control(ENABLE, struct.pack("<B3xI", 1, policy)) == 0

    def head(self) -> tuple[int, ...]:
        """get, put, count, dropped, dropped of vardata"""
        return struct.unpack_from("<2I3Q", self.header)

    def read(self) -> list[Switch]:
        """What came since the last reading."""
        assert self.control(FLUSH) == 0
        put = self.head()[1]
        found = []
        while self.at != put:
            record = struct.unpack_from("<2HI2BHIQQ", self.records, self.at * SIZE)
            kind, _, _, tag, _, number, context, pid, when = record
            assert kind == 134
            found.append(Switch(tag, number, context, pid, when))
            self.at = (self.at + 1) % self.count
        assert self.control(GET, struct.pack("<2I", self.at, 0)) == 0
        return found


def spans(found: list[Switch]) -> list[tuple[int, int, int]]:
    """(context, begin, end) of each run that is whole."""
    pairs = pairwise(found)
    return [(one.context, one.when, two.when) for one, two in pairs if (one.tag, two.tag) == (START, END)]


@pytest.fixture
def log() -> Iterator[Log]:
    reader = Rm.start()
    yield Log(reader)
    reader.close()


@pytest.fixture
def two(rm: Rm, other: Rm) -> Iterator[tuple[list[Channel], Doorbell]]:
    """Two clients whose kernels have no end."""
    other.next += 0x1000  # by their handles the log tells them apart
    channels, bell = running(rm, other)
    for channel in channels:
        channel.submit(bell, ENDLESS)
    yield channels, bell
    close(channels, bell)


def used(channels: list[Channel], seconds: float) -> list[int]:
    before = [int(channel.row()["gpu_time_us"]) for channel in channels]
    time.sleep(seconds)
    return [int(channel.row()["gpu_time_us"]) - was for channel, was in zip(channels, before, strict=True)]


def test_the_log_tells_who_ran_when(log: Log, two: tuple[list[Channel], Doorbell]) -> None:
    channels, _ = two
    assert all(set_slice(channel, 1000) == 0 for channel in channels)
    time.sleep(0.02)
    before = time.monotonic_ns()
    log.start()
    time.sleep(0.2)
    found = log.read()
    after = time.monotonic_ns()
    assert {switch.pid for switch in found} == {os.getpid()}
    assert {switch.context for switch in found} == {channel.group for channel in channels}
    assert [switch.number for switch in found] == list(range(len(found)))
    assert found == sorted(found, key=lambda switch: switch.when)
    assert before - 2 * MS <= found[0].when
    assert found[-1].when <= after
    runs = spans(found)
    assert len(runs) > 50
    assert {end - begin for _, begin, end in runs} == {1000 * US + LATE}
    assert {later[1] - run[2] for run, later in pairwise(runs)} == {SWITCH}
    assert all(run[0] != later[0] for run, later in pairwise(runs))


def test_slices_shorter_than_the_restore_only_switch(two: tuple[list[Channel], Doorbell]) -> None:
    channels, _ = two
    reader = Rm.start()
    log = Log(reader, count=1 << 16)
    assert all(set_slice(channel, 50) == 0 for channel in channels)
    time.sleep(0.02)
    log.start()
    assert used(channels, 0.2) == [0, 0], "neither makes any progress"
    runs = spans(log.read())
    assert len(runs) > 500
    assert {end - begin for _, begin, end in runs} == {RESTORE}, "a restore is not broken off"
    # alone each of them is well, whatever its slice
    assert channels[1].disable(True) == 0
    assert used(channels[:1], 0.1)[0] > 90_000
    reader.close()


def test_who_is_above_waits_for_a_slice_and_a_switch(log: Log, rm: Rm, other: Rm) -> None:
    other.next += 0x1000
    (low, high), bell = running(rm, other)
    assert (set_slice(low, 50), level(low, 0), set_slice(high, 20_000), level(high, 2)) == (0, 0, 0, 0)
    low.submit(bell, ENDLESS)
    assert until(lambda: low.moves(0.005))
    log.start()
    for _ in range(20):
        high.submit(bell, 2 * MS)
        assert high.wait()
    runs = [end - begin for context, begin, end in spans(log.read()) if context == high.group]
    assert runs == [RESTORE + 2 * MS] * 20
    close([low, high], bell)


def test_who_runs_alone_writes_nothing(log: Log, rm: Rm) -> None:
    (one,), bell = running(rm)
    one.submit(bell, ENDLESS)
    assert until(lambda: one.moves(0.005))
    log.start()
    time.sleep(0.05)
    assert log.read() == []
    # taken off in its midst, it leaves, and comes anew
    assert (one.disable(True), one.disable(False)) == (0, 0)
    assert until(lambda: one.moves(0.005))
    assert [switch.tag for switch in log.read()] == [END, START]
    close([one], bell)


def test_who_keeps_the_oldest_is_told_of_drops(two: tuple[list[Channel], Doorbell]) -> None:
    reader = Rm.start()
    log = Log(reader, count=16)
    log.start(OLDEST)
    time.sleep(0.1)
    assert log.control(FLUSH) == 0
    get, put, _, dropped, _ = log.head()
    assert (get, put) == (0, 15)
    assert dropped > 0
    assert len(log.read()) == 15
    assert log.head()[3] == 0
    reader.close()


def test_records_come_by_themselves_too(log: Log, two: tuple[list[Channel], Doorbell]) -> None:
    log.start()
    assert until(lambda: log.head()[1] > 0)


def test_what_the_driver_refuses_is_refused(log: Log) -> None:
    invalid, spare = status("NV_ERR_INVALID_ARGUMENT"), log.rm.handle()
    for values in (
        {"recordSize": 0},
        {"recordCount": 0},
        {"recordCount": 1 << 30},
        {"recordCount": log.count + 1},  # more than the memory has
        {"recordsFreeThreshold": log.count + 1},
        {"hRecordBuffer": 0},
        {"vardataBufferSize": 8},
    ):
        assert log.make(spare, **values) == invalid, values
    assert log.make(spare, hSubDevice=log.rm.device) == status("NV_ERR_INVALID_OBJECT_HANDLE")
    assert log.make(spare, hBufferHeader=0x5C777777) == status("NV_ERR_OBJECT_NOT_FOUND")
    # memory that its user may write
    params = Block.of("NV_MEMORY_ALLOCATION_PARAMS", size=4096)
    plain = log.rm.handle()
    assert log.rm.alloc(DEVICELESS, log.rm.client, plain, params)[0] == 0
    assert log.make(spare, hBufferHeader=plain) == invalid
    assert log.bind(buffer=plain) == status("NV_ERR_INVALID_OBJECT_HANDLE")
    assert log.bind(buffer=0x5C777777) == status("NV_ERR_OBJECT_NOT_FOUND")
    assert log.control(BIND, bytes(16)) == invalid
    assert log.control(ENABLE, struct.pack("<B3xI", 1, 4)) == invalid
    assert log.control(ENABLE, bytes(4)) == invalid
    assert log.control(GET, struct.pack("<2I", log.count, 0)) == invalid
    assert log.control(GET, struct.pack("<2I", 0, 1)) == invalid
    assert log.control(FLUSH, bytes(8)) == invalid
    assert log.bind() == 0
    assert log.bind() == 0, "once more is nothing new"
    assert log.control(BIND_V2, struct.pack("<4IB3xI", log.handle, SIZE, 1, 0, 1, 7)) == 0


def test_the_memory_cannot_be_written_by_its_user(log: Log) -> None:
    file = log.rm.open("nvidiactl")
    assert log.map(log.header_handle, 4096, file, flags=0) == 0, "asked for with the right to write"
    area = mmap.mmap(file, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    where = ctypes.addressof(ctypes.c_char.from_buffer(area))
    (line,) = (line for line in Path("/proc/self/maps").read_text().splitlines() if line.startswith(f"{where:x}-"))
    assert line.split()[1] == "r--s"


def test_the_memory_takes_its_buffer_along(two: tuple[list[Channel], Doorbell], log: Log) -> None:
    log.start()
    assert log.rm.free(log.records_handle) == 0, "and the event buffer with it"
    assert log.control(FLUSH) == status("NV_ERR_OBJECT_NOT_FOUND")
    time.sleep(0.05)


def test_another_users_records_hide_whose_they_are(two: tuple[list[Channel], Doorbell]) -> None:
    channels, _ = two
    assert all(set_slice(channel, 1000) == 0 for channel in channels)

    def look(all_users: bool) -> int:
        """0: hidden; 1: nothing; 2: told."""
        os.setuid(NOBODY)
        log = Log(Rm.start())
        log.start(all_users=all_users)
        time.sleep(0.1)
        found = log.read()
        if not found:
            return 1
        return 0 if {(switch.pid, switch.context) for switch in found} == {(0, 0)} else 2

    assert in_child(lambda: look(True)) == 0
    assert in_child(lambda: look(False)) == 1
