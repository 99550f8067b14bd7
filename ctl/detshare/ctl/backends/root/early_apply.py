# SPDX-License-Identifier: Apache-2.0
"""Greeting: a context gets its class between its birth and the look that reads all of its program's objects.

An observer told where it is, so nothing has to be searched for and one TSG is all that is asked about. libcuda sets a
slice of its own late in making a context, some 100 ms later; that is told too, and ours is set again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from detshare.ctl.backends.desired import DesiredState
from detshare.ctl.backends.root.actuator import Actuator, plan_of
from detshare.ctl.backends.root.adopt import Adopter
from detshare.ctl.backends.root.birth_observer import BirthObserver, Context
from detshare.ctl.core import procfs
from detshare.ctl.core.driver import Driver, DriverError, ProcessId
from detshare.ctl.core.snapshot import Check, Kind, Tsg
from detshare.ctl.rm.client import RmClient, RmError

log = logging.getLogger("detshared.births")

_MOST_MET: Final = 4096
_LEGS: Final = (
    "PID {}, ms after its first TSG was made: told {:.1f}, heard {:.1f}, begun {:.1f}, desired found {:.1f}, "
    "TSG read {:.1f}, set {:.1f}"
)


class EarlyApply:
    """Not for two threads at once."""

    def __init__(
        self,
        births: BirthObserver,
        driver: Driver,
        adopter: Adopter,
        actuator: Actuator,
        desired_state: DesiredState,
    ) -> None:
        self._births, self._driver, self._adopter = births, driver, adopter
        self._actuator, self._desired = actuator, desired_state
        self._met: dict[int, procfs.Name] = {}
        """programs with a client, as they were called when it was made"""
        births.meet = self._meet

    def _meet(self, pid: int) -> None:
        """Long before there is a context: reading /proc then would take too long."""
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        start = procfs.start_time(pid)
        if start is not None:
            with suppress(OSError):
                self._met[pid] = procfs.name(ProcessId(pid, start))

    def apply_early(self) -> Iterator[tuple[ProcessId, str]]:
        """Give new contexts what is asked, and tell the adopter where to look; for whom and what was done."""
        for context in self._births.contexts():
            try:
                if context.pid not in self._met:
                    self._meet(context.pid)
                name = self._met.get(context.pid)
                if name is not None and (done := self._apply(context, name)):
                    yield name.id, done
            except (RmError, DriverError, OSError) as error:  # the look that follows tells what lasts
                log.debug("a context of PID %d did not get its class early: %s", context.pid, error)
        self._births.done()
        for born in self._births.take():
            self._adopter.announce(born.pid, born.fd, born.client, whole=born.whole)

    def _apply(self, context: Context, name: procfs.Name) -> str:
        """What was done. RmError, DriverError (where the name is of an earlier process, too), OSError."""
        begun, process = time.monotonic_ns(), name.id
        desired = self._desired.get(process)
        if not desired.steers:
            desired = self._desired.born(name) or desired  # the look writes it down: that takes a disk's time
        plan = plan_of(desired)
        if plan is None:  # weights count TSGs: that is for the look
            return ""
        known = time.monotonic_ns()
        with self._driver.borrow(process, context.fd) as descriptor:
            client = RmClient(descriptor, self._actuator.abi, context.client)
            found = self._read(context, client)
            read = time.monotonic_ns()
            changes = self._actuator.apply(process, [found], plan, client)
        if not any(each.slice_us != each.before_us for each in changes):
            return ""
        if context.again:
            after = f"{(time.monotonic_ns() - context.told) / 1e6:.1f} ms after"
            return f"brought back to {desired.text}, {after} it set a slice of {found.slice_us} us itself"
        legs = (context.told, context.heard, begun, known, read, time.monotonic_ns())
        told, heard, *rest = ((each - context.born) / 1e6 for each in legs)
        log.debug(_LEGS.format(process.pid, told, heard, *rest))
        return f"a new context brought to {desired.text}, {rest[-1]:.1f} ms after its first TSG was made"

    def _read(self, context: Context, client: RmClient) -> Tsg:
        """Two questions; a third where there are several GPUs to be told apart."""
        gpus = self._driver.gpus()
        only = gpus[0].uuid if len(gpus) == 1 else ""
        return Tsg(
            gpu=only or (client.gpu_uuid(context.subdevice) if context.subdevice else ""),
            fd=context.fd,
            client=context.client,
            handle=context.tsg,
            device=context.device,
            subdevice=context.subdevice,
            tsg_id=client.tsg_id(context.tsg),
            kind=Kind.COMPUTE,
            engine="",
            channels=(),
            context_shares=(),
            slice_us=client.timeslice(context.tsg),
        )

    def doctor(self) -> Check:
        """Whether births are heard."""
        return self._births.doctor()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._births.close()
