# SPDX-License-Identifier: Apache-2.0
"""What people and tools see: plain read-only values, with one JSON form for API, CLI and top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, Final

from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.gputime import GpuTime, Place, Schedule
from detshare.ctl.core.observed import Observed, Requests
from detshare.ctl.core.work import Activity, Parking, Spatial


def plain(value: Any) -> Any:
    """A value of this module as JSON has it: dataclasses.asdict without its deep copies, a quarter of its time."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if (names := _names(kind)) is not None:  # type: ignore[arg-type]  # classes are hashable
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


_WRITTEN_ANEW: Final = frozenset({"id", "tsgs", "limits"})
"""fields of a Program that its JSON has in another form"""
_PLAIN: Final = frozenset({int, str, float, bool, type(None)})


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


class Level(IntEnum):
    """Runlist interleave level of a TSG (values of NVA06C_CTRL_INTERLEAVE_LEVEL_*)."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


class Kind(StrEnum):
    """What a TSG runs, by the engine that the driver reports for it."""

    COMPUTE = "compute"
    COPY = "copy"
    OTHER = "other"


class State(StrEnum):
    """How a program stands."""

    RUNNING = "running"
    PAUSED = "paused"
    GATED = "gated"
    """its launches wait; what it launched before runs on"""
    NO_CONTEXT = "no-context"
    NOT_UNDERSTOOD = "not-understood"
    MPS_SERVER = "mps-server"
    MPS_CLIENT = "mps-client"
    SPATIAL = "spatial"
    """in the spatial lane: its own runtime places its kernels"""
    PARKED = "parked"
    """its GPU memory is in host memory; its next launch brings it back, or `resume` (Parking.way)"""
    READ_ONLY = "read-only"
    """the driver's branch is not in our tables: seen, never touched"""


class AccountKind(StrEnum):
    """Whom a memory limit is for. All that apply to a program hold at once."""

    PID = "pid"
    CGROUP = "cgroup"
    TENANT = "tenant"


class Containment(StrEnum):
    """What keeps a program's GPU memory within bounds."""

    KERNEL = "kernel"
    """detshare.ko refuses what is beyond the limit, whatever the program is linked with"""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Account:
    """A memory limit, with what is charged to it. Bytes."""

    kind: AccountKind
    name: str
    """the PID, the cgroup's path (its number where no path is known), or the tenant's name"""
    gpu: int | None
    """number of the GPU; None: the limit is for each GPU by itself"""
    limit: int
    used: int = 0
    peak: int = 0
    refused: int = 0
    """requests that were refused because of it"""

    @property
    def text(self) -> str:
        """In words: "pid 4242", "tenant red on GPU 0"."""
        return f"{self.kind.value} {self.name}" + ("" if self.gpu is None else f" on GPU {self.gpu}")

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True)
class Tsg:
    """A channel group of a program, as the driver describes it."""

    gpu: str
    """GPU UUID"""
    fd: int
    """number of the nvidiactl descriptor in the owner through which it is reached"""
    client: int
    handle: int
    device: int
    subdevice: int
    tsg_id: int
    """the hardware's number; equal numbers on one GPU are one TSG"""
    kind: Kind
    engine: str
    channels: tuple[int, ...]
    """handles; one 0 for each where only their number is known"""
    context_shares: tuple[int, ...]
    slice_us: int
    level: Level | None = None
    """None: never set by us; the driver cannot be asked for it (its default is MEDIUM)"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """GPU time that an account gets in each second, in microseconds."""

    kind: AccountKind
    name: str
    rate_us: int
    burst_us: int
    level_us: int = 0
    used_us: int = 0
    emptied: int = 0
    empty: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True)
class Hold:
    """An account that somebody holds, with what is left of the lease."""

    kind: AccountKind
    name: str
    gate: bool
    pause: bool
    lease_ms: int
    renewed: bool = False
    """by this daemon, so that it lasts as long as the daemon"""

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True)
class StandingOrder:
    """What stands for an account, and for everybody who comes to it."""

    kind: AccountKind
    name: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {**plain(self), "kind": self.kind.value}


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """The row of a class, as the kernel module has it. `gpu` None: for each GPU by itself."""

    name: str
    gpu: int | None
    weight: int | None
    slice_us: int | None
    level: str | None
    floor_permille: int
    entities: int
    turn_us: int = 0


@dataclass(frozen=True, slots=True)
class ClassFloor:
    """The floor of a class where no kernel module holds rows of classes: a share of time, 0..1.

    Without `uuid` on each GPU that has none of its own. `gpu` None beside a `uuid`: that GPU is not here now.
    """

    name: str
    floor: float
    gpu: int | None = None
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """A process that uses, or may use, a GPU."""

    id: ProcessId
    command: str
    user: str
    container: str
    state: State
    tsgs: tuple[Tsg, ...] = ()
    gpus: tuple[str, ...] = ()
    """those that it computes on; of a program that computes on none, those that it opened"""
    klass: str | None = None
    """high, normal, low, idle; None: not managed"""
    weight: int | None = None
    memory_bytes: int | None = None
    gpu_share: float | None = None
    """of the last second, 0..1, on the GPU where it has most, by NVML; what is shown is `share`"""
    adopted_ms: float | None = None
    notes: tuple[str, ...] = ()
    limits: tuple[Account, ...] = ()
    """every memory limit that applies to it; only what detshare.ko holds is a limit"""
    tenant: str = ""
    """the named tenant it was attached to"""
    job: str = ""
    """the job that it is a rank of, as of jobs.of; one text for all of its ranks"""
    refused: int = 0
    """requests for memory that were refused"""
    spatial: Spatial | None = None
    """None: it is in the temporal lane"""
    parking: Parking | None = None
    """None: it was neither started with --park nor parked by the driver's checkpoint"""
    activity: Activity | None = None
    """None: the kernel module is not there, or the program cannot launch work yet"""
    observed: Observed | None = None
    """None: launches are not watched (`daemon.launches`), or it made no call to CUDA yet"""
    decided: Mapping[str, str] = field(default_factory=dict, hash=False)
    """what was decided (Slice, Bind, Move, Gate, Reflex) -> by whom: "hand", or "policy NAME"; asked of a daemon"""
    pctx: str = ""
    """the member of its GPU's pool that it is bound to; empty: a share of its own, or no daemon that has a pool"""
    floor: float | None = None
    """share of time, 0..1, that it has at least while a higher class leaves nothing, of several GPUs the lowest; None:
    not managed"""
    floors: Mapping[str, float] = field(default_factory=dict, hash=False)
    """GPU UUID -> the same there; empty where its GPUs do not differ"""
    gpu_time: tuple[GpuTime, ...] = ()
    """for each GPU that it had lately; empty where the context-switch log is refused"""
    places: tuple[Place, ...] = ()
    """in the rotation of each GPU"""
    requests: Requests | None = None
    """how long its requests take; None: nobody says"""
    gpu_memory: Mapping[str, int] = field(default_factory=dict, hash=False)
    """GPU UUID -> bytes of memory_bytes that are on it; also on GPUs that it does not compute on"""

    @property
    def share(self) -> float | None:
        """Of the last seconds, 0..1, on the GPU where it has most: by the context-switch log, else by NVML."""
        return max((each.share for each in self.gpu_time), default=self.gpu_share)

    @property
    def memory_limit(self) -> int | None:
        """Bytes: the lowest of its limits; None where it has none."""
        return min((account.limit for account in self.limits), default=None)

    @property
    def containment(self) -> Containment:
        return Containment.KERNEL if self.limits else Containment.NONE

    @property
    def compute(self) -> tuple[Tsg, ...]:
        return tuple(t for t in self.tsgs if t.kind is Kind.COMPUTE)

    def to_json(self) -> dict[str, Any]:
        """The PROGRAM object of the API: pid, start, command, ... tsgs with handles as integers."""
        data = {name: plain(getattr(self, name)) for name in _names(Program) or () if name not in _WRITTEN_ANEW}
        data["pid"], data["start"] = self.id
        data["class"] = data.pop("klass")
        data["gpu_share"] = self.share
        data["state"] = self.state.value
        data["tsgs"] = [tsg_to_json(t) for t in self.tsgs]
        data["limits"] = [account.to_json() for account in self.limits]
        data["memory_limit"] = self.memory_limit
        data["containment"] = self.containment.value
        return data


def tsg_to_json(tsg: Tsg) -> dict[str, Any]:
    """A TSG of the PROGRAM object: handles as integers, kind and level by name."""
    data: dict[str, Any] = plain(tsg)
    data["kind"] = tsg.kind.value
    data["level"] = tsg.level.name.lower() if tsg.level is not None else None
    return data


@dataclass(frozen=True, slots=True)
class Tenant:
    """A name under which processes, and the children they make later, share limits."""

    name: str
    pids: tuple[int, ...] = ()
    """its processes"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the machine. `taken` is CLOCK_MONOTONIC seconds, `seconds` how long the look took."""

    backend: str
    proof: str
    driver: str
    taken: float
    seconds: float
    gpus: tuple[Gpu, ...]
    programs: tuple[Program, ...]
    warnings: tuple[str, ...] = ()
    accounts: tuple[Account, ...] = ()
    """every memory limit that is in force, also those that nobody uses now"""
    tenants: tuple[Tenant, ...] = ()
    orders: tuple[StandingOrder, ...] = ()
    """what stands for cgroups and tenants"""
    classes: tuple[ClassInfo, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    holds: tuple[Hold, ...] = ()
    floors: tuple[ClassFloor, ...] = ()
    """of classes, where there is no kernel module"""
    schedules: tuple[Schedule, ...] = ()
    """of each GPU where a daemon, or the kernel module, rotates the background"""
    lapses: tuple[str, ...] = ()
    """why the kernel module does not enforce all; `warnings` says so too"""
    closed: int | None = None
    """calls that it refused because of them"""
    sensor_cpu_s: float | None = None
    """CPU time that reading the context-switch logs took the process that looked; None where it reads none"""

    def to_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "proof": self.proof,
            "driver": self.driver,
            "taken": self.taken,
            "seconds": self.seconds,
            "gpus": [asdict(g) for g in self.gpus],
            "programs": [p.to_json() for p in self.programs],
            "warnings": list(self.warnings),
            "accounts": [account.to_json() for account in self.accounts],
            "tenants": [asdict(tenant) for tenant in self.tenants],
            "orders": [order.to_json() for order in self.orders],
            "classes": [asdict(row) for row in self.classes],
            "buckets": [bucket.to_json() for bucket in self.buckets],
            "holds": [hold.to_json() for hold in self.holds],
            "floors": [asdict(floor) for floor in self.floors],
            "schedules": [plain(schedule) for schedule in self.schedules],
        }


@dataclass(frozen=True, slots=True)
class TsgChange:
    """A TSG before and after a verb; slices in microseconds, `level` None where never set."""

    gpu: str
    handle: int
    slice_us: int
    level: str | None
    before_us: int


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A memory limit before and after a verb, in bytes; None: no limit. `used` is what is charged to it now."""

    account: str
    gpu: int | None
    before: int | None
    limit: int | None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What one verb did to one program. `pid` 0: to something that is no process, which `note` or `limit` names."""

    pid: int
    tsgs: tuple[TsgChange, ...] = ()
    note: str = ""
    limit: LimitChange | None = None
    stands: bool = False
    """the kernel applies it by itself to whatever the program makes later"""


UNMANAGED: Final = "it is not managed: nothing to put back"
"""reason of a Skip: who is to be released has nothing that was set"""


@dataclass(frozen=True, slots=True)
class Skip:
    """A program that a verb left alone, and why (a sentence with the next step)."""

    pid: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Answer of a changing verb. `seconds`: how long the driver calls took."""

    verb: str
    changed: tuple[Change, ...] = ()
    skipped: tuple[Skip, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, verb: str, answers: Sequence[Change | Skip], seconds: float = 0.0) -> Outcome:
        """What became of each program."""
        changed = tuple(each for each in answers if isinstance(each, Change))
        return cls(verb, changed, tuple(each for each in answers if isinstance(each, Skip)), seconds)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line in `detshare-ctl events`. `when` is Unix seconds."""

    when: float
    kind: str
    """attach, detach, context, change, pause, resume, release, error, daemon; from the kernel module: vctx-new,
    vctx-gone, tsg-new, tsg-gone, refused, limit-changed, driver-up, driver-down, gated, opened, paused, resumed,
    lease-ended, denied, kick, quiet, lost"""
    pid: int | None
    text: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of `doctor`: `ok` True, False, or None for a remark; `advice` is the next step."""

    name: str
    ok: bool | None
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
