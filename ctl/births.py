# SPDX-License-Identifier: Apache-2.0
"""A thread that hears of new RM clients and TSGs from the observer `objects` the moment they are made."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.rm.abi import Abi
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import Happening

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


class Births:
    """Listens from construction to close(). EbpfError where that cannot begin."""

    def __init__(self, abi: Abi, wake: Callable[[], None]) -> None:
        """`wake` is called in this thread when there is something to take(), and when a program has ended."""
        self._wake = wake
        self._steered = {
            number
            for name, number in abi.classes.items()
            if name == "KEPLER_CHANNEL_GROUP_A" or "_CHANNEL_GPFIFO_" in name or "_COMPUTE_" in name
        }
        self._tracer = ObjectTracer(abi)
        self._lock = threading.Lock()
        self._born: dict[tuple[int, int], Born] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="births", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                found = [each for each in self._tracer.poll(_POLL_S) if self._take(each)]
            except OSError as error:
                log.warning("births cannot be heard any more, looks find them: %s", error)
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
        return happening.kind == "object"

    def take(self) -> list[Born]:
        """Clients that were made, or got what can be steered, since the last call."""
        with self._lock:
            found, self._born = list(self._born.values()), {}
        return found

    def notes(self) -> list[str]:
        """Why some births may not have been heard; empty when all were."""
        return self._tracer.trouble().words()

    def close(self) -> None:
        """Idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(_POLL_S * 4)
            self._tracer.close()
