# SPDX-License-Identifier: Apache-2.0
"""A thread that hears of new RM clients and TSGs from the observer `objects` the moment they are made."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.rm.abi import Abi
from detshare.ctl.snapshot import Check
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import Client, Happening

log = logging.getLogger("detshared.births")

_POLL_S: Final = 0.5
"""how soon the thread notices that it is to end"""


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


class Births:
    """Listens from construction to close(). EbpfError where that cannot begin."""

    def __init__(self, abi: Abi, wake: Callable[[], None]) -> None:
        """`wake` is called in this thread when there is something to take(), and when a program has ended."""
        self._wake = wake
        self._group, self._share = abi.klass("KEPLER_CHANNEL_GROUP_A"), abi.klass("FERMI_CONTEXT_SHARE_A")
        self._subdevice = abi.klass("NV20_SUBDEVICE_0")
        self._compute = {number for name, number in abi.classes.items() if "_COMPUTE_" in name}
        channels = {number for name, number in abi.classes.items() if "_CHANNEL_GPFIFO_" in name}
        self._steered = {self._group, self._share, *self._compute, *channels}
        self._tracer = ObjectTracer(abi)
        self._lock = threading.Lock()
        self._born: dict[tuple[int, int], Born] = {}
        self._contexts: dict[tuple[int, int], Context] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="births", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                found = [each for each in self._tracer.poll(_POLL_S) if self._take(each)]
            except Exception as error:  # noqa: BLE001  whatever it is, looks go on
                log.warning("births cannot be heard any more, looks find them: %s", error, exc_info=error)
                return
            if found:
                self._wake()

    def _take(self, happening: Happening) -> bool:
        if happening.kind == "process":
            return not happening.born
        if not happening.born or not (happening.kind == "client" or happening.number in self._steered):
            return False
        client = self._tracer.world.clients.get(happening.client)
        if client is not None:
            with self._lock:
                self._born[client.pid, client.handle] = Born(client.pid, client.fd, client.handle, client.whole)
                if happening.kind == "object" and (context := self._context(client, happening)) is not None:
                    self._contexts[client.handle, context.tsg] = context
        return happening.kind == "object"

    def _context(self, client: Client, happening: Happening) -> Context | None:
        """The compute TSG that a birth is below of. A bare channel has none, and an MPS client's is its server's."""
        above = happening.parent
        if happening.number in self._compute:
            channel = client.objects.get(above)
            above = channel.parent if channel is not None else 0
        elif happening.number != self._share:
            return None
        tsg = client.objects.get(above)
        if tsg is None or tsg.number != self._group or tsg.copied:
            return None
        beside = ((h, each) for h, each in client.objects.items() if each.parent == tsg.parent)
        subdevice = next((handle for handle, each in beside if each.number == self._subdevice), 0)
        return Context(client.pid, client.fd, client.handle, above, tsg.parent, subdevice, tsg.born)

    def take(self) -> list[Born]:
        """Clients that were made, or got what can be steered, since the last call."""
        with self._lock:
            found, self._born = list(self._born.values()), {}
        return found

    def contexts(self) -> list[Context]:
        """Compute TSGs that were made, or got another compute object, since the last call."""
        with self._lock:
            found, self._contexts = list(self._contexts.values()), {}
        return found

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
