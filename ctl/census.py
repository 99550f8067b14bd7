# SPDX-License-Identifier: Apache-2.0
"""From what the kernel module lists to programs and limits, as people see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from detshare.ctl import classes
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import GpuRow, LimitRow, TenantRow, TsgRow, VctxRow
from detshare.ctl.programs import MPS_COMM
from detshare.ctl.rm.abi import Abi
from detshare.ctl.rm.driver import Gpu, Holder, ProcessId
from detshare.ctl.snapshot import Account, AccountKind, Kind, Level, Program, State, Tenant, Tsg
from detshare.ctl.wishes import Wish

UNKNOWN = -1
"""in fields of a Tsg that only asking on the program's own descriptor would tell"""
KINDS = {
    genl.DETSHARE_KIND_PID: AccountKind.PID,
    genl.DETSHARE_KIND_CGROUP: AccountKind.CGROUP,
    genl.DETSHARE_KIND_TENANT: AccountKind.TENANT,
}
_WEIGHT = "weight "
_PARTIAL = "older than the kernel module: its objects are not all known one by one, its memory is counted"


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
    holders: Mapping[ProcessId, Holder] = field(default_factory=dict)
    cgroups: Mapping[int, str] = field(default_factory=dict)
    """cgroup number -> path"""

    def uuid(self, gpu: int) -> str:
        """The UUID of the kernel module's GPU number; its number in words where nobody knows it."""
        row = next((row for row in self.gpu_rows if row.gpu == gpu), None)
        if row is not None and row.uuid:
            return row.uuid
        minor = row.minor if row is not None and row.minor is not None else gpu
        return next((g.uuid for g in self.gpus if g.minor == minor), f"GPU {gpu}")

    def accounts(self) -> tuple[Account, ...]:
        """Every limit that is in force."""
        return tuple(account for row in self.limits if (account := self.account(row)) is not None)

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
        return Account(kind, name, row.gpu, row.limit, row.used, row.peak, row.refused)

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


def setting_of(klass: str) -> tuple[str | None, int | None]:
    """(class, weight) of what an order's text says; (None, None) for a raw slice."""
    if klass in classes.CLASSES:
        return klass, None
    number = klass.removeprefix(_WEIGHT)
    return (None, int(number)) if klass.startswith(_WEIGHT) and number.isdecimal() else (None, None)


def order_text(wish: Wish) -> str:
    """What an order is called in the kernel: "high", "weight 3", "slice"."""
    if wish.klass is not None:
        return wish.klass
    return f"{_WEIGHT}{wish.weight}" if wish.weight is not None else "slice"


def programs(
    census: Census,
    *,
    abi: Abi | None,
    paused: Collection[ProcessId] = (),
    share: Mapping[tuple[int, str], float] | None = None,
    lineage: Callable[[str], Mapping[int, str]] = lambda path: {},
) -> list[Program]:
    """Every process that the kernel module or /proc shows on a GPU, by PID. `lineage`: see detshare.ctl.cgroups."""
    tsgs: dict[int, list[TsgRow]] = defaultdict(list)
    for row in census.tsgs:
        tsgs[row.vctx_id].append(row)
    seen = census.vctxs_of()
    found = []
    for process, rows in seen.items():
        holder = census.holders.get(process)
        mine = [_tsg(census, tsg, abi) for row in rows for tsg in tsgs.get(row.vctx_id, ())]
        found.append(_program(census, process, rows, mine, holder, process in paused, share or {}, lineage))
    uuids = {gpu.minor: gpu.uuid for gpu in census.gpus}
    for process, holder in census.holders.items():
        if process not in seen:
            gpus = tuple(dict.fromkeys(uuids[m] for _, m in holder.device_fds if m in uuids))
            found.append(
                Program(process, holder.command, holder.user, holder.container, State.NO_CONTEXT, gpus=gpus)
            )
    return sorted(found, key=lambda program: program.id)


def _tsg(census: Census, row: TsgRow, abi: Abi | None) -> Tsg:
    engine = abi.engine_name(row.engine) if abi is not None else f"engine {row.engine:#x}"
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
    holder: Holder | None,
    paused: bool,
    share: Mapping[tuple[int, str], float],
    lineage: Callable[[str], Mapping[int, str]],
) -> Program:
    gpus = tuple(dict.fromkeys(census.uuid(row.gpu) for row in rows if row.gpu is not None))
    klass, weight = next((setting_of(row.klass) for row in rows if row.klass), (None, None))
    tenant = next((row.tenant for row in rows if row.tenant), "")
    above = set(lineage(holder.cgroup)) if holder is not None else set()
    above |= {row.cgroup_id for row in rows}
    shares = [share[process.pid, gpu] for gpu in gpus if (process.pid, gpu) in share]
    has_gpu = any(row.gpu is not None for row in rows)
    return Program(
        id=process,
        command=holder.command if holder is not None else f"[{rows[0].comm}]",
        user=holder.user if holder is not None else "?",
        container=holder.container if holder is not None else "",
        state=_state(rows, tsgs, paused),
        tsgs=tuple(tsgs),
        gpus=gpus,
        klass=klass,
        weight=weight,
        memory_bytes=sum(row.memory_used + row.managed for row in rows) if has_gpu else None,
        gpu_share=max(shares) if shares else None,
        notes=(_PARTIAL,) if any(row.partial for row in rows) else (),
        limits=tuple(_applying(census, process.pid, above, tenant)),
        tenant=tenant,
        refused=sum(row.refused for row in rows),
    )


def _state(rows: Sequence[VctxRow], tsgs: Sequence[Tsg], paused: bool) -> State:
    if any(row.comm.startswith(MPS_COMM) for row in rows):
        return State.MPS_SERVER
    if any(row.mps for row in rows):
        return State.MPS_CLIENT
    if paused:
        return State.PAUSED
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
