# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nvsim_harness import NVSIM, library

IDLE, MORE, KERNEL, ACQUIRE, FAULT = range(5)
GPFIFO, PUSH, SEM = 0x2_0060_0000, 0x10_0000_0000, 0x7F_0000_0000
_ACCESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t)


def _methods() -> dict[str, int]:
    text = (NVSIM / "methods.h").read_text()
    return {name: int(value, 0) for name, value in re.findall(r"#define SIM_(\w+)\s+(0x[0-9a-f]+|\d+)\b", text)}


M = _methods()
TIMESTAMP, WIDE = 1 << 25, 1 << 24


class Ring:
    """A channel's ring over a memory of three mapped regions."""

    def __init__(self, entries: int = 8) -> None:
        self.memory = {base: bytearray(1 << 16) for base in (GPFIFO, PUSH, SEM)}
        self._read = _ACCESS(self._on_read)
        self._write = _ACCESS(self._on_write)
        self.lib = library()
        self.at = ctypes.c_void_p(
            self.lib.ring_new(self._read, self._write, ctypes.c_uint64(GPFIFO), ctypes.c_uint32(entries))
        )
        self.entries = entries
        self.put = 0
        self.end = PUSH

    def __del__(self) -> None:
        self.lib.ring_free(self.at)

    def _find(self, va: int, size: int) -> memoryview | None:
        for base, region in self.memory.items():
            if base <= va and va + size <= base + len(region):
                return memoryview(region)[va - base : va - base + size]
        return None

    def _on_read(self, _vas: int, va: int, buffer: int, size: int) -> int:
        found = self._find(va, size)
        if found is None:
            return -14
        ctypes.memmove(buffer, bytes(found), size)
        return 0

    def _on_write(self, _vas: int, va: int, buffer: int, size: int) -> int:
        found = self._find(va, size)
        if found is None:
            return -14
        found[:] = ctypes.string_at(buffer, size)
        return 0

    def word(self, va: int, format: str = "<I") -> int:
        found = self._find(va, struct.calcsize(format))
        assert found is not None
        return int(struct.unpack(format, found)[0])

    def store(self, va: int, *words: int) -> None:
        found = self._find(va, 4 * len(words))
        assert found is not None
        found[:] = struct.pack(f"<{len(words)}I", *words)

    def push(self, *words: int, ring: bool = True) -> None:
        """Put a segment of these words into the next entry."""
        self.store(self.end, *words)
        self.entry(self.end, len(words))
        self.end += 4 * len(words)
        if ring:
            self.ring()

    def entry(self, va: int, dwords: int) -> None:
        self.store(GPFIFO + 8 * self.put, va & 0xFFFFFFFC, (va >> 32) & 0xFF | dwords << 10)
        self.put = (self.put + 1) % self.entries

    def ring(self) -> None:
        assert self.lib.ring_put(self.at, self.put) & 0xFF

    def step(self, now: int = 0, budget: int = 1000) -> int:
        return int(self.lib.ring_step(self.at, ctypes.c_uint64(now), budget))

    @property
    def get(self) -> int:
        return int(self.lib.ring_get(self.at))


def inc(method: int, *data: int) -> list[int]:
    return [1 << 29 | len(data) << 16 | 1 << 13 | method >> 2, *data]


def non_inc(method: int, *data: int) -> list[int]:
    return [3 << 29 | len(data) << 16 | method >> 2, *data]


def immediate(method: int, datum: int) -> list[int]:
    return [4 << 29 | datum << 16 | method >> 2]


def release(va: int, payload: int, flags: int = 0) -> list[int]:
    return inc(M["SEM_ADDR_LO"], va & 0xFFFFFFFF, va >> 32, payload & 0xFFFFFFFF, payload >> 32, 1 | flags)


def kernel(ns: int, sms: int = 132) -> list[int]:
    return inc(M["KERNEL_NS"], ns & 0xFFFFFFFF, ns >> 32, sms) + inc(M["KERNEL_LAUNCH"], 0)


def test_nothing_is_read_before_the_doorbell() -> None:
    ring = Ring()
    ring.push(*release(SEM, 7), ring=False)
    assert (ring.step(), ring.get, ring.word(SEM)) == (IDLE, 0, 0)
    ring.ring()
    assert (ring.step(), ring.get, ring.word(SEM)) == (IDLE, 1, 7)


def test_an_entry_counts_as_fetched_before_what_it_starts_is_done() -> None:
    ring = Ring()
    ring.push(*kernel(50_000, 12), *release(SEM, 1))
    ring.push(*release(SEM, 2))
    assert (ring.step(), ring.get, ring.word(SEM)) == (KERNEL, 1, 0)
    assert (ring.lib.ring_kernel_ns(ring.at), ring.lib.ring_kernel_sms(ring.at)) == (50_000, 12)
    assert (ring.step(), ring.get, ring.word(SEM)) == (IDLE, 2, 2)


def test_a_release_with_a_timestamp_writes_sixteen_bytes() -> None:
    ring = Ring()
    ring.store(SEM, *[0xFFFFFFFF] * 4)
    ring.push(*release(SEM, 0x1_2345, TIMESTAMP))
    ring.step(now=0x5_6789_ABCD)
    assert (ring.word(SEM, "<Q"), ring.word(SEM + 8, "<Q")) == (0x1_2345, 0x5_6789_ABCD)


def test_payloads_have_the_width_asked_for() -> None:
    ring = Ring()
    ring.store(SEM, *[0xFFFFFFFF] * 4)
    ring.push(*release(SEM, 0xA_0000_0001), *release(SEM + 8, 0xA_0000_0002, WIDE))
    ring.step()
    assert (ring.word(SEM, "<Q"), ring.word(SEM + 8, "<Q")) == (0xFFFFFFFF_0000_0001, 0xA_0000_0002)


def test_the_four_kinds_of_header_reach_the_same_methods() -> None:
    ring = Ring()
    lo, sms = M["SEM_ADDR_LO"], M["KERNEL_SMS"]
    one_inc = [5 << 29 | 2 << 16 | lo >> 2, SEM & 0xFFFFFFFF, SEM >> 32]
    ring.push(*one_inc, *non_inc(M["SEM_PAYLOAD_LO"], 1, 2, 3), *immediate(M["SEM_EXECUTE"], 1), *immediate(sms, 77))
    assert ring.step() == IDLE
    assert (ring.word(SEM), ring.lib.ring_kernel_sms(ring.at)) == (3, 77)


def test_an_end_of_segment_skips_the_rest_of_its_entry_only() -> None:
    ring = Ring()
    ring.push(7 << 29, *release(SEM, 1))
    ring.push(*release(SEM + 4, 2))
    assert (ring.step(), ring.word(SEM), ring.word(SEM + 4), ring.get) == (IDLE, 0, 2, 2)


def test_a_long_segment_is_read_in_parts_and_a_small_budget_only_takes_more_steps() -> None:
    ring = Ring()
    ring.push(*[word for i in range(200) for word in release(SEM + 4 * i, i + 1)])
    steps = 1
    while ring.step(budget=7) == MORE:
        steps += 1
    assert steps > 100
    assert [ring.word(SEM + 4 * i) for i in range(200)] == list(range(1, 201))


@pytest.mark.parametrize(
    ("operation", "want", "no", "yes"),
    [
        ("SEM_ACQUIRE", 5, 4, 5),
        ("SEM_ACQ_STRICT_GEQ", 5, 4, 6),
        ("SEM_ACQ_CIRC_GEQ", 0xFFFFFFFE, 0xFFFFFFF0, 3),
        ("SEM_ACQ_AND", 0x10, 0x0F, 0x1F),
        ("SEM_ACQ_NOR", 0x0F, 0xFFFFFFF0, 0x7FFFFFF0),
    ],
)
def test_an_acquire_holds_the_channel_until_it_is_met(operation: str, want: int, no: int, yes: int) -> None:
    ring = Ring()
    ring.store(SEM, no)
    ring.push(
        *inc(M["SEM_ADDR_LO"], SEM & 0xFFFFFFFF, SEM >> 32, want, 0, M[operation]),
        *release(SEM + 8, 9),
    )
    assert (ring.step(), ring.word(SEM + 8)) == (ACQUIRE, 0)
    assert not ring.lib.ring_ready(ring.at) & 0xFF
    assert ring.step() == ACQUIRE
    ring.store(SEM, yes)
    assert ring.lib.ring_ready(ring.at) & 0xFF
    assert (ring.step(), ring.word(SEM + 8)) == (IDLE, 9)


def test_the_ring_wraps() -> None:
    ring = Ring(entries=4)
    for i in range(11):
        ring.push(*release(SEM, i + 1))
        assert (ring.step(), ring.get, ring.word(SEM)) == (IDLE, (i + 1) % 4, i + 1)


def test_a_put_outside_the_ring_changes_nothing() -> None:
    ring = Ring(entries=4)
    assert not ring.lib.ring_put(ring.at, 4) & 0xFF
    assert ring.step() == IDLE


def test_rewinding_drops_what_was_not_begun() -> None:
    ring = Ring()
    ring.push(*kernel(1000), *release(SEM, 1))
    ring.push(*release(SEM, 2))
    assert ring.step() == KERNEL
    ring.lib.ring_rewind(ring.at)
    assert (ring.step(), ring.word(SEM), ring.get) == (IDLE, 1, 1)


def test_what_is_not_mapped_is_a_fault_with_its_address() -> None:
    for va, dwords in ((0x123000, 4), (PUSH + (1 << 16) - 4, 2)):
        ring = Ring()
        ring.entry(va, dwords)
        ring.ring()
        assert (ring.step(), ring.lib.ring_fault(ring.at)) == (FAULT, va)
    ring = Ring()
    ring.push(*release(0x4000, 1))
    assert (ring.step(), ring.lib.ring_fault(ring.at)) == (FAULT, 0x4000)


def test_an_endless_kernel_has_all_ones_and_an_address_that_ends_it() -> None:
    ring = Ring()
    ring.push(*inc(M["KERNEL_UNTIL_LO"], SEM & 0xFFFFFFFF, SEM >> 32, 0), *kernel(2**64 - 1))
    assert ring.step() == KERNEL
    assert (ring.lib.ring_kernel_ns(ring.at), ring.lib.ring_kernel_until(ring.at)) == (2**64 - 1, SEM)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=300), st.integers(1, 50))
def test_garbage_never_hangs_and_never_writes_outside_what_is_mapped(words: list[int], budget: int) -> None:
    ring = Ring()
    ring.push(*words)
    for _ in range(2 * len(words) + 10):
        if ring.step(budget=budget) in (IDLE, ACQUIRE, FAULT):
            return
    pytest.fail("the ring makes no progress")
