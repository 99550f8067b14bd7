# SPDX-License-Identifier: Apache-2.0
"""From what the kernel module lists to programs and limits, as people see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.module import activity
from detshare.ctl.backends.root.programs import at_work_on
from detshare.ctl.core.accounts import NO_PROCESS, Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Gpu, Opener, ProcessId
from detshare.ctl.core.procfs import MPS_COMM
from detshare.ctl.core.snapshot import Account, AccountKind, Kind, Level, Program, State, Tenant, Tsg
from detshare.ctl.core.work import Activity
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import (
    BucketRow,
    ClassRow,
    DeniedRow,
    EntityRow,
    GpuRow,
    HoldRow,
    LimitRow,
    SchedRow,
    TenantRow,
    TsgRow,
    VctxRow,
)

UNKNOWN = -1
"""in fields of a Tsg that only asking on the program's own descriptor would tell"""
KINDS = {
    genl.DETSHARE_KIND_PID: AccountKind.PID,
    genl.DETSHARE_KIND_CGROUP: AccountKind.CGROUP,
    genl.DETSHARE_KIND_TENANT: AccountKind.TENANT,
}
_PARTIAL = "older than the kernel module: its objects are not all known one by one, its memory is counted"


def is_of(row: LimitRow | SchedRow | HoldRow | BucketRow, target: Target) -> bool:
    """Whether a row is this very account's."""
    match target.kind if KINDS.get(row.kind) is target.kind else None:
        case AccountKind.PID:
            mine = target.process
            return row.pid == mine.pid and (row.start_time == mine.start or not row.start_time or not mine.start)
        case AccountKind.CGROUP:
            return row.cgroup_id == target.cgroup
        case AccountKind.TENANT:
            return row.tenant == target.name
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Census:
    """Everything that the kernel module listed in one look, and who holds descriptors."""

    vctxs: Sequence[VctxRow] = ()
    tsgs: Sequence[TsgRow] = ()
    limits: Sequence[LimitRow] = ()
    tenants: Sequence[TenantRow] = ()
    gpu_rows: Sequence[GpuRow] = ()
    gpus: Sequence[Gpu] = ()
    """as the driver lists them"""
    openers: Mapping[ProcessId, Opener] = field(default_factory=dict)
    cgroups: Mapping[int, str] = field(default_factory=dict)
    """cgroup number -> path"""
    orders: Sequence[SchedRow] = ()
    classes: Sequence[ClassRow] = ()
    buckets: Sequence[BucketRow] = ()
    holds: Sequence[HoldRow] = ()
    entities: Sequence[EntityRow] = ()
    denied: Sequence[DeniedRow] = ()

    def uuid(self, gpu: int) -> str:
        """The UUID of the kernel module's GPU number; its number in words where nobody knows it."""
        row = next((row for row in self.gpu_rows if row.gpu == gpu), None)
        if row is not None and row.uuid:
            return row.uuid
        minor = row.minor if row is not None and row.minor is not None else gpu
        return next((g.uuid for g in self.gpus if g.minor == minor), f"GPU {gpu}")

    def _numbers(self) -> dict[int, int]:
        """The kernel module's number of each GPU that it knows, the driver's device instance -> that of its node."""
        minors = {gpu.uuid: gpu.minor for gpu in self.gpus}
        told = {row.gpu: minors.get(row.uuid or "", row.minor) for row in self.gpu_rows}
        return {gpu: minor for gpu, minor in told.items() if minor is not None}

    def minor(self, gpu: int) -> int:
        """How people count the kernel module's GPU number: as /dev/nvidiaN; as it is where nobody knows."""
        return self._numbers().get(gpu, gpu)

    def instance(self, minor: int) -> int:
        """The kernel module's number of /dev/nvidiaN. BadRequest where that is no GPU, or the module cannot know it.

        A GPU that no program opened since the module was loaded has the same number there, unless another one has it.
        """
        here = sorted(gpu.minor for gpu in self.gpus)
        if here and minor not in here:
            raise BadRequest(f"there is no GPU {minor}: there are {', '.join(map(str, here))}")
        known = self._numbers()
        if minor in known and minor not in known.values():
            raise BadRequest(
                f"GPU {minor} has another number in the driver, which the module learns when a program opens that GPU: "
                "run nvidia-smi, then try again"
            )
        return next((gpu for gpu, number in known.items() if number == minor), minor)

    def accounts(self) -> tuple[Account, ...]:
        """Every limit that is in force."""
        return tuple(account for row in self.limits if (account := self.account(row)) is not None)

    def process(self, pid: int) -> ProcessId | None:
        """The process that has this number now, as far as the kernel module or /proc shows it."""
        for found in self.openers:
            if found.pid == pid:
                return found
        return next((ProcessId(row.pid, row.start_time) for row in self.vctxs if row.pid == pid), None)

    def steered(self, pid: int) -> ProcessId | None:
        """The process of this number for which something stands. It may have ended, and left its clients to others."""
        listed: tuple[Sequence[SchedRow | HoldRow | BucketRow | LimitRow], ...]
        listed = (self.orders, self.holds, self.buckets, self.limits)
        mine = (row for rows in listed for row in rows if KINDS.get(row.kind) is AccountKind.PID and row.pid == pid)
        return next((ProcessId(pid, row.start_time) for row in mine), None)

    def target(self, row: SchedRow | HoldRow | BucketRow) -> Target | None:
        """The account of a row; None for a kind that only a newer module has."""
        match KINDS.get(row.kind):
            case AccountKind.PID:
                return Target(AccountKind.PID, str(row.pid), self.process(row.pid) or ProcessId(row.pid, 0))
            case AccountKind.CGROUP:
                name = self.cgroups.get(row.cgroup_id, f"number {row.cgroup_id}")
                return Target(AccountKind.CGROUP, name, cgroup=row.cgroup_id)
            case AccountKind.TENANT:
                return Target(AccountKind.TENANT, row.tenant, NO_PROCESS)
            case _:
                return None

    def account(self, row: LimitRow) -> Account | None:
        """A limit for people; None for a kind that only a newer module has, or without a limit."""
        kind = KINDS.get(row.kind)
        if kind is None or row.limit is None:
            return None
        if kind is AccountKind.PID:
            name = str(row.pid)
        elif kind is AccountKind.TENANT:
            name = row.tenant
        else:
            name = self.cgroups.get(row.cgroup_id, f"number {row.cgroup_id}")
        gpu = None if row.gpu is None else self.minor(row.gpu)
        return Account(kind, name, gpu, row.limit, row.used, row.peak, row.refused)

    def named(self) -> tuple[Tenant, ...]:
        """Tenants with their processes."""
        users: dict[str, set[int]] = defaultdict(set)
        for row in self.vctxs:
            users[row.tenant].add(row.pid)
        return tuple(Tenant(t.name, tuple(sorted(users[t.name] | set(t.pids)))) for t in self.tenants)

    def vctxs_of(self) -> dict[ProcessId, list[VctxRow]]:
        """The virtual contexts of each process."""
        found: dict[ProcessId, list[VctxRow]] = defaultdict(list)
        for row in self.vctxs:
            found[ProcessId(row.pid, row.start_time)].append(row)
        return found


def programs(
    census: Census,
    *,
    abi: Abi | None,
    paused: Collection[ProcessId] = (),
    share: Mapping[tuple[int, str], float] | None = None,
    lineage: Callable[[str], Mapping[int, str]] = lambda path: {},
) -> list[Program]:
    """Every process that the kernel module or /proc shows on a GPU, by PID. `lineage`: see core/cgroups.py."""
    tsgs: dict[int, list[TsgRow]] = defaultdict(list)
    for row in census.tsgs:
        tsgs[row.vctx_id].append(row)
    numbers = {row.engine for row in census.tsgs}
    engines = {each: abi.engine_name(each) if abi is not None else f"engine {each:#x}" for each in numbers}
    seen = census.vctxs_of()
    entities = activity.by_pid(census.entities)
    weights = {row.pid: row.weight for row in census.orders if KINDS.get(row.kind) is AccountKind.PID}
    found = []
    for process, rows in seen.items():
        opener = census.openers.get(process)
        mine = [_tsg(census, tsg, engines[tsg.engine]) for row in rows for tsg in tsgs.get(row.vctx_id, ())]
        denied = [row for row in census.denied if row.pid == process.pid]
        doing = activity.of_process(entities.get(process.pid, ()), denied, abi)
        weight = weights.get(process.pid)
        if weight is None:
            weight = next((entity.weight for entity in entities.get(process.pid, ()) if entity.weight), None)
        found.append(
            _program(census, process, rows, mine, opener, process in paused, doing, weight, share or {}, lineage)
        )
    uuids = {gpu.minor: gpu.uuid for gpu in census.gpus}
    for process, opener in census.openers.items():
        if process not in seen:
            gpus = tuple(dict.fromkeys(uuids[m] for _, m in opener.device_fds if m in uuids))
            found.append(
                Program(process, opener.command, opener.user, opener.container, State.NO_CONTEXT, gpus=gpus)
            )
    return sorted(found, key=lambda program: program.id)


def _tsg(census: Census, row: TsgRow, engine: str) -> Tsg:
    kind = Kind.COMPUTE if row.compute else Kind.COPY if engine.startswith("COPY") else Kind.OTHER
    return Tsg(
        gpu=census.uuid(row.gpu) if row.gpu is not None else "",
        fd=UNKNOWN,
        client=row.client,
        handle=row.handle,
        device=UNKNOWN,
        subdevice=UNKNOWN,
        tsg_id=UNKNOWN,
        kind=kind,
        engine=engine,
        channels=(0,) * row.channels,
        context_shares=(),
        slice_us=row.slice_us or 0,
        level=Level(row.level) if row.level is not None and row.level in tuple(Level) else None,
    )


def _program(
    census: Census,
    process: ProcessId,
    rows: Sequence[VctxRow],
    tsgs: Sequence[Tsg],
    opener: Opener | None,
    paused: bool,
    doing: Activity | None,
    weight: int | None,
    share: Mapping[tuple[int, str], float],
    lineage: Callable[[str], Mapping[int, str]],
) -> Program:
    memory: dict[str, int] = {}
    for row in rows:
        if row.gpu is not None:
            uuid = census.uuid(row.gpu)
            memory[uuid] = memory.get(uuid, 0) + row.memory_used + row.managed
    klass = next((row.klass for row in rows if row.klass), None)
    tenant = next((row.tenant for row in rows if row.tenant), "")
    above = set(lineage(opener.cgroup)) if opener is not None else set()
    above |= {row.cgroup_id for row in rows}
    shares = [share[process.pid, gpu] for gpu in memory if (process.pid, gpu) in share]
    return Program(
        id=process,
        command=opener.command if opener is not None else f"[{rows[0].comm}]",
        user=opener.user if opener is not None else "?",
        container=opener.container if opener is not None else "",
        state=_state(rows, tsgs, paused, doing),
        tsgs=tuple(tsgs),
        gpus=at_work_on(tsgs, memory),
        klass=klass,
        memory_bytes=sum(row.memory_used + row.managed for row in rows) if memory else None,
        gpu_memory=memory,
        gpu_share=max(shares) if shares else None,
        notes=(_PARTIAL,) if any(row.partial for row in rows) else (),
        limits=tuple(_applying(census, process.pid, above, tenant)),
        tenant=tenant,
        refused=sum(row.refused for row in rows),
        activity=doing,
        weight=weight,
    )


def _state(rows: Sequence[VctxRow], tsgs: Sequence[Tsg], paused: bool, doing: Activity | None) -> State:
    if any(row.comm.startswith(MPS_COMM) for row in rows):
        return State.MPS_SERVER
    if any(row.mps for row in rows):
        return State.MPS_CLIENT
    if paused or (doing is not None and doing.state == State.PAUSED):
        return State.PAUSED
    if doing is not None and doing.state == State.GATED:
        return State.GATED
    at_work = tsgs or any(row.partial and row.memory_used for row in rows)
    return State.RUNNING if at_work else State.NO_CONTEXT


def _applying(census: Census, pid: int, cgroups: Collection[int], tenant: str) -> Iterable[Account]:
    """The limits that apply to a process in these cgroups and under this tenant."""
    for row in census.limits:
        account = census.account(row)
        if account is None:
            continue
        match account.kind:
            case AccountKind.PID:
                applies = row.pid == pid
            case AccountKind.CGROUP:
                applies = row.cgroup_id in cgroups
            case _:
                applies = bool(tenant) and row.tenant == tenant
        if applies:
            yield account
