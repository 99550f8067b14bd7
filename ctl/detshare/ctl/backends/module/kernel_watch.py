# SPDX-License-Identifier: Apache-2.0
"""The last look through the kernel module: what it lists, what it told, who holds descriptors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.module import census
from detshare.ctl.backends.module.census import Census
from detshare.ctl.backends.module.event_thread import EventThread
from detshare.ctl.core import accounts, cgroups, select
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Driver, DriverError, Opener, ProcessId, Usage
from detshare.ctl.core.snapshot import Event, Program, State
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.records import Status, TsgRow

SWEEP_S: Final = 1.0
"""descriptors in /proc are read this often, besides whenever the kernel lists an unknown process"""
SLICES_S: Final = 1.0
"""the driver is asked for slices this often, besides whenever channel groups come and go"""
USAGE_S: Final = 1.0
_NEVER: Final = float("-inf")


class KernelWatch:
    """`census` is the last look. `abi` None: the driver's branch is not in the tables, engines have no names."""

    def __init__(
        self, link: Link, driver: Driver, abi: Abi | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link = link
        self._driver = driver
        self._abi = abi
        self._clock = clock
        self._listening: EventThread | None = None
        self._tell: Callable[[Event], None] | None = None
        self._edge: Callable[[int, bool], None] | None = None
        self._attends = False
        self._cgroups: dict[int, str] = {}
        self._swept = self._asked = _NEVER
        self._usage: tuple[float, Usage] = (_NEVER, Usage())
        self.census = Census()

    def refresh(self, fresh: bool = False) -> Status:
        """Ask the kernel module what there is; all of it if `fresh`. DriverError, OSError."""
        now = self._clock()
        try:
            changed = self._hear()
            status = self._link.status()
        except (DriverError, OSError):
            self.close()  # the module may have been unloaded: listen anew to the next one
            raise
        vctxs = self._link.vctxs()
        limits = self._link.limits()
        openers = self.census.openers
        unknown = {ProcessId(row.pid, row.start_time) for row in vctxs} - openers.keys()
        if fresh or unknown or now - self._swept >= SWEEP_S:
            openers = {opener.id: opener for opener in self._driver.openers()}
            self._swept = now
        else:
            openers = {process: opener for process, opener in openers.items() if self._driver.alive(process)}
        tsgs = self.census.tsgs
        if fresh or changed or now - self._asked >= SLICES_S:
            tsgs = self._link.tsgs()
            self._asked = now
        orders, buckets, holds = self._link.orders(), self._link.buckets(), self._link.holds()
        unnamed = {r.cgroup_id for rows in (limits, orders, buckets, holds) for r in rows if r.cgroup_id}
        unnamed -= self._cgroups.keys()
        if unnamed:
            self._cgroups |= {number: f"number {number}" for number in unnamed} | cgroups.find(unnamed)
        self.census = Census(
            vctxs=vctxs,
            tsgs=tsgs,
            limits=limits,
            tenants=self._link.tenants(),
            gpu_rows=self._link.gpus(),
            gpus=self._driver.gpus(),
            openers=openers,
            cgroups=self._cgroups,
            orders=orders,
            classes=self._link.classes(),
            buckets=buckets,
            holds=holds,
            entities=self._link.entities(),
            denied=self._link.denied() if status.denied else (),
        )
        return status

    def targets(self, who: str) -> list[Target]:
        """The accounts that `who` names, a PID without a GPU too: living, or one for which something stands. BadRequest
        where it cannot be meant."""
        found = list(self.census.openers.values())
        with suppress(BadRequest):
            selector = select.parse(who)
            process = None
            if selector.by is select.By.PID:
                process = self._driver.find(selector.pid) or self.census.steered(selector.pid)
            if process is not None and process not in self.census.openers:
                found.append(Opener(process, 0, "", "", "", "", "", (), ()))
        return accounts.resolve(who, [row.name for row in self.census.tenants], found)

    def _hear(self) -> bool:
        """Whether the kernel told that something came, went or was lost. DriverError, OSError."""
        if self._listening is None or not self._listening.alive:
            if self._listening is not None:
                self._listening.close()
            self._listening = EventThread(self._cgroup_name, self._tell)
            self._listening.edge, self._listening.attends = self._edge, self._attends
            return True
        return self._listening.changed()

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        """Call `tell` with each event at once, from a thread of its own, not keeping it; `edge`: see EventThread."""
        self._tell, self._edge = tell, edge
        if self._listening is not None:
            for event in self._listening.drain():
                tell(event)
            self._listening.tell, self._listening.edge = tell, edge

    def attend(self, on: bool) -> None:
        """Whether `edge` is called at all."""
        self._attends = on
        if self._listening is not None:
            self._listening.attends = on

    def _cgroup_name(self, number: int) -> str:
        """A cgroup's path; its number where no path is known."""
        if number not in self._cgroups:
            self._cgroups |= cgroups.find({number})
        return self._cgroups.get(number, f"number {number}")

    def drain_events(self) -> list[Event]:
        """What the kernel told since the last call."""
        return self._listening.drain() if self._listening is not None else []

    def stale(self) -> None:
        """Slices were changed: the next look asks for them."""
        self._asked = _NEVER

    def describe(self, paused: Collection[ProcessId] = ()) -> list[Program]:
        """The programs of the last look, but for this one: it has a client to read the context-switch log."""
        now = self._clock()
        if now - self._usage[0] >= USAGE_S:
            self._usage = (now, self._driver.usage())
        limited = any(row.cgroup_id for row in self.census.limits)
        found = census.programs(
            self.census,
            abi=self._abi,
            paused=paused,
            share=self._usage[1].gpu_share,
            lineage=cgroups.lineage if limited else lambda path: {},
        )
        return [program for program in found if program.id.pid != os.getpid()]

    def compute(self, process: ProcessId) -> list[TsgRow]:
        """A process's compute channel groups."""
        vctxs = {v.vctx_id for v in self.census.vctxs if (v.pid, v.start_time) == process}
        return [row for row in self.census.tsgs if row.compute and row.vctx_id in vctxs]

    def close(self) -> None:
        """Stop listening; the next refresh begins again."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self.stale()


def mps_server(programs: Collection[Program], client: Program) -> Program | None:
    """The server in whose channel group an MPS client runs; None for any other program."""
    if client.state is not State.MPS_CLIENT:
        return None
    servers = [p for p in programs if p.state is State.MPS_SERVER and set(p.gpus) & set(client.gpus)]
    return servers[0] if len(servers) == 1 else None
