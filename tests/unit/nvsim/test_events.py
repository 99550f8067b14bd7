# SPDX-License-Identifier: Apache-2.0
"""Buffers of context switches, byte by byte as a reader of the genuine driver's log finds them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

import pytest
from nvsim_harness import library

COUNT = 8
SIZE = 32
KEEP_OLDEST, KEEP_NEWEST = 0, 1


class Events:
    def __init__(self) -> None:
        self.lib = library()
        self.at = ctypes.c_void_p(self.lib.events_new(COUNT))

    def add(self, when: int, version: int = 1, tag: int = 6) -> None:
        self.lib.events_add(self.at, version, tag, 0x5C, 1234, ctypes.c_uint64(when))

    def enable(self, policy: int, on: int = 1) -> None:
        self.lib.events_enable(self.at, on, policy)

    def got(self, get: int) -> bool:
        return bool(self.lib.events_get(self.at, get))

    def read(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """The header (get, put, count, dropped, dropped of vardata), and all records."""
        header, records = ctypes.create_string_buffer(32), ctypes.create_string_buffer(COUNT * SIZE)
        self.lib.events_read(self.at, header, records, ctypes.c_size_t(COUNT * SIZE))
        return struct.unpack("<2I3Q", header.raw), list(struct.iter_unpack("<2HI2BHIQQ", records.raw))


@pytest.fixture
def events() -> Iterator[Events]:
    made = Events()
    yield made
    made.lib.events_free(made.at)


def test_a_record_is_laid_out_as_the_reader_expects(events: Events) -> None:
    events.enable(KEEP_NEWEST)
    events.add(1_000, tag=6)
    events.add(2_000, tag=7)
    header, records = events.read()
    assert header == (0, 2, 0, 0, 0)
    assert records[0] == (134, 0, 0, 6, 0, 0, 0x5C, 1234, 1_000)
    assert records[1] == (134, 0, 0, 7, 0, 1, 0x5C, 1234, 2_000)


def test_version_two_names_no_mig_instance(events: Events) -> None:
    events.enable(KEEP_NEWEST)
    events.add(1_000, version=2)
    assert events.read()[1][0] == (2, 0, 0, 6, 0, 0, 0x5C, 1234 | 0xFFFF << 48, 1_000)


def test_nothing_is_written_before_it_is_enabled_but_numbers_go_on(events: Events) -> None:
    events.add(1)
    assert events.read()[0] == (0, 0, 0, 0, 0)
    events.enable(KEEP_NEWEST)
    events.add(2)
    assert events.read()[1][0][5] == 1


def test_who_keeps_the_oldest_counts_what_was_dropped(events: Events) -> None:
    events.enable(KEEP_OLDEST)
    for when in range(COUNT + 3):
        events.add(when)
    header, records = events.read()
    assert header == (0, COUNT - 1, 0, 4, 0), "one stays free: get == put is an empty ring"
    assert [record[-1] for record in records[:-1]] == list(range(COUNT - 1))
    assert events.got(COUNT - 1)
    assert events.read()[0] == (COUNT - 1, COUNT - 1, 0, 0, 0)


def test_who_keeps_the_newest_writes_over_what_was_not_read_and_shows_it_by_number(events: Events) -> None:
    events.enable(KEEP_NEWEST)
    for when in range(COUNT + 3):
        events.add(when)
    header, records = events.read()
    assert header == (0, 3, 0, 0, 0)
    assert [record[5] for record in records] == [8, 9, 10, 3, 4, 5, 6, 7]


def test_how_many_wait_is_told_when_the_reader_says_how_far_it_is(events: Events) -> None:
    events.enable(KEEP_OLDEST)
    for when in range(5):
        events.add(when)
    assert events.got(2)
    assert events.read()[0] == (2, 5, 3, 0, 0)
    for when in range(4):
        events.add(when)
    assert events.got(4)
    assert events.read()[0] == (4, 1, COUNT - 3, 0, 0)


def test_there_is_no_record_behind_the_last(events: Events) -> None:
    assert not events.got(COUNT)
    assert events.read()[0] == (0, 0, 0, 0, 0)


def test_what_the_gpu_lost_is_missing_among_the_numbers(events: Events) -> None:
    events.enable(KEEP_NEWEST)
    events.add(1)
    events.lib.events_lost(events.at, 5)
    events.add(2)
    assert [record[5] for record in events.read()[1][:2]] == [0, 6]
