# SPDX-License-Identifier: Apache-2.0
"""bpf(2) by its number: maps, and programs attached to raw tracepoints. Independent of libbpf and bcc."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

from detshare.ebpf.errors import EbpfError

_NR_BPF = 321  # x86-64
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _MAP_NEXT_KEY = 0, 1, 2, 3, 4
_RAW_TRACEPOINT_OPEN, _MAP_LOOKUP_BATCH, _LINK_CREATE = 17, 24, 28
_BATCH = 4096
"""entries that are read by one call, unless a bucket of a hash has more"""
_ATTACH_PERF_EVENT = 41
UPROBE_MULTI = 48
"""BPF_TRACE_UPROBE_MULTI: a program's expected attach type for link_uprobes()"""
_ATTR = 144  # bytes of union bpf_attr that are given; what lies behind a kernel's own size must be zero, and is


class MapKind(IntEnum):
    """enum bpf_map_type, as far as it is used here."""

    HASH = 1
    ARRAY = 2
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    RINGBUF = 27


_PER_CPU = (MapKind.PERCPU_HASH, MapKind.PERCPU_ARRAY)


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A map that a program uses: bytes of key and value, and most entries (ring buffer: bytes, a power of two)."""

    name: str
    kind: MapKind
    key: int
    value: int
    entries: int


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    """bpf(2) with the beginning of a union bpf_attr; OSError."""
    return _bpf(command, ctypes.create_string_buffer(attributes.ljust(_ATTR, b"\0"), _ATTR))


def _bpf(command: int, block: ctypes.Array[ctypes.c_char]) -> int:
    """With all of one, which the kernel may write to; OSError."""
    done = int(_libc().syscall(_NR_BPF, command, block, _ATTR))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done


@cache
def possible_cpus() -> int:
    """How many values a map with one for each CPU has."""
    text = Path("/sys/devices/system/cpu/possible").read_text().strip()
    return int(text.rpartition(",")[2].rpartition("-")[2]) + 1


def refused(asked: str, error: OSError) -> EbpfError:
    """What a refusal of bpf(2) or perf_event_open(2) means, and what can be done."""
    # a program that uses what lockdown took away is an invalid one
    if error.errno in (errno.EPERM, errno.EACCES, errno.EINVAL) and (locked := lockdown()):
        return EbpfError(
            asked,
            f"this kernel is locked down ({locked}), which keeps programs from reading kernel memory",
            "boot without lockdown=confidentiality, or do without eBPF",
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return EbpfError(
            asked,
            f"not permitted ({error.strerror}): that needs CAP_BPF and CAP_PERFMON",
            "run as root in the initial user namespace (a container needs --privileged, or these capabilities)",
        )
    if error.errno == errno.ENOSYS or (error.errno == errno.EINVAL and platform.machine() != "x86_64"):
        return EbpfError(asked, "this kernel has no eBPF of the kind that is needed", "use Linux 5.10 or newer, x86-64")
    return EbpfError(asked, error.strerror or str(error), "see `detshare-trace doctor`")


def lockdown() -> str:
    """"confidentiality" where that is in force; integrity alone allows all that is used here."""
    try:
        text = Path("/sys/kernel/security/lockdown").read_text()
    except OSError:
        return ""
    return "confidentiality" if "[confidentiality]" in text else ""


class Map:
    """A map of the kernel, ours until it is closed."""

    def __init__(self, spec: MapSpec) -> None:
        self.spec = spec
        kind = int(spec.kind)
        name = spec.name.encode()[:15]
        packed = struct.pack("<IIIIIII16s", kind, spec.key, spec.value, spec.entries, 0, 0, 0, name)
        try:
            self.fd = bpf(_MAP_CREATE, packed)
        except OSError as error:
            raise refused(f"make the eBPF map {spec.name}", error) from error
        per_cpu = spec.kind in _PER_CPU
        self._stride = (spec.value + 7) // 8 * 8
        self._room = self._stride * possible_cpus() if per_cpu else spec.value
        self._key = ctypes.create_string_buffer(max(spec.key, 1))
        self._next = ctypes.create_string_buffer(max(spec.key, 1))
        self._value = ctypes.create_string_buffer(max(self._room, 1))

    def _element(self, command: int, value: ctypes.Array[ctypes.c_char] | None, flags: int = 0) -> bool:
        at = ctypes.addressof(value) if value is not None else 0
        try:
            bpf(command, struct.pack("<IIQQQ", self.fd, 0, ctypes.addressof(self._key), at, flags))
        except FileNotFoundError:
            return False
        return True

    def get(self, key: bytes) -> bytes | None:
        """The value; of a map with one for each CPU all of them, each filled up to a multiple of 8 bytes."""
        ctypes.memmove(self._key, key, len(key))
        return bytes(self._value.raw[: self._room]) if self._element(_MAP_LOOKUP, self._value) else None

    def per_cpu(self, key: bytes) -> list[bytes]:
        """The values of all CPUs."""
        whole = self.get(key)
        if whole is None:
            return []
        return [whole[at : at + self.spec.value] for at in range(0, len(whole), self._stride)]

    def set(self, key: bytes, value: bytes) -> None:
        """OSError with E2BIG where a hash is full."""
        ctypes.memmove(self._key, key, len(key))
        ctypes.memmove(self._value, value, len(value))
        self._element(_MAP_UPDATE, self._value)

    def drop(self, key: bytes) -> bool:
        """False: there was none."""
        ctypes.memmove(self._key, key, len(key))
        return self._element(_MAP_DELETE, None)

    def keys(self) -> Iterator[bytes]:
        """All keys. Entries that come or go meanwhile may be missed; one that is dropped begins the walk anew."""
        previous = 0
        while True:
            packed = struct.pack("<IIQQQ", self.fd, 0, previous, ctypes.addressof(self._next), 0)
            try:
                bpf(_MAP_NEXT_KEY, packed)
            except FileNotFoundError:
                return
            found = bytes(self._next.raw[: self.spec.key])
            last = ctypes.create_string_buffer(found, max(len(found), 1))
            previous = ctypes.addressof(last)
            yield found

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries, each once, a few calls for all of them (Linux 5.6); values as get() has them."""
        most, before, after = min(_BATCH, self.spec.entries), 0, ctypes.create_string_buffer(max(self.spec.key, 4))
        while True:
            keys = ctypes.create_string_buffer(most * self.spec.key)
            values = ctypes.create_string_buffer(most * self._room)
            places = (before, *map(ctypes.addressof, (after, keys, values)))
            block = ctypes.create_string_buffer(struct.pack("<QQQQIIQQ", *places, most, self.fd, 0, 0), _ATTR)
            more = True
            try:
                _bpf(_MAP_LOOKUP_BATCH, block)
            except FileNotFoundError:
                more = False
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                most *= 2  # a bucket has more than there was room for
                continue
            (count,) = struct.unpack_from("<I", block, 32)
            found, beside = keys.raw, values.raw
            for number in range(count):
                key, value = number * self.spec.key, number * self._room
                yield found[key : key + self.spec.key], beside[value : value + self._room]
            if not more:
                return
            before = ctypes.addressof(after)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_raw_tracepoint(name: str | None, program: int) -> int:
    """A link: the program runs at that raw tracepoint (None: where it was loaded for) until it is closed."""
    text = ctypes.create_string_buffer(name.encode()) if name is not None else None
    at = ctypes.addressof(text) if text is not None else 0
    try:
        return bpf(_RAW_TRACEPOINT_OPEN, struct.pack("<QI", at, program))
    except OSError as error:
        raise refused(f"attach to {name or 'a function of the kernel'}", error) from error


def link_perf_event(event: int, program: int, cookie: int) -> int:
    """A link: the program runs at that perf event until both are closed; OSError."""
    return bpf(_LINK_CREATE, struct.pack("<IIIIQ", program, event, _ATTACH_PERF_EVENT, 0, cookie))


def has_uprobe_multi() -> bool:
    """Whether this kernel attaches many uprobes at once (Linux 6.6): one by one, each waits 0.1 s to be detached."""
    digits = [part for part in re.split(r"[.\-+]", os.uname().release)[:2] if part.isdigit()]
    return [int(part) for part in digits] >= [6, 6]


def link_uprobes(path: str, program: int, probes: Sequence[tuple[int, int]], *, on_return: bool, pid: int) -> int:
    """A link: the program runs at each (offset, cookie) of that file, in one process or (0) in all. EbpfError."""
    offsets = (ctypes.c_uint64 * len(probes))(*(offset for offset, _ in probes))
    cookies = (ctypes.c_uint64 * len(probes))(*(cookie for _, cookie in probes))
    name = ctypes.create_string_buffer(os.fsencode(path))
    packed = struct.pack(
        "<IIIIQQQQIII",
        *(program, 0, UPROBE_MULTI, 0, ctypes.addressof(name), ctypes.addressof(offsets), 0),
        *(ctypes.addressof(cookies), len(probes), int(on_return), pid),
    )
    try:
        return bpf(_LINK_CREATE, packed)
    except OSError as error:
        raise refused(f"attach to {len(probes)} functions of {path}", error) from error
