# SPDX-License-Identifier: Apache-2.0
"""A thread that hears of new RM clients and TSGs from the observer `objects` the moment they are made."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.snapshot import Check
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import Client, Object, ObjectChange

log = logging.getLogger("detshared.births")

_POLL_S: Final = 0.5
"""how soon the thread notices that it is to end"""
_AT_ONCE: Final = 64
"""changes after which somebody is woken, though there are more to be read; at a context it is done at once"""
_LATER_S: Final = 0.005
_LATEST_S: Final = 0.02
"""of what is no context, somebody is told when nothing came for so long, at the latest after so long"""
_AGAIN_NS: Final = 10_000_000
"""a program that sets its slice sooner again than this is not answered at once each time"""
_MOST_ANSWERED: Final = 4096
_STANDS_BACK_S: Final = 0.05
"""for how long a context that is to get its class keeps this thread from reading on, which would take the interpreter's
time from who gives it; the ring keeps what comes meanwhile"""


@dataclass(frozen=True, slots=True)
class Born:
    """An RM client of a process and the descriptor that it was made on. `whole`: its birth was seen."""

    pid: int
    fd: int
    client: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Context:
    """A TSG that is known to be for compute, for it has a context share or a compute object below it."""

    pid: int
    fd: int
    client: int
    tsg: int
    device: int
    subdevice: int
    """0: not known"""
    born: int
    """when the TSG was made; CLOCK_MONOTONIC, ns"""
    told: int = 0
    """when it was told to be for compute: its program made what says so"""
    heard: int = 0
    """when that was heard here"""
    again: bool = False
    """it is an older one, to which its program gave a slice of its own"""


class BirthObserver:
    """Listens from construction to close(). EbpfError where that cannot begin."""

    def __init__(self, abi: Abi, wake: Callable[[], None]) -> None:
        """`wake` is called in this thread when there is something to take(), and when a program has ended."""
        self._wake = wake
        self._group, self._share = abi.klass("KEPLER_CHANNEL_GROUP_A"), abi.klass("FERMI_CONTEXT_SHARE_A")
        self._subdevice = abi.klass("NV20_SUBDEVICE_0")
        self._compute = {number for name, number in abi.classes.items() if "_COMPUTE_" in name}
        channels = {number for name, number in abi.classes.items() if "_CHANNEL_GPFIFO_" in name}
        self._steered = {self._group, self._share, *self._compute, *channels}
        self._tracer = ObjectTracer(abi, control="NVA06C_CTRL_CMD_SET_TIMESLICE")
        self._answered: dict[tuple[int, int], int] = {}
        """(client, TSG) -> when a slice of its program's own was told of last, ns"""
        self._lock = threading.Lock()
        self._born: dict[tuple[int, int], Born] = {}
        self._contexts: dict[tuple[int, int], Context] = {}
        self._over = threading.Event()
        self._applied = threading.Event()
        self._context_heard = False
        self._worth_since: float | None = None
        """since when there is something to be told of that is no context; None: nothing is"""
        self.meet: Callable[[int], None] = lambda pid: None
        """is called in this thread with the PID of a program that made a client: it may make a context soon"""
        self._thread = threading.Thread(target=self._run, name="births", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._hear()
            except Exception as error:  # noqa: BLE001  whatever it is, looks go on
                log.warning("births cannot be heard any more, looks find them: %s", error, exc_info=error)
                return

    def _hear(self) -> None:
        heard = False
        for each in self._tracer.poll(_POLL_S if self._worth_since is None else _LATER_S, _AT_ONCE):
            heard, self._context_heard = True, False
            if self._take(each) and self._worth_since is None:
                self._worth_since = time.monotonic()
            if self._context_heard:
                self._worth_since = None
                self._applied.clear()
                self._wake()
                self._applied.wait(_STANDS_BACK_S)
        # who is woken would take the interpreter's time from a context that is just being made
        if self._worth_since is not None and not (heard and time.monotonic() - self._worth_since < _LATEST_S):
            self._worth_since = None
            self._wake()

    def _take(self, change: ObjectChange) -> bool:
        if change.kind == "process":
            return not change.born
        if change.kind == "control":
            return self._resliced(change)
        if not change.born or not (change.kind == "client" or change.number in self._steered):
            return False
        client = self._tracer.world.clients.get(change.client)
        if client is not None:
            if change.kind == "client":
                self.meet(client.pid)
            with self._lock:
                self._born[client.pid, client.handle] = Born(client.pid, client.fd, client.handle, client.whole)
                if change.kind == "object" and (context := self._context(client, change)) is not None:
                    self._contexts[client.handle, context.tsg] = context
                    self._context_heard = True
        return change.kind == "object"

    def _resliced(self, change: ObjectChange) -> bool:
        """A program set the slice of a TSG itself, as libcuda does once, late in making a context."""
        client = self._tracer.world.clients.get(change.client)
        tsg = client.objects.get(change.handle) if client is not None else None
        if client is None or tsg is None or not self._computes(client, change.handle):
            return False
        key, now = (client.handle, change.handle), time.monotonic_ns()
        last = self._answered.get(key, 0)
        if len(self._answered) >= _MOST_ANSWERED:
            self._answered.clear()
        self._answered[key] = now
        if now - last < _AGAIN_NS:
            return True  # who does it again and again is for looks
        subdevice = self._subdevice_of(client, tsg)
        when = (tsg.born, change.when, now)
        with self._lock:
            self._contexts[key] = Context(client.pid, client.fd, *key, tsg.parent, subdevice, *when, again=True)
        self._context_heard = True
        return True

    def _computes(self, client: Client, tsg: int) -> bool:
        """Whether it is a TSG of the client's own that is known to be for compute."""
        found = client.objects[tsg]
        if found.number != self._group or found.copied:
            return False
        below = {handle: each.number for handle, each in client.objects.items() if each.parent == tsg}
        if self._share in below.values():
            return True
        return any(each.parent in below and each.number in self._compute for each in client.objects.values())

    def _subdevice_of(self, client: Client, tsg: Object) -> int:
        """0: not known."""
        beside = ((handle, each) for handle, each in client.objects.items() if each.parent == tsg.parent)
        return next((handle for handle, each in beside if each.number == self._subdevice), 0)

    def _context(self, client: Client, change: ObjectChange) -> Context | None:
        """The compute TSG that a birth is below of. A bare channel has none, and an MPS client's is its server's."""
        above = change.parent
        if change.number in self._compute:
            channel = client.objects.get(above)
            above = channel.parent if channel is not None else 0
        elif change.number != self._share:
            return None
        tsg = client.objects.get(above)
        if tsg is None or tsg.number != self._group or tsg.copied:
            return None
        subdevice = self._subdevice_of(client, tsg)
        when = (tsg.born, change.when, time.monotonic_ns())
        return Context(client.pid, client.fd, client.handle, above, tsg.parent, subdevice, *when)

    def take(self) -> list[Born]:
        """Clients that were made, or got what can be steered, since the last call."""
        with self._lock:
            found, self._born = list(self._born.values()), {}
        return found

    def contexts(self) -> list[Context]:
        """Compute TSGs that were made, or got another compute object or a slice of their program's, since then."""
        with self._lock:
            found, self._contexts = list(self._contexts.values()), {}
        return found

    def done(self) -> None:
        """Who took the contexts has done with them what he would."""
        self._applied.set()

    def doctor(self) -> Check:
        """Whether births are heard, and whether all were."""
        if not self._thread.is_alive():
            return Check("births", False, "new contexts are not heard of any more, only seen", "restart detshared")
        trouble = self._tracer.trouble().words()
        if trouble:
            return Check("births", None, f"{'; '.join(trouble)}: looks find what was not heard of")
        return Check("births", True, f"new contexts are heard of by eBPF ({self._tracer.how})")

    def close(self) -> None:
        """Idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(_POLL_S * 4)
            self._tracer.close()
