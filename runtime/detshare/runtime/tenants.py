# SPDX-License-Identifier: Apache-2.0
"""The spatial lane's tenants: how they come, stay and go. Any thread may call; nothing here waits for a program."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Final

from detshare.ctl.core import jobs, procfs
from detshare.runtime import board_layout as layout
from detshare.runtime.arena import Arena
from detshare.runtime.board import Attach, BadBoard, Slot, monotonic_ns
from detshare.runtime.descriptors import Descriptors
from detshare.runtime.directory import Directory, Record, uuid_text
from detshare.runtime.leaving import Leaving, seconds_for
from detshare.runtime.moves import Moves, known_as, reattached
from detshare.runtime.parking import Parking
from detshare.runtime.policies import Policies
from detshare.runtime.profiles import Profile, Profiles, key
from detshare.runtime.reflexes import RANKS, Desired
from detshare.runtime.runs import Run, Runs, command_line
from detshare.runtime.tenant import Refused, Tell, Tenant, View, spatial, view
from detshare.runtime.tiers import Gpu, Kind, Table, Tier

MOST_GPUS: Final = 64
"""of one process: it says itself which it computes on"""


class Tenants:
    """All tenants of one board directory."""

    def __init__(self, directory: Directory, profiles: Profiles, tell: Tell, arena: Arena | None = None) -> None:
        self._directory = directory
        self._profiles = profiles
        self._tell = tell
        self._lock = threading.RLock()
        self._tenants: dict[str, Tenant] = {}
        self._runs = Runs(directory.path / "state.json")
        self.policies = Policies(self._tenants, self._lock, self._runs, directory, tell)
        self.parking = Parking(self._tenants, self._lock, self.policies, arena or Arena(), tell)
        self._ended: deque[Record] = deque(maxlen=layout.SLOTS)
        """the last that ended"""
        self._orphans: list[Slot] = []
        """slots of programs whose record is gone; freed when their process ends"""
        self.moves = Moves(self._tenants, self._lock, self.policies, directory)
        self.leaving = Leaving()
        self.died: Callable[[Record, bool], None] = lambda record, working: None
        """called when a tenant ended; `working`: it had launches in flight"""

    # -- what an earlier daemon left ----------------------------------------------------------------------------

    def recover(self) -> int:
        """Go on with the living tenants of an earlier daemon; their number. OSError."""
        with self._lock:
            if problem := self._runs.load():
                self._tell("error", None, problem)
            left: set[str] = set()
            ended: list[Record] = []
            for path, record in self._directory.records():
                if record is None:
                    left.add(path.stem)
                    self._tell("error", None, f"{path.name} cannot be read: its program keeps its last policy")
                elif procfs.start_time(record.pid) != record.start:
                    ended.append(record)
                elif self._readopt(record):
                    continue
                elif record.ahead:
                    ended.append(record)  # it did not take its boards, and asks again when it has a context
                else:
                    left.add(record.name)
            alive = {name for name in left if _alive_name(name)}
            for name in alive:  # its slot stays its own
                with contextlib.suppress(OSError):
                    self._directory.take_back(int(name.partition("-")[0]))
            for record in ended:  # after the living, who have the activity page
                self._free_slot(record)
                self._directory.remove(record)
            self._directory.sweep(set(self._tenants) | alive)
            if not self._tenants and not alive:
                self._directory.remove_activities()
            for path in self._directory.path.glob("*.activity"):
                self._find_orphans(path.name)
            self.policies.apply_all()
            return len(self._tenants)

    def _readopt(self, record: Record) -> bool:
        try:
            pages = self._directory.load(record)
            slot = self._directory.activity(record.page, record.observed).slots[record.slot]
        except (OSError, BadBoard) as error:
            if not record.ahead:
                self._tell("error", record.pid, f"cannot go on with it, it keeps its last policy: {error}")
            return False
        try:
            pidfd = os.pidfd_open(record.pid)
        except OSError:
            slot.free()
            pages.close()
            self._directory.remove(record)
            return False
        if pages.policy.epoch % 2:
            pages.policy.write()  # its writer was killed in the middle of a change
        seen = tuple(Tier(Kind(t.kind), t.sms) for t in pages.policy.read().tiers if t.kind in list(Kind))
        table = Table(record.gpu, seen)
        if not slot.held:
            pages.policy.put("collectives_from", 0)
        tenant = Tenant(record, pages, slot, pidfd, table, descriptors=_descriptors(record, pidfd), job=_rank(record))
        tenant.park.asked = pages.policy.get("park")
        tenant.park.returns = pages.policy.get("returns")
        tenant.park.lazy = not self.policies.lazy and bool(pages.policy.get("flags") & layout.FLAG_LAZY)
        tenant.park.deep = tenant.park.deeps = pages.policy.get("deep")
        tenant.park.leaves = bool(pages.policy.get("flags") & layout.FLAG_LEAVES)
        tenant.park.comes = bool(pages.policy.get("flags") & layout.FLAG_COMES)
        tenant.park.parks = pages.counters.get("parks")
        tenant.park.away = pages.counters.get("park_state") != layout.PARK_HOME
        tenant.park.arena = pages.counters.get("arena_bytes")
        self._tenants[record.name] = tenant
        self.keep(tenant)
        self._tell("attach", record.pid, f"found again in the spatial lane, slot {record.slot}")
        return True

    def _free_slot(self, record: Record) -> None:
        with contextlib.suppress(OSError, BadBoard, IndexError):
            slot = self._directory.activity(record.page, record.observed).slots[record.slot]
            if (slot.get("pid"), slot.get("starttime")) == (record.pid, record.start):
                slot.free()

    def _find_orphans(self, name: str) -> None:
        gpu, observed = name.partition(".")[0], ".observed." in name
        known = {(t.record.pid, t.record.slot) for t in self._tenants.values() if t.record.observed is observed}
        try:
            slots = self._directory.activity(gpu, observed).slots
        except (OSError, ValueError) as error:
            self._tell("error", None, f"no program can enter the spatial lane on {gpu}: {error}")
            return
        for slot in slots:
            if slot.get("state") != layout.SLOT_FREE and (slot.get("pid"), slot.index) not in known:
                self._orphans.append(slot)

    def announce(self, run: Run) -> None:
        """Remember what a program that is about to start shall get."""
        with self._lock:
            self._runs.add(run)
            self.policies.save()

    def runs(self) -> list[Run]:
        """The runs that were announced and live, of both lanes; of the temporal one those that are counted."""
        with self._lock:
            return self._runs.living()

    # -- coming and going ---------------------------------------------------------------------------------------

    def attach(self, asked: Attach, pid: int, uid: int) -> tuple[Tenant, list[int]]:
        """Give a library its boards: slot and descriptors, which the caller sends and closes. Refused."""
        if asked.version != layout.VERSION:
            text = f"the library speaks version {asked.version}, the daemon {layout.VERSION}"
            raise Refused(errno.EPROTO, f"{text}: install both from one build, and start the program again")
        if not 0 < asked.sm_step <= asked.sms <= 4096:
            raise Refused(errno.EINVAL, f"a GPU of {asked.sms} SMs in steps of {asked.sm_step} cannot be")
        start = procfs.start_time(pid)
        if start is None:
            raise Refused(errno.ESRCH, f"there is no process {pid} in the daemon's pid namespace")
        if uid not in (0, os.geteuid()) and not self._directory.seals:
            text = "the daemon is not root, so its boards are not sealed and could be cut short under others"
            raise Refused(errno.EPERM, f"{text}: only uid {os.geteuid()} and root may come")
        gpu, known = Gpu(uuid_text(asked.gpu_uuid), asked.sms, asked.sm_step), ""
        with self._lock:
            mine = [t for t in self._tenants.values() if t.record.process == (pid, start)]
            if len(mine) >= MOST_GPUS:
                raise Refused(errno.EUSERS, f"it has boards of {MOST_GPUS} GPUs already")
            if (moved := reattached(mine, gpu.uuid)) is not None:
                gpu = replace(gpu, uuid=moved.record.gpu.uuid)
                known = known_as(gpu.uuid, uuid_text(asked.gpu_uuid))
            for again in [t for t in mine if t.record.gpu.uuid == gpu.uuid]:
                self._bury(again, bool(again.slot.get("active")))  # it became another program (exec), same PID
            run = self._runs.find(pid, uid, asked.tenant)
            command = command_line(pid)
            name = asked.tenant or (run.tenant if run else "")
            record = Record(
                pid=pid,
                start=start,
                number=self._number(mine, f"{pid}-{start}"),
                gpu=gpu,
                slot=0,
                uid=uid,
                tenant=name,
                command=" ".join(command)[:4096],
                key=run.key if run else key(command),
                observed=run is not None and run.observed,
                ahead=asked.ahead,
                known=known,
                desired=run.desired if run else Desired(),
            )
            return self._admit(record)

    def _number(self, mine: Iterable[Tenant], process: str) -> int:
        """One that no tenant has, nor files that an earlier daemon made and nobody could go on with."""
        where, taken = self._directory.path, {t.record.number for t in mine}
        return next(n for n in count() if n not in taken and not (where / f"{process}-{n}.policy").exists())

    def _admit(self, record: Record) -> tuple[Tenant, list[int]]:
        where = self._directory.path
        try:
            slot = self._directory.activity(record.page, record.observed).free_slot()
            if slot is None:
                text = f"all {layout.SLOTS} places on {record.page} are taken"
                raise Refused(errno.EUSERS, f"{text}: end a program, or use the temporal lane")
            record = replace(record, slot=slot.index)
            pages = self._directory.make(record)
        except BadBoard as error:
            raise Refused(errno.EPROTO, str(error)) from error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise Refused(errno.ENOSPC, f"no room for a board in {where}: free some (df {where.parent})") from error
            raise Refused(error.errno or errno.EIO, f"a board cannot be made in {where}: {error.strerror}") from error
        try:
            pidfd = os.pidfd_open(record.pid)
            descriptors = self._directory.descriptors(record)
        except OSError as error:
            pages.close()
            self._directory.remove(record)
            raise Refused(error.errno or errno.EIO, f"its boards cannot be given: {error.strerror}") from error
        held, job = _descriptors(record, pidfd), _rank(record)
        tenant = Tenant(record, pages, slot, pidfd, Table(record.gpu), descriptors=held, job=job)
        slot.assign(record.pid, record.start, RANKS[record.desired.klass])
        self._tenants[record.name] = tenant
        self.policies.apply_all(record.gpu.uuid)
        how = "is watched in the temporal lane" if record.observed else f"entered the spatial lane, slot {slot.index}"
        named = f" as {record.tenant}" if record.tenant else ""
        self._tell("attach", record.pid, f"{how}{named}, class {record.desired.klass}, {record.gpu.uuid}")
        return tenant, descriptors

    def has(self, tenant: Tenant) -> bool:
        """Whether it has not left, and no other came in its place."""
        with self._lock:
            return self._tenants.get(tenant.record.name) is tenant

    def taken(self, tenant: Tenant) -> None:
        """Its library took what it was given before it had a context."""
        with self._lock:
            if self.has(tenant) and tenant.record.ahead:
                tenant.record = replace(tenant.record, ahead=False)
                with contextlib.suppress(OSError):  # its pages are mapped, so it is found again in any case
                    self._directory.save(tenant.record)

    def withdraw(self, tenant: Tenant) -> None:
        """Its library did not take what it was given: all of it is free again."""
        with self._lock:
            if self.has(tenant):
                self._leave(tenant)

    def gone(self, pidfd: int) -> None:
        """A process ended: free what it had."""
        with self._lock:
            for tenant in [t for t in self._tenants.values() if t.pidfd == pidfd]:
                if procfs.start_time(tenant.record.pid) == tenant.record.start:
                    continue  # the number of a descriptor that was closed meanwhile
                self._leave(tenant)

    def _leave(self, tenant: Tenant) -> None:
        # `active` is set by the very first launch; the count follows a tick later
        working = bool(tenant.slot.get("active") or tenant.pages.counters.get("in_flight"))
        self._bury(tenant, working)
        self.policies.apply_all(tenant.record.gpu.uuid)
        if not tenant.record.observed:
            self._ended.append(tenant.record)
            self._tell("detach", tenant.record.pid, f"left the spatial lane{' in mid-work' if working else ''}")
        self.died(tenant.record, working)

    def _bury(self, tenant: Tenant, working: bool) -> None:
        """Forget a program that ended, or became another one; what it was doing on the GPU gets the time to end."""
        descriptors, pages = tenant.descriptors, tenant.pages
        if working and descriptors is not None and len(descriptors):
            seconds = seconds_for(pages.counters)
            self.leaving.add(tenant.record, tenant.slot, descriptors, seconds)
            self._forget(tenant)
            self._tell("detach", tenant.record.pid, f"what it has on the GPU is kept for {seconds:.1f} s")
        else:
            self._drop(tenant)

    def _drop(self, tenant: Tenant) -> None:
        if tenant.descriptors is not None:
            tenant.descriptors.close()
        tenant.slot.free()
        self._forget(tenant)

    def _forget(self, tenant: Tenant) -> None:
        self._learn(tenant)
        del self._tenants[tenant.record.name]
        tenant.pages.close()
        os.close(tenant.pidfd)
        self._directory.remove(tenant.record)

    def keep(self, tenant: Tenant) -> None:
        """Duplicate the descriptors that the program has by now; who may not be asked is not kept, and that is told."""
        with self._lock:
            if not self.has(tenant) or tenant.descriptors is None:
                return
            try:
                tenant.descriptors.take()
            except OSError as error:
                if len(tenant.descriptors) or not isinstance(error, PermissionError):
                    return  # it is ending: what was had before is what counts
                tenant.descriptors = None
                text = "if it is killed in mid-kernel, its neighbours may be lost: its descriptors are not given"
                self._tell("error", tenant.record.pid, f"{text} ({error})")

    def _learn(self, tenant: Tenant) -> None:
        counters = tenant.pages.counters
        timed = int(counters.get("timed_ns"))
        filled = min(int(counters.get("filled_ns")), timed)
        seen = Profile(tuple(counters.array("hist_kernel")), tuple(counters.array("hist_graph")), timed, filled)
        try:
            self._profiles.add(tenant.record.key, seen)
        except OSError as error:
            self._tell("error", tenant.record.pid, f"its profile is not kept: {error}")

    def pidfds(self) -> set[int]:
        """Descriptors that become readable when a tenant ends."""
        with self._lock:
            return {tenant.pidfd for tenant in self._tenants.values()}

    def tick(self) -> None:
        """Bring policies up to date, and forget what ended unseen. A few times a second."""
        with self._lock:
            self.policies.tick()
            self.parking.tick()
            for slot in list(self._orphans):
                if procfs.start_time(slot.get("pid")) != slot.get("starttime"):
                    slot.free()
                    self._orphans.remove(slot)
            if self._runs.prune({tenant.record.tenant for tenant in self._tenants.values()}):
                self.policies.save()
            for tenant in list(self._tenants.values()):
                if tenant.descriptors is not None and tenant.descriptors.let_go:
                    self._leave(tenant)  # exec: its context went with its memory

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmap everything; files of living tenants stay."""
        with self._lock:
            for tenant in self._tenants.values():
                if tenant.descriptors is not None:
                    tenant.descriptors.close()
                tenant.pages.close()
                os.close(tenant.pidfd)
            self._tenants.clear()
            self._orphans.clear()

    # -- looking ------------------------------------------------------------------------------------------------

    def lose(self, pids: Iterable[int], why: str) -> list[Record]:
        """Note that programs lost their context with an MPS server; all of them, also those that ended of it."""
        with self._lock:
            lost = [t for t in spatial(self._tenants.values()) if t.record.pid in set(pids)]
            for tenant in lost:
                tenant.lost = why
            ended = [record for record in self._ended if record.pid in set(pids)]
            return list({r.pid: r for r in (*ended, *(tenant.record for tenant in lost))}.values())

    def working(self, seconds: float) -> list[int]:
        """PIDs of programs in the spatial lane that launched something in the last `seconds`."""
        since = monotonic_ns() - int(seconds * 1e9)
        with self._lock:
            mine = spatial(self._tenants.values())
            return [t.record.pid for t in mine if t.pages.counters.get("last_launch") > since]

    def pids(self) -> list[int]:
        """PIDs of the programs in the spatial lane."""
        with self._lock:
            return sorted({t.record.pid for t in spatial(self._tenants.values())})

    def views(self, observed: bool = False) -> list[View]:
        """Every tenant of the spatial lane; with `observed` those of the temporal lane that have a board, too."""
        with self._lock:
            mine = self._tenants.values() if observed else spatial(self._tenants.values())
            return [view(t) for t in mine if t.reflex is not None]


def _descriptors(record: Record, pidfd: int) -> Descriptors | None:
    return None if record.observed else Descriptors(record.pid, pidfd)


def _rank(record: Record) -> bool:
    return bool(jobs.told(jobs.environment(record.pid)))


def _alive_name(name: str) -> bool:
    """Whether the process that a board's file name tells lives."""
    parts = name.split("-")
    return len(parts) == 3 and parts[0].isdecimal() and str(procfs.start_time(int(parts[0]))) == parts[1]
