# SPDX-License-Identifier: Apache-2.0
"""A thread that cuts epochs of `dirty` one after the other and keeps the last ones of each program."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.epochs import KEPT, Epoch
from detshare.ebpf.rarely import rarely

log = logging.getLogger("detshare.dirty")

_POLL_S: Final = 0.05


class DirtyWatch:
    """Watches from its making until it is closed. For several threads."""

    def __init__(
        self,
        interval: float = 1.0,
        *,
        only: int | None = None,
        libcuda: Iterable[str] = (),
        devices: Iterable[int] = (),
        strict: bool = False,
    ) -> None:
        """`interval`: seconds of an epoch; the others as of DirtyTracer. EbpfError."""
        self.interval = interval
        self._only = only
        self._tracer = DirtyTracer(only=only, libcuda=libcuda, devices=devices, strict=strict)
        self._changed = threading.Condition()
        self._kept: dict[int, deque[Epoch]] = {}
        self._notes: list[str] = []
        self._failure = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dirty", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            ends = time.monotonic() + self.interval
            look = rarely(self._tracer.look)
            while not self._over.is_set():
                self._tracer.poll(min(_POLL_S, self.interval))
                look()
                if time.monotonic() >= ends:
                    self._cut()
                    ends = max(ends + self.interval, time.monotonic())
        except Exception as error:
            log.exception("what programs write is not watched any more")
            with self._changed:
                self._failure = f"the watch ended by an error ({type(error).__name__}: {error})"
                self._changed.notify_all()

    def _cut(self) -> None:
        self._tracer.cut()
        alive = [self._only] if self._only is not None else self._tracer.programs()
        found = {pid: self._tracer.epoch(pid) for pid in alive}
        self._tracer.settle()
        with self._changed:
            for pid, epoch in found.items():
                self._kept.setdefault(pid, deque(maxlen=KEPT)).append(epoch)
            for pid in [pid for pid in self._kept if not os.path.exists(f"/proc/{pid}")]:
                del self._kept[pid]
                self._tracer.forget(pid)
            self._notes = self._tracer.notes()
            self._changed.notify_all()

    def epochs(self, pid: int, after: int = -1) -> list[Epoch]:
        """Kept epochs of a program that come after that number, oldest first; empty where none is known."""
        with self._changed:
            return self._after(pid, after)

    def wait(self, pid: int, after: int, seconds: float) -> list[Epoch]:
        """The same, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._after(pid, after), seconds)
            return self._after(pid, after)

    def _after(self, pid: int, after: int) -> list[Epoch]:
        return [each for each in self._kept.get(pid, ()) if each.number > after]

    def notes(self) -> list[str]:
        """Why the view of all programs is partial; empty when it is whole."""
        with self._changed:
            return [*self._notes, *filter(None, [self._failure])]

    def close(self) -> None:
        """Idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self._tracer.close()
