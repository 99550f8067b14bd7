# SPDX-License-Identifier: Apache-2.0
"""The switch log as the driver writes it: a ring of records and a header, in memory that is made up."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.core.gputime import Switch
from detshare.ctl.rm import fecs

OTHER = 0x7F
"""a tag of another kind of record"""


class Ring:
    """detshare.ctl.rm.session.Session whose memory a test fills."""

    def __init__(self, abi: Abi) -> None:
        self.abi, self.client = abi, 1
        self.memories: dict[int, bytearray] = {}
        self.calls: Counter[str] = Counter()
        self.put = self.dropped = self.told = 0
        header, body = abi.layout("NV_EVENT_BUFFER_RECORD_HEADER"), abi.layout("NV_EVENT_BUFFER_FECS_RECORD_V1")
        self._offset, self._body = header.size, body.record("tag", "context_id", "pid", "timestamp")
        self._header = abi.layout("NV_EVENT_BUFFER_HEADER").record("recordPut", "recordCount", "recordDropcount")

    def subdevice(self, minor: int, instance: int) -> int:
        return 2

    def uuid(self, subdevice: int) -> str:
        return "GPU-1"

    def os_event(self) -> int:
        return 3

    def memory(self, handle: int, size: int) -> bytearray:
        self.memories[handle] = bytearray(size)
        return self.memories[handle]

    def alloc(self, what: str, parent: int, new: int, klass: str, params: bytearray) -> int:
        return new

    def control(self, what: str, target: int, name: str, params: bytearray) -> bytearray:
        self.calls[name] += 1
        if name == "NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET":
            self.told = self.abi.params(name).get(params, "recordBufferGet")
        return params

    def close(self) -> None:
        self.memories.clear()

    def write(self, *records: tuple[int, int, int, int]) -> None:
        """(tag, context, PID, time): what the firmware writes."""
        memory = self.memories[fecs._BUFFER]
        for record in records:
            self._body.pack_into(memory, fecs._RECORD_BYTES * self.put + self._offset, *record)
            self.put = (self.put + 1) % fecs.RECORDS
        self._header.pack_into(self.memories[fecs._HEADER], 0, self.put, 0, self.dropped)


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    made = Ring(for_version("580.159.04"))
    monkeypatch.setattr(fecs, "Session", lambda abi: made)
    return made


@pytest.fixture
def log(ring: Ring) -> fecs.FecsLog:
    return fecs.FecsLog(ring.abi, 0, "GPU-1", 0)


def tags(abi: Abi) -> tuple[int, int]:
    prefix = "NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_"
    return abi.constant(f"{prefix}START"), abi.constant(f"{prefix}END")


def read(log: fecs.FecsLog) -> Sequence[Switch]:
    found = log.read()
    assert all(type(switch) is Switch and type(switch.starts) is bool for switch in found)
    return found


def test_records_are_read_in_order_and_only_switches(ring: Ring, log: fecs.FecsLog) -> None:
    start, end = tags(ring.abi)
    assert OTHER not in (start, end)
    assert read(log) == []
    assert log.now_ns() == 0
    ring.write((start, 7, 42, 1000), (OTHER, 7, 42, 1500), (end, 7, 42, 2000))
    assert read(log) == [Switch(1000, 42, 7, True), Switch(2000, 42, 7, False)]
    assert log.now_ns() >= 2000
    assert read(log) == []


def test_the_ring_goes_round(ring: Ring, log: fecs.FecsLog) -> None:
    start, end = tags(ring.abi)
    ring.put = fecs.RECORDS - 2
    log._get = ring.put
    ring.write(*[(start if n % 2 else end, n, 40 + n, 100 + n) for n in range(5)])
    assert read(log) == [Switch(100 + n, 40 + n, n, bool(n % 2)) for n in range(5)]
    ring.dropped = 3
    ring.write((start, 1, 2, 300))
    assert read(log) == [Switch(300, 2, 1, True)]
    assert log.dropped == 3


def test_the_clock_is_the_newest_records_whatever_their_order(ring: Ring, log: fecs.FecsLog) -> None:
    start, end = tags(ring.abi)
    ring.write((end, 1, 2, 9 * 10**18), (start, 9, 9, 5))
    assert len(read(log)) == 2
    assert log.now_ns() >= 9 * 10**18


def test_a_log_that_says_nothing_costs_one_call(ring: Ring, log: fecs.FecsLog) -> None:
    """It is read as often while the GPU rests."""
    ring.calls.clear()
    for _ in range(10):
        assert read(log) == []
    assert ring.calls == {"NV_EVENT_BUFFER_CTRL_CMD_FLUSH": 10}
    ring.write((tags(ring.abi)[0], 1, 2, 3))
    assert len(read(log)) == 1
    assert ring.calls == {"NV_EVENT_BUFFER_CTRL_CMD_FLUSH": 11}


def test_the_driver_is_told_now_and_then_what_was_taken(ring: Ring, log: fecs.FecsLog) -> None:
    """And long before it takes what was read for what nobody read yet."""
    start, _ = tags(ring.abi)
    some, told = fecs.TELL // 10, []
    for number in range(3 * fecs.RECORDS // some):
        ring.write(*[(start, 1, 2, number)] * some)
        assert len(read(log)) == some
        if ring.calls["NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET"] > len(told):
            told.append(ring.put)
    assert len(told) == 3 * fecs.RECORDS // (-(-fecs.TELL // some) * some)
    steps = {(later - before) % fecs.RECORDS for before, later in pairwise(told)}
    assert max(steps) <= fecs.RECORDS // 4
    assert ring.told == told[-1]


def test_a_record_is_as_long_as_the_driver_is_told(ring: Ring, log: fecs.FecsLog) -> None:
    assert log._record.size == fecs._RECORD_BYTES
    assert struct.calcsize(log._record.format) == fecs._RECORD_BYTES
