# SPDX-License-Identifier: Apache-2.0
"""A second pair of eyes on a birth: when the driver answers that a program's compute TSG has a slice, asked by us."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from detshare.ctl.abi.versions import for_version
from detshare.ctl.core import procfs
from detshare.ctl.core.driver import DriverError, ProcessId
from detshare.ctl.rm.client import RmClient, RmError
from detshare.ctl.rm.kernel import KernelDriver
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import ObjectChange

__all__ = ["Witness"]

_ASK_S = 0.001
"""between two questions, so that they hold the driver's lock for little of the time"""


class Witness:
    """Not for several threads: `poll` it while the program begins. Its questions delay what they look at a little."""

    def __init__(self, slice_us: int) -> None:
        """Before the program begins; `pid` is to be set when it has."""
        self.pid = 0
        self._driver = KernelDriver()
        self._abi = for_version(self._driver.version)
        self._tracer = ObjectTracer(self._abi)
        self._slice_us = slice_us
        self._group = self._abi.klass("KEPLER_CHANNEL_GROUP_A")
        self._share = self._abi.klass("FERMI_CONTEXT_SHARE_A")
        self._born: dict[tuple[int, int], int] = {}
        self._open = ExitStack()
        self._client: RmClient | None = None
        self._tsg = 0
        self._asked = 0.0
        self.found: dict[str, Any] = {}
        """ms after the TSG was made: `told` to be for compute, `seen` with the slice"""

    @property
    def done(self) -> bool:
        """Nothing more will be found."""
        return "seen" in self.found or "refused" in self.found

    def poll(self) -> None:
        """What came, and a question where one is due."""
        if self._client is None:
            for each in self._tracer.poll(0.001):
                self._take(each)
        if self._client is None or self.done or time.monotonic() - self._asked < _ASK_S:
            return
        self._asked = time.monotonic()
        try:
            has = self._client.timeslice(self._tsg) == self._slice_us
        except RmError as error:
            self.found["refused"] = str(error)
            return
        self.found["questions"] = self.found.get("questions", 0) + 1
        if has:
            self.found["seen"] = self._ms(time.monotonic_ns())

    def _take(self, each: ObjectChange) -> None:
        if each.pid != self.pid or not each.born or each.kind != "object":
            return
        if each.number == self._group:
            self._born[each.client, each.handle] = each.when
        elif each.number == self._share and (each.client, each.parent) in self._born and self._client is None:
            client = self._tracer.world.clients[each.client]
            process = ProcessId(self.pid, procfs.start_time(self.pid) or 0)
            try:
                descriptor = self._open.enter_context(self._driver.borrow(process, client.fd))
            except (DriverError, OSError) as error:
                self.found["refused"] = str(error)
                return
            self._tsg = each.parent
            self._client = RmClient(descriptor, self._abi, each.client)
            self.found["told"] = self._ms(each.when, each.client)

    def _ms(self, when: int, client: int | None = None) -> float:
        assert self._client is not None
        return (when - self._born[client or self._client.handle, self._tsg]) / 1e6

    def close(self) -> None:
        """Idempotent."""
        self._open.close()
        self._tracer.close()
        self._driver.close()
