# SPDX-License-Identifier: Apache-2.0
"""Greeting: a context gets its class between its birth and the look that reads all of its program's objects.

An observer told where it is, so nothing has to be searched for and one TSG is all that is asked about. libcuda sets a
slice of its own late in making a context; the look that follows sees that and sets ours again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from detshare.ctl.adopt import Adopter
from detshare.ctl.births import Births, Context
from detshare.ctl.rm import procfs
from detshare.ctl.rm.client import RmClient, RmError
from detshare.ctl.rm.driver import Driver, DriverError, Holder, ProcessId
from detshare.ctl.snapshot import Check, Kind, Tsg
from detshare.ctl.steward import Steward, plan_of
from detshare.ctl.wishes import Wishes

log = logging.getLogger("detshared.births")


class Greeter:
    """Not for several threads, though births are heard in another one."""

    def __init__(
        self,
        births: Births,
        driver: Driver,
        adopter: Adopter,
        steward: Steward,
        wishes: Wishes,
    ) -> None:
        self._births, self._driver, self._adopter = births, driver, adopter
        self._steward, self._wishes = steward, wishes

    def greet(self) -> Iterator[tuple[ProcessId, str]]:
        """Tell the adopter where to look, and give new contexts what is wished; for whom and what was done."""
        for born in self._births.take():
            self._adopter.announce(born.pid, born.fd, born.client, whole=born.whole)
        for context in self._births.contexts():
            try:
                holder = procfs.holder(context.pid)
                if holder is not None and (done := self._greet(context, holder)):
                    yield holder.id, done
            except (RmError, DriverError, OSError) as error:  # the look that follows tells what lasts
                log.debug("a context of PID %d was not greeted: %s", context.pid, error)

    def _greet(self, context: Context, holder: Holder) -> str:
        """What was done. RmError, DriverError, OSError."""
        wish = self._wishes.get(holder.id)
        if not wish.steers:
            wish = self._wishes.born(holder) or wish  # the look writes it down, which may take a disk's time
        plan = plan_of(wish)
        if plan is None:  # weights count TSGs: that is for the look
            return ""
        changes = self._steward.apply(holder.id, [self._read(context, holder.id)], plan)
        if not any(each.slice_us != each.before_us for each in changes):
            return ""
        late_ms = time.monotonic() * 1e3 - context.born / 1e6
        return f"a new context brought to {wish.text}, {late_ms:.1f} ms after its first TSG was made"

    def _read(self, context: Context, process: ProcessId) -> Tsg:
        with self._driver.borrow(process, context.fd) as descriptor:
            client = RmClient(descriptor, self._steward.abi, context.client)
            return Tsg(
                gpu=client.gpu_uuid(context.subdevice) if context.subdevice else "",
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
