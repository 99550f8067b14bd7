# SPDX-License-Identifier: Apache-2.0
"""What the policy pages of tenants say: from their desired state, the reserve, reflexes of classes, their neighbours.

Any thread may call; nothing here waits for a program.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.classes import setting
from detshare.ctl.core.driver import ProcessId
from detshare.runtime import board_layout as layout
from detshare.runtime import crowding
from detshare.runtime.board import PolicyValues, monotonic_ns
from detshare.runtime.board import Tier as PageTier
from detshare.runtime.directory import Directory, Record
from detshare.runtime.meeting import Meeting
from detshare.runtime.reflexes import AHEAD_US, GATE_US, RANKS, Desired, Mode, Override, Reflex, apart, reflex
from detshare.runtime.runs import Runs
from detshare.runtime.tenant import Pending, Tell, Tenant, spatial
from detshare.runtime.tiers import Gpu, check_reserve

LEASE_NS: Final = 2_000_000_000
"""how long a hold by hand stands without being renewed: a daemon that died keeps nobody stopped"""
FOREVER: Final = 0xFFFFFFFF
"""policy.room_ms: until there is room"""


class Policies:
    """The policies of all tenants of one board directory.

    `tenants` and `lock` are those of who lets programs in: `tenants` changes under `lock` only.
    """

    def __init__(
        self, tenants: Mapping[str, Tenant], lock: threading.RLock, runs: Runs, directory: Directory, tell: Tell
    ) -> None:
        self._tenants = tenants
        self._lock = lock
        self._runs = runs
        self._directory = directory
        self._tell = tell
        self.room_s = 0.0
        """seconds that an allocation waits for room where nothing was promised; 0: nobody waits"""
        self.incremental = True
        """whether parks copy only what changed since the last one"""
        self.lazy = False
        """whether memory that leaves can come back lazily, and does"""

    # -- pages --------------------------------------------------------------------------------------------------

    def apply_all(self, gpu: str | None = None) -> None:
        """Bring every page, or those of one GPU, to what desired state, reserve and neighbours say now."""
        with self._lock:
            for tenant in self._tenants.values():
                if gpu in (None, tenant.record.gpu.uuid):
                    self._apply(tenant)

    def _apply(self, tenant: Tenant) -> Pending:
        """Bring a tenant's page to what its desired state, the reserve and its neighbours say."""
        record, policy = tenant.record, tenant.pages.policy
        desired = record.desired
        reserve, override = self._reserve_of(record.gpu), self._override_of(record)
        made = reflex(desired, record.gpu, reserve, override, tenant.crowded)
        rank = RANKS[desired.klass]
        tenant.slot.put("class", rank)
        others = [t for t in spatial(self._tenants.values()) if t.record.gpu.uuid == record.gpu.uuid]
        owner = next((t for t in others if t.record.desired.exclusive), None)
        higher = any(RANKS[t.record.desired.klass] > rank for t in others if t is not owner)
        if owner is not None:
            made = apart(made, owner.record.desired.exclusive_sms, owner is tenant, higher)
        if record.observed:
            made = Reflex(desired.klass, mode=Mode.TIER)
        gated = not record.observed and (tenant.slot.held or (higher and made.mode is Mode.HOLD))
        idle, busy = tenant.table.index(made.idle), tenant.table.index(made.busy)
        values = PolicyValues(
            class_=rank,
            tier_idle=idle,
            tier_busy=busy,
            mode_busy=int(made.mode),
            linger_us=made.linger_us,
            gate_us=GATE_US if gated else 0,
            ahead_us=AHEAD_US if higher and made.idle != made.busy else 0,
            depth=made.depth,
            floor_permille=made.floor_permille,
            floor_period_us=made.floor_period_us,
            flags=(0 if self.incremental else layout.FLAG_WHOLE)
            | (layout.FLAG_JOB if tenant.job else 0)
            | (layout.FLAG_LEAVES if tenant.park.leaves else 0)
            | (layout.FLAG_COMES if tenant.park.comes else 0)
            | (layout.FLAG_LAZY if (self.lazy or tenant.park.lazy) and not tenant.park.moves_until else 0),
            memory_limit=desired.memory or 0,
            park=tenant.park.asked,
            stay_until=max(tenant.park.stay_until, tenant.park.moves_until),
            room_ms=self._room_ms(desired),
            returns=tenant.park.returns,
            deep=tenant.park.deep,
            tiers=tuple(PageTier(int(t.kind), t.sms) for t in tenant.table.tiers),
        )
        tenant.reflex = made
        if policy.epoch % 2 or policy.read() != values:
            policy.write(**_fields(values))
        return Pending(tenant, policy.epoch)

    def _room_ms(self, desired: Desired) -> int:
        """How long an allocation waits for room; of who was promised its memory without end."""
        if not self.room_s:
            return 0
        return FOREVER if desired.memory is not None else round(1000 * self.room_s)

    def show(self, tenant: Tenant) -> None:
        """Bring one page up to date, under the lock."""
        self._apply(tenant)

    def _reserve_of(self, gpu: Gpu) -> int | None:
        if self._runs.reserve is None:
            return None
        try:
            return check_reserve(self._runs.reserve, gpu)
        except BadRequest as error:
            self._tell("error", None, f"no reserve on {gpu.uuid}: {error}")
            return None

    def _override_of(self, record: Record) -> Override | None:
        override = self._runs.overrides.get(record.desired.klass)
        try:
            if override is not None:
                override.check(record.gpu)
        except BadRequest as error:
            self._tell("error", record.pid, f"the reflex of class {record.desired.klass} is not applied: {error}")
            return None
        return override

    def tick(self) -> None:
        """Renew what is a lease, and see whom higher classes leave hardly any time. A few times a second."""
        with self._lock:
            for tenant in self._tenants.values():
                self.lease(tenant)
            self._look_at_crowding()

    @staticmethod
    def lease(tenant: Tenant) -> None:
        """Renew what lasts only as long as there is a daemon."""
        lasts = tenant.slot.held or tenant.park.deep or tenant.pages.policy.get("collectives_from")
        tenant.pages.policy.lease(monotonic_ns() + LEASE_NS if lasts else 0)

    def _look_at_crowding(self) -> None:
        for tenant, share in crowding.look(spatial(self._tenants.values()), monotonic_ns()):
            before = tenant.reflex
            self._apply(tenant)
            made = tenant.reflex
            if made is not None and made != before:
                does = "holds" if made.mode is Mode.HOLD else f"runs on {made.busy.text(tenant.record.gpu.sms)}"
                text = f"higher classes are active {share:.0%} of the time: while one is, it {does}"
                self._tell("reflex", tenant.record.pid, text)

    def stand_aside(self) -> None:
        """The daemon ends: nobody is held, and every program has the whole GPU. What was asked for is kept."""
        with self._lock:
            for tenant in self._tenants.values():
                tenant.slot.hold(False)
                tenant.pages.policy.lease(0)
                tenant.pages.policy.put("collectives_from", 0)
                tenant.pages.policy.write(tier_idle=0, tier_busy=0, mode_busy=layout.MODE_TIER, gate_us=0)

    # -- what is asked for --------------------------------------------------------------------------------------

    def of(self, process: ProcessId) -> list[Tenant]:
        """A program's tenants in the spatial lane, one for each GPU."""
        with self._lock:
            return [t for t in spatial(self._tenants.values()) if t.record.process == process]

    def override(self, klass: str, override: Override) -> None:
        """Set the reflex of a whole class. BadRequest where it cannot be on a GPU here."""
        setting(klass)
        with self._lock:
            for gpu in self._gpus():
                override.check(gpu)
            self._runs.overrides[klass] = override
            if override == Override():
                del self._runs.overrides[klass]
            self.save()
            self.apply_all()

    def _gpus(self) -> set[Gpu]:
        """The GPUs that programs are on; before there is one, any that could be."""
        return {t.record.gpu for t in self._tenants.values()} or {Gpu("", 4096, 8)}

    def change(self, process: ProcessId, **desired: Any) -> list[Pending]:
        """Change what is asked of a program (fields of Desired); what is to be acknowledged. OSError: not kept."""
        with self._lock:
            pending = []
            for tenant in self.of(process):
                record = replace(tenant.record, desired=replace(tenant.record.desired, **desired))
                self._directory.save(record)
                tenant.record = record
                pending.append(self._apply(tenant))
                self.apply_all(record.gpu.uuid)
            return [Pending(each.tenant, each.tenant.pages.policy.epoch) for each in pending]

    def hold(self, process: ProcessId, on: bool) -> bool:
        """Hold a program at its next kernel boundaries, or let it run on. False where that was so already."""
        with self._lock:
            changed = False
            for tenant in self.of(process):
                changed |= tenant.slot.held is not on
                if on:  # before the hold, which is void without
                    tenant.pages.policy.lease(monotonic_ns() + LEASE_NS)
                tenant.slot.hold(on)
                if not on:
                    tenant.pages.policy.put("collectives_from", 0)
                self.lease(tenant)
                self._apply(tenant)
            return changed

    def meeting(self, processes: Collection[ProcessId]) -> Meeting | None:
        """Of the ranks of a job, where each of several has boards."""
        with self._lock:
            mine = [t for t in self._tenants.values() if t.job and t.record.process in processes]
            whole = {t.record.process for t in mine} == set(processes)
            return Meeting(mine, self._tenants, self._lock, LEASE_NS) if whole and len(mine) > 1 else None

    def owner(self, gpu: str) -> Tenant | None:
        """Who has an exclusive pCtx of a GPU."""
        with self._lock:
            mine = (t for t in spatial(self._tenants.values()) if t.record.gpu.uuid == gpu)
            return next((t for t in mine if t.record.desired.exclusive), None)

    def reserve(self, sms: int | None) -> None:
        """Keep `sms` SMs of each GPU for class high, or none. BadRequest where it is no tier of a GPU here, or
        where a program has the first SMs to itself."""
        with self._lock:
            if sms is not None:
                for tenant in self._tenants.values():
                    if name := tenant.record.desired.exclusive:
                        pid = tenant.record.pid
                        raise BadRequest(f"PID {pid} has {name} to itself, which begins at the first SM too")
                for gpu in self._gpus():
                    check_reserve(sms, gpu)
            self._runs.reserve = sms
            self.save()
            self.apply_all()

    @property
    def reserved(self) -> int | None:
        """SMs kept for class high."""
        return self._runs.reserve

    def save(self) -> None:
        """Keep what was asked for over a restart of the daemon; where that fails it is told."""
        try:
            self._runs.save()
        except OSError as error:
            self._tell("error", None, f"what was asked for is not kept over a restart of the daemon: {error}")


def _fields(values: PolicyValues) -> dict[str, Any]:
    return {name: getattr(values, name) for name in values.__slots__}
