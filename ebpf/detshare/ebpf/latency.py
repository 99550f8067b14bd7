# SPDX-License-Identifier: Apache-2.0
"""Histograms of how long programs wait in the driver, on faults and at gates, from latency.bpf.c."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from detshare.ebpf.attach import has_tracepoint
from detshare.ebpf.bpf import MapKind, MapSpec
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.loader import Loaded, Trouble

_BUCKETS = 40
_KEY, _VALUE = struct.Struct("<IHH"), struct.Struct(f"<QQQ{_BUCKETS}Q")
_COMMANDS = ("DETSHARE_CMD_GATED", "DETSHARE_CMD_OPENED", "DETSHARE_CMD_PAUSED", "DETSHARE_CMD_RESUMED")


class Kind(IntEnum):
    """enum ds_latency_kind."""

    IOCTL = 1
    DRIVER = 2
    FAULT = 3
    GATE = 4
    HELD = 5
    PAUSED = 6


NAMES = {
    Kind.IOCTL: "ioctl",
    Kind.DRIVER: "driver",
    Kind.FAULT: "doorbell fault",
    Kind.GATE: "wait at a gate",
    Kind.HELD: "gate shut",
    Kind.PAUSED: "paused",
}
FUNCTIONS = {
    Kind.DRIVER: ("nvidia_unlocked_ioctl", "nvidia_frontend_unlocked_ioctl"),
    Kind.FAULT: ("ds_door_fault",),
    Kind.GATE: ("ds_gate_wait",),
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """Of one kind for one process. `detail`: escape of an ioctl, GPU of a hold. Times in ns; buckets: log2 -> count."""

    pid: int
    kind: Kind
    detail: int
    count: int
    sum: int
    most: int
    buckets: dict[int, int]

    def percentile(self, share: float) -> int:
        """Upper bound of the bucket that so many, from 0 to 1, do not exceed."""
        left = share * self.count
        for bucket, count in sorted(self.buckets.items()):
            left -= count
            if left <= 0:
                return int(min(2 ** (bucket + 1), max(self.most, 1)))
        return self.most


class LatencyTracer:
    """Measures from its making until it is closed. What cannot be attached to is said in notes()."""

    def __init__(self, number: Callable[[str], int], *, entries: int = 4096) -> None:
        """`number`: of a message of the module's netlink family; called where the module is loaded."""
        self._program = Loaded(
            "latency",
            (
                MapSpec("histograms", MapKind.HASH, _KEY.size, _VALUE.size, entries),
                MapSpec("since", MapKind.HASH, 16, 16, 16384),
                MapSpec("empty", MapKind.PERCPU_ARRAY, 4, _VALUE.size, 1),
                MapSpec("commands", MapKind.ARRAY, 4, 4, len(_COMMANDS)),
            ),
        )
        self.how = self._program.how
        self._missing: list[str] = []
        try:
            self._program.tracepoint("syscalls/sys_exit_ioctl", "ioctl_exit")
            self._program.tracepoint("syscalls/sys_enter_ioctl", "ioctl_enter")
            if has_tracepoint("detshare/detshare_hold"):
                self._tell_commands(number)
                self._program.tracepoint("detshare/detshare_hold", "held")
            else:
                self._missing.append("gates and pauses: detshare.ko is not loaded")
            known = _functions()
            for kind, names in FUNCTIONS.items():
                self._function(kind, [name for name in names if name in known])
        except BaseException:
            self._program.close()
            raise

    def _tell_commands(self, number: Callable[[str], int]) -> None:
        for slot, name in enumerate(_COMMANDS):
            self._program.maps["commands"].set(struct.pack("<I", slot), struct.pack("<I", number(name)))

    def _function(self, kind: Kind, names: list[str]) -> None:
        if not names:
            self._missing.append(f"{NAMES[kind]}: no function of that kind in this kernel's modules")
            return
        try:
            self._program.kprobe(names[0], "function_exit", cookie=int(kind), on_return=True)
            self._program.kprobe(names[0], "function_enter", cookie=int(kind))
        except EbpfError as error:
            self._missing.append(f"{NAMES[kind]}: {error.why}")

    def histograms(self) -> list[Histogram]:
        """All, by process and kind."""
        found = []
        for key, value in self._program.maps["histograms"].items():
            pid, kind, detail = _KEY.unpack(key)
            count, total, most, *buckets = _VALUE.unpack(value)
            filled = {number: each for number, each in enumerate(buckets) if each}
            found.append(Histogram(pid, Kind(kind), detail, count, total, most, filled))
        return sorted(found, key=lambda each: (each.pid, each.kind, each.detail))

    def trouble(self) -> Trouble:
        """What was lost so far."""
        return self._program.trouble()

    def notes(self) -> list[str]:
        """Why the view is partial; empty when it is whole."""
        return [*self._program.notes, *self.trouble().words(), *self._missing]

    def close(self) -> None:
        """Detaches."""
        self._program.close()


def _functions() -> set[str]:
    wanted = {name for names in FUNCTIONS.values() for name in names}
    with suppress(OSError):
        return wanted & set(_symbols())
    return set()


def _symbols() -> Iterator[str]:
    with Path("/proc/kallsyms").open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) > 3:  # those of modules only: the fourth is its name
                yield fields[2]
