# SPDX-License-Identifier: Apache-2.0
"""A lasting connection to detshare.ko: records in and out, dumps that are whole, found again after a reload."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.core.accounts import Target
from detshare.ctl.core.driver import NotAllowed
from detshare.ctl.core.snapshot import AccountKind
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.answer import Answer
from detshare.ctl.netlink.errors import ModuleAbsent, told
from detshare.ctl.netlink.records import (
    BucketRow,
    ClassRow,
    DeniedRow,
    EntityRow,
    GpuRow,
    HoldRow,
    LimitRow,
    SchedRow,
    Status,
    TenantRow,
    TsgRow,
    VctxRow,
    record,
)

T = TypeVar("T")

_NLM_F_DUMP_INTR: Final = 0x10
_DUMPS: Final = 4
"""how often a dump is made again because something changed while it was made"""
_GONE: Final = (errno.ENOENT, errno.EOPNOTSUPP)
"""what generic netlink says of a family number that is not there any more"""


@dataclass(frozen=True, slots=True)
class Order:
    """What sched-set asks for; None: left as it is."""

    klass: str | None = None
    weight: int | None = None
    slice_us: int | None = None
    level: int | None = None
    tpc_percent: int | None = None

    @property
    def text(self) -> str:
        """In words: "class high", "weight 3, ceiling 40 %"."""
        parts = [f"class {self.klass}"] if self.klass is not None else []
        parts += [f"weight {self.weight}"] if self.weight is not None else []
        parts += [f"slice {self.slice_us} us"] if self.slice_us is not None else []
        parts += [f"ceiling {self.tpc_percent} %"] if self.tpc_percent is not None else []
        return ", ".join(parts) or "level only"


class Link:
    """Blocking, for one thread. Every method raises ModuleAbsent, KernelRefused, NotAllowed or OSError."""

    def __init__(self) -> None:
        self._socket: genl.DetShare | None = None
        self._rows: dict[Any, dict[bytes, Any]] = {}
        """of the last whole dump of each kind, by what said them: most say the same the next time"""

    def close(self) -> None:
        """Idempotent; the next question opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> genl.DetShare:
        if self._socket is None:
            try:
                self._socket = genl.DetShare()
            except NetlinkError as error:
                if error.code == errno.ENOENT:
                    raise ModuleAbsent("detshare.ko is not loaded (generic netlink has no family detshare)") from None
                raise
        return self._socket

    def _ask(self, asked: str, call: Callable[[genl.DetShare], T]) -> T:
        with told(asked):
            try:
                return call(self._open())
            except NetlinkError as error:
                if error.code in (errno.EPERM, errno.EACCES):
                    raise NotAllowed(f"{asked}: the kernel module answers root only (CAP_SYS_ADMIN)") from None
                if error.code not in _GONE or self._is_there():
                    raise
            # unloaded and loaded again: the family has another number now
            self.close()
            return call(self._open())

    def _is_there(self) -> bool:
        """Whether the family still has the number that we know."""
        try:
            with genl.DetShare() as fresh:
                return self._socket is not None and bool(fresh.prid == self._socket.prid)
        except NetlinkError:
            self.close()
            reason = "detshare.ko was unloaded; load it again, or restart detshared to go on without"
            raise ModuleAbsent(reason) from None

    def _dump(
        self, asked: str, kind: type[T], call: Callable[[genl.DetShare], Iterable[Answer]], part: bool = False
    ) -> list[T]:
        """`part`: it is asked for some of the rows only."""

        def whole(socket: genl.DetShare) -> list[T]:
            for _ in range(_DUMPS):
                messages = list(call(socket))
                if not any(msg.header["flags"] & _NLM_F_DUMP_INTR for msg in messages):
                    break
            if part:
                return [record(kind, msg) for msg in messages]
            last: dict[bytes, T] = self._rows.get(kind, {})
            rows = [(body := msg.body, last.get(body) or record(kind, msg)) for msg in messages]
            self._rows[kind] = dict(rows)
            return [row for _, row in rows]

        return self._ask(asked, whole)

    # -- reading ------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return self._ask("ask the kernel module for its status", lambda s: record(Status, s.status_get()))

    def gpus(self) -> list[GpuRow]:
        return self._dump("list GPUs", GpuRow, lambda s: s.gpu_get())

    def vctxs(self, pid: int | None = None) -> list[VctxRow]:
        return self._dump("list virtual contexts", VctxRow, lambda s: s.vctx_get(pid), part=pid is not None)

    def tsgs(self, pid: int | None = None) -> list[TsgRow]:
        return self._dump("list channel groups", TsgRow, lambda s: s.tsg_get(pid), part=pid is not None)

    def limits(self) -> list[LimitRow]:
        return self._dump("list memory limits", LimitRow, lambda s: s.limit_get())

    def tenants(self) -> list[TenantRow]:
        return self._dump("list tenants", TenantRow, lambda s: s.tenant_get())

    def orders(self) -> list[SchedRow]:
        return self._dump("list standing orders", SchedRow, lambda s: s.sched_get())

    def classes(self) -> list[ClassRow]:
        return self._dump("list classes", ClassRow, lambda s: s.class_get())

    def buckets(self) -> list[BucketRow]:
        return self._dump("list buckets", BucketRow, lambda s: s.bucket_get())

    def holds(self) -> list[HoldRow]:
        return self._dump("list holds", HoldRow, lambda s: s.hold_get())

    def entities(self, pid: int | None = None) -> list[EntityRow]:
        return self._dump("list sched entities", EntityRow, lambda s: s.entity_get(pid), part=pid is not None)

    def denied(self, pid: int | None = None) -> list[DeniedRow]:
        return self._dump("list what was denied", DeniedRow, lambda s: s.denied_get(pid), part=pid is not None)

    # -- changing -----------------------------------------------------------------------------------------------

    def set_limit(self, target: Target, limit: int, gpu: int | None) -> LimitRow:
        """Limit an account; the answer tells what is used, which may be more."""
        asked = f"limit {target.text} to {limit} bytes"
        return self._ask(asked, lambda s: record(LimitRow, s.limit_set(limit, **_account(target), gpu=gpu)))

    def del_limit(self, target: Target, gpu: int | None) -> None:
        self._ask(f"take the limit of {target.text} away", lambda s: s.limit_del(**_account(target), gpu=gpu))

    def set_tenant(self, name: str, pid: int | None = None) -> TenantRow:
        asked = f"make tenant {name}" if pid is None else f"attach PID {pid} to tenant {name}"
        return self._ask(asked, lambda s: record(TenantRow, s.tenant_set(name, pid)))

    def del_tenant(self, name: str) -> None:
        self._ask(f"forget tenant {name}", lambda s: s.tenant_del(name))

    def set_order(self, target: Target, order: Order) -> SchedRow:
        """Order an account; the answer tells what the driver took."""
        asked = f"give {target.text} the order {order.text}"
        return self._ask(asked, lambda s: record(SchedRow, s.sched_set(**_account(target), **asdict(order))))

    def del_order(self, target: Target) -> SchedRow:
        asked = f"take the order of {target.text} back"
        return self._ask(asked, lambda s: record(SchedRow, s.sched_del(**_account(target))))

    def preempt(self, target: Target) -> SchedRow:
        return self._ask(f"preempt {target.text}", lambda s: record(SchedRow, s.preempt(**_account(target))))

    def set_class(self, row: ClassRow) -> ClassRow:
        """Write the row of a class, whole."""
        values = asdict(row)
        del values["entities"]
        return self._ask(f"write class {row.name}", lambda s: record(ClassRow, s.class_set(**values)))

    def del_class(self, name: str, gpu: int | None = None) -> None:
        self._ask(f"forget class {name}", lambda s: s.class_del(name, gpu))

    def set_bucket(self, target: Target, rate_us: int, burst_us: int | None) -> BucketRow:
        asked = f"give {target.text} a bucket of {rate_us} us a second"
        return self._ask(asked, lambda s: record(BucketRow, s.bucket_set(rate_us, burst_us, **_account(target))))

    def del_bucket(self, target: Target) -> None:
        self._ask(f"take the bucket of {target.text} away", lambda s: s.bucket_del(**_account(target)))

    def hold(self, target: Target, *, gate: bool, pause: bool, lease_ms: int | None = None) -> HoldRow:
        """Hold an account, or hold it longer; the answer tells what is held."""
        asked = f"hold {target.text}"
        return self._ask(asked, lambda s: record(HoldRow, s.hold_set(gate, pause, lease_ms, **_account(target))))

    def let_go(self, target: Target) -> HoldRow:
        """End the hold of an account."""
        return self._ask(f"let {target.text} go", lambda s: record(HoldRow, s.hold_del(**_account(target))))


def _account(target: Target) -> dict[str, Any]:
    """The attributes that name an account."""
    if target.kind is AccountKind.PID:
        return {"kind": genl.DETSHARE_KIND_PID, "pid": target.process.pid}
    if target.kind is AccountKind.CGROUP:
        return {"kind": genl.DETSHARE_KIND_CGROUP, "cgroup_id": target.cgroup}
    return {"kind": genl.DETSHARE_KIND_TENANT, "tenant": target.name}
