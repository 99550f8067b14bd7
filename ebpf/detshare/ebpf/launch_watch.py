# SPDX-License-Identifier: Apache-2.0
"""What every program launched so far, read now and then by somebody who looks at all of them anyway."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from detshare.ebpf import libraries
from detshare.ebpf.launches import COPIES, Kind, LaunchTracer
from detshare.ebpf.rarely import rarely

__all__ = ["LaunchWatch", "Sums"]

log = logging.getLogger("detshare.launches")

_LOOK_S: Final = 1.0
"""from one search for new libraries to the next"""
_READ_S: Final = 0.1
"""from one reading of the tables to the next, at least"""
_NO_LIBCUDA: Final = "it holds a GPU and maps no libcuda (a static program?): its calls are not seen"
_EARLIER: Final = "it used its libcuda before that was watched: earlier calls are not counted"


@dataclass(slots=True)
class Sums:
    """Of one process, since it was seen first. A kernel's shape: (blocks of its grid, threads of a block)."""

    launches: int = 0
    graphs: int = 0
    copies: int = 0
    copied_bytes: int = 0
    fills: int = 0
    waits: int = 0
    wait_ns: int = 0
    shapes: Counter[tuple[int, int]] = field(default_factory=Counter)
    requests: dict[int, int] = field(default_factory=dict)
    """bucket (launches.seconds_of) -> how many"""
    partial: tuple[str, ...] = ()


class LaunchWatch:
    """Counts from its making until it is closed. A thread looks for libraries; read() is for any thread."""

    def __init__(
        self, *, libcuda: Iterable[str] = (), tracer: Callable[..., LaunchTracer] = LaunchTracer
    ) -> None:
        """EbpfError."""
        self._tracer = tracer(libcuda=libcuda)
        self.how = self._tracer.how
        self._sums: dict[int, Sums] = {}
        self._read = rarely(self._read_now, _READ_S)
        self._notes: list[str] = []
        self._general: tuple[str, ...] = ()
        self._blind: frozenset[int] = frozenset()
        self._failure = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="launches", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        look = rarely(self._look, _LOOK_S)
        try:
            while not self._over.wait(_LOOK_S / 2):
                look()
        except Exception as error:
            log.exception("new libraries are not looked for any more")
            self._failure = f"new libraries are not looked for any more ({type(error).__name__}: {error})"

    def _look(self) -> None:
        self._tracer.look()
        self._notes = self._tracer.notes()
        self._general = tuple(self._tracer.trouble().words())
        self._blind = frozenset(libraries.without_libcuda())

    def read(self) -> Mapping[int, Sums]:
        """By PID, at most ten times a second and for a twentieth of the time: else what was read last."""
        with self._lock:
            if not self._over.is_set():
                self._read()
            return self._sums

    def _read_now(self) -> None:
        found: dict[int, Sums] = {}
        for each in self._tracer.counts():
            sums = found.setdefault(each.pid, Sums())
            if each.kind is Kind.LAUNCH:
                sums.launches += each.calls
            elif each.kind is Kind.GRAPH:
                sums.graphs += each.calls
            elif each.kind in COPIES:
                sums.copies += each.calls
                sums.copied_bytes += each.bytes
            elif each.kind is Kind.MEMSET:
                sums.fills += each.calls
            elif each.kind is Kind.SYNC:
                sums.waits += each.calls
                sums.wait_ns += each.ns
        for shaped in self._tracer.shapes():
            if shaped.pid in found:
                (gx, gy, gz), (bx, by, bz) = shaped.grid, shaped.block
                found[shaped.pid].shapes[gx * gy * gz, bx * by * bz] += shaped.calls
        for pid, buckets in self._tracer.requests().items():
            if pid in found:
                found[pid].requests = buckets
        if ended := [pid for pid in found if not os.path.exists(f"/proc/{pid}")]:
            self._tracer.forget(*ended)
            found = {pid: sums for pid, sums in found.items() if pid not in ended}
        for pid, sums in found.items():
            sums.partial = (*(() if self._tracer.probes.whole(pid) else (_EARLIER,)), *self._general)
        for pid in self._blind - found.keys():
            found[pid] = Sums(partial=(_NO_LIBCUDA,))
        self._sums = found

    def forget(self, pid: int) -> None:
        """Another process has that number now."""
        with self._lock:
            if not self._over.is_set():
                self._tracer.forget(pid)
                self._sums = {each: sums for each, sums in self._sums.items() if each != pid}

    def notes(self) -> list[str]:
        """Why the view of all programs is partial; empty when it is whole."""
        return [*self._notes, *filter(None, [self._failure])]

    def close(self) -> None:
        """Idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            with self._lock:
                self._tracer.close()
