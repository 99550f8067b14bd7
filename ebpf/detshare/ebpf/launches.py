# SPDX-License-Identifier: Apache-2.0
"""Launches, copies, fills and waits by process and stream, from launches.bpf.c."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from detshare.ebpf.bpf import MapKind, MapSpec
from detshare.ebpf.loader import Loaded, Trouble
from detshare.ebpf.probes import MAPS, Probes, Shape

STREAMS = 16384
"""pairs of kind and stream that are kept apart"""
SHAPES = 65536
REQUESTS = 16384
"""pairs of process and bucket: a process has some hundred at most"""
_COUNT_KEY = struct.Struct("<IIQ")
_COUNT = struct.Struct("<QQQQ")
_SHAPE = struct.Struct("<IIIIIIIIQ")
_WAIT = 24
_REQUEST = struct.Struct("<II")
_REQUEST_BITS = 4


class Kind(IntEnum):
    """enum ds_launch_kind."""

    LAUNCH = 1
    LAUNCH_CONFIG = 2
    LAUNCH_OLD = 3
    GRAPH = 4
    COPY_HTOD = 5
    COPY_DTOH = 6
    COPY_DTOD = 7
    COPY_OTHER = 8
    COPY_2D = 9
    COPY_3D = 10
    MEMSET = 11
    SYNC = 12
    SYNC_EVENT = 13


COPIES = (Kind.COPY_HTOD, Kind.COPY_DTOH, Kind.COPY_DTOD, Kind.COPY_OTHER)
NAMES = {
    Kind.LAUNCH: "launch",
    Kind.GRAPH: "graph",
    Kind.COPY_HTOD: "host-to-device",
    Kind.COPY_DTOH: "device-to-host",
    Kind.COPY_DTOD: "device-to-device",
    Kind.COPY_OTHER: "copy",
    Kind.MEMSET: "fill",
    Kind.SYNC: "wait",
}


def _table() -> dict[str, Shape]:
    table = {
        "cuLaunchKernel": Shape(Kind.LAUNCH, stream=9),
        "cuLaunchCooperativeKernel": Shape(Kind.LAUNCH, stream=9),
        "cuLaunchKernelEx": Shape(Kind.LAUNCH_CONFIG),
        "cuLaunch": Shape(Kind.LAUNCH_OLD),
        "cuLaunchGrid": Shape(Kind.LAUNCH_OLD, second=1),
        "cuLaunchGridAsync": Shape(Kind.LAUNCH_OLD, stream=4, second=1),
        "cuGraphLaunch": Shape(Kind.GRAPH, stream=2),
        "cuMemcpy": Shape(Kind.COPY_OTHER, bytes=3),
        "cuMemcpyAsync": Shape(Kind.COPY_OTHER, bytes=3, stream=4),
        "cuMemcpyPeer": Shape(Kind.COPY_DTOD, bytes=5),
        "cuMemcpyPeerAsync": Shape(Kind.COPY_DTOD, bytes=5, stream=6),
        "cuMemcpyDtoA": Shape(Kind.COPY_DTOD, bytes=4, old=True),
        "cuMemcpyAtoD": Shape(Kind.COPY_DTOD, bytes=4, old=True),
        "cuMemcpyAtoA": Shape(Kind.COPY_DTOD, bytes=5, old=True),
        "cuMemcpyHtoA": Shape(Kind.COPY_HTOD, bytes=4, old=True),
        "cuMemcpyAtoH": Shape(Kind.COPY_DTOH, bytes=4, old=True),
        "cuMemcpyHtoAAsync": Shape(Kind.COPY_HTOD, bytes=4, stream=5, old=True),
        "cuMemcpyAtoHAsync": Shape(Kind.COPY_DTOH, bytes=4, stream=5, old=True),
        "cuMemcpyBatchAsync": Shape(Kind.COPY_OTHER),
        "cuMemcpy3DBatchAsync": Shape(Kind.COPY_OTHER),
        "cuStreamSynchronize": Shape(Kind.SYNC, stream=1, timed=True),
        "cuCtxSynchronize": Shape(Kind.SYNC_EVENT, timed=True),
        "cuEventSynchronize": Shape(Kind.SYNC_EVENT, timed=True),
    }
    for way, kind in (("HtoD", Kind.COPY_HTOD), ("DtoH", Kind.COPY_DTOH), ("DtoD", Kind.COPY_DTOD)):
        table[f"cuMemcpy{way}"] = Shape(kind, bytes=3, old=True)
        table[f"cuMemcpy{way}Async"] = Shape(kind, bytes=3, stream=4, old=True)
    for name, kind in (("2D", Kind.COPY_2D), ("2DUnaligned", Kind.COPY_2D), ("3D", Kind.COPY_3D)):
        table[f"cuMemcpy{name}"] = Shape(kind, target=1)
    table["cuMemcpy3DPeer"] = Shape(Kind.COPY_3D, target=1)
    for name, kind in (("2D", Kind.COPY_2D), ("3D", Kind.COPY_3D), ("3DPeer", Kind.COPY_3D)):
        table[f"cuMemcpy{name}Async"] = Shape(kind, target=1, stream=2)
    for bits in (8, 16, 32):
        size = bits // 8
        table[f"cuMemsetD{bits}"] = Shape(Kind.MEMSET, bytes=3, scale=size, old=True)
        table[f"cuMemsetD{bits}Async"] = Shape(Kind.MEMSET, bytes=3, scale=size, stream=4)
        table[f"cuMemsetD2D{bits}"] = Shape(Kind.MEMSET, bytes=4, second=5, scale=size, old=True)
        table[f"cuMemsetD2D{bits}Async"] = Shape(Kind.MEMSET, bytes=4, second=5, scale=size, stream=6)
    return table


TABLE = _table()


def seconds_of(bucket: int) -> float:
    """The upper end of a bucket of requests()."""
    octave, rest = divmod(bucket, 1 << _REQUEST_BITS)
    return float(2**octave * (1 + (rest + 1) / (1 << _REQUEST_BITS)) / 1e9)


@dataclass(frozen=True, slots=True)
class Count:
    """Sums of one kind in one stream of one process since the tracer began. `ns` is time inside, of waits."""

    pid: int
    kind: Kind
    stream: int
    calls: int
    bytes: int
    ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class Shaped:
    """How often a process launched a function with one grid and block; a block of zeros: set before the launch."""

    pid: int
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    calls: int


class LaunchTracer:
    """Counts from its making until it is closed."""

    def __init__(
        self,
        *,
        only: int | None = None,
        libcuda: Iterable[str] = (),
        streams: int = STREAMS,
        shapes: int = SHAPES,
    ) -> None:
        """`libcuda`: libraries to watch besides those that are found. EbpfError."""
        self._program = Loaded(
            "launches",
            (
                *MAPS,
                MapSpec("counts", MapKind.HASH, _COUNT_KEY.size, _COUNT.size, streams),
                MapSpec("shapes", MapKind.HASH, _SHAPE.size, 8, shapes),
                MapSpec("waits", MapKind.HASH, 8, _WAIT, 16384),
                MapSpec("begun", MapKind.HASH, 4, 8, 16384),
                MapSpec("requests", MapKind.HASH, _REQUEST.size, 8, REQUESTS),
            ),
            many=("entered", "left"),
        )
        self._extra = tuple(libcuda)
        self.how = self._program.how
        try:
            self.probes = Probes(self._program, TABLE, lambda shape: "entered", "left", only=only)
            self.probes.look(self._extra)
        except BaseException:
            self._program.close()
            raise

    def look(self) -> int:
        """Attaches to libraries that programs began to use since; how many."""
        return self.probes.look(self._extra)

    def counts(self) -> list[Count]:
        """All sums, most calls first."""
        found = []
        for key, value in self._program.maps["counts"].items():
            pid, kind, stream = _COUNT_KEY.unpack(key)
            found.append(Count(pid, Kind(kind), stream, *_COUNT.unpack(value)))
        return sorted(found, key=lambda each: -each.calls)

    def shapes(self) -> list[Shaped]:
        """All launches by shape, most first."""
        found = []
        for key, value in self._program.maps["shapes"].items():
            pid, gx, gy, gz, bx, by, bz, _, function = _SHAPE.unpack(key)
            found.append(Shaped(pid, function, (gx, gy, gz), (bx, by, bz), struct.unpack("<Q", value)[0]))
        return sorted(found, key=lambda each: -each.calls)

    def requests(self) -> dict[int, dict[int, int]]:
        """Of each process: bucket -> requests that took so long, as seen from outside (launches.bpf.c)."""
        found: dict[int, dict[int, int]] = {}
        for key, value in self._program.maps["requests"].items():
            pid, bucket = _REQUEST.unpack(key)
            found.setdefault(pid, {})[bucket] = struct.unpack("<Q", value)[0]
        return found

    def forget(self, *pids: int) -> None:
        """Frees what is kept of processes that have ended."""
        ended = {struct.pack("<I", pid) for pid in pids}
        for name in ("counts", "shapes", "begun", "requests"):
            made = self._program.maps[name]
            for key in [key for key, _ in made.items() if key[:4] in ended]:
                made.drop(key)

    def trouble(self) -> Trouble:
        """What was lost so far."""
        return self._program.trouble()

    def notes(self) -> list[str]:
        """Why the view is partial; empty when it is whole."""
        return [*self._program.notes, *self.trouble().words(), *self.probes.notes()]

    def close(self) -> None:
        """Detaches."""
        self._program.close()
