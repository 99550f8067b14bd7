# SPDX-License-Identifier: Apache-2.0
"""Reading a BPF ring buffer: its pages are mapped, records are taken in order, none is copied twice."""

from __future__ import annotations

import ctypes
import mmap
import select
import struct
from collections.abc import Iterator

from detshare.ebpf.bpf import Map

_BUSY = 1 << 31
_DISCARDED = 1 << 30
_HEADER = 8
_WORD = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")


class Ring:
    """One reader of a ring buffer map. Not for several threads."""

    def __init__(self, ring: Map) -> None:
        page = mmap.PAGESIZE
        self._size = ring.spec.entries
        self._consumer = mmap.mmap(ring.fd, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
        # behind the producer's page the data lies twice in a row, so a record that wraps is in one piece too
        self._data = mmap.mmap(ring.fd, page + 2 * self._size, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        # one aligned store, which a byte-wise copy into the mapping is not promised to be
        self._position = ctypes.c_uint64.from_buffer(self._consumer)
        self._poll = select.poll()
        self._poll.register(ring.fd, select.POLLIN)
        self.taken = 0

    def wait(self, seconds: float) -> bool:
        """True when there is something to read within that time."""
        return bool(self._poll.poll(max(0.0, seconds) * 1000))

    def read(self, most: int = 1 << 20) -> Iterator[bytes]:
        """Records that are there, oldest first, at most so many. What was yielded is given back to the kernel."""
        page, mask, data = mmap.PAGESIZE, self._size - 1, self._data
        at = self._position.value
        while most:
            (end,) = _WORD.unpack_from(data, 0)
            if at >= end:
                return
            while at < end and most:
                start = page + (at & mask)
                (length,) = _LENGTH.unpack_from(data, start)
                if length & _BUSY:
                    return
                plain = length & ~(_BUSY | _DISCARDED)
                record = None if length & _DISCARDED else data[start + _HEADER : start + _HEADER + plain]
                at += (plain + _HEADER + 7) & ~7
                self._position.value = at
                if record is not None:
                    self.taken += 1
                    most -= 1
                    yield record

    def close(self) -> None:
        del self._position
        self._consumer.close()
        self._data.close()
