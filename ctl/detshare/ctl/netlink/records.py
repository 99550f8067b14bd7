# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko answers, as plain values. An attribute that may be absent is None here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, TypeVar

from detshare.ctl.netlink import genl
from detshare.ctl.netlink.answer import Answer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Status:
    """What is in force."""

    module_version: str
    abi: int
    mode: int
    shield: bool = False
    hooks: tuple[str, ...] = ()
    driver_version: str | None = None
    gpus: int = 0
    vctxs: int = 0
    objects: int = 0
    calls: int = 0
    refused: int = 0
    events_lost: int = 0
    inflight: int = 0
    denied: int = 0
    holds: int = 0
    waiting: int = 0
    mechanisms: tuple[str, ...] = ()
    fail_closed: bool = False
    lapses: tuple[str, ...] = ()
    closed: int = 0


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU that programs have used."""

    gpu: int
    uuid: str | None = None
    minor: int | None = None
    total: int | None = None
    used: int = 0
    vctxs: int = 0
    ceiling: int = 0
    ceiling_status: int | None = None
    turn_mode: int = 0
    turn_vctx: int = 0
    turn_pid: int = 0
    turn_left_ms: int = 0


@dataclass(frozen=True, slots=True)
class VctxRow:
    """A virtual context. `start_time`: field 22 of /proc/PID/stat; `gpu` None: the client has made no device."""

    vctx_id: int
    pid: int
    client: int
    start_time: int = 0
    comm: str = ""
    cgroup_id: int = 0
    tenant: str = ""
    gpu: int | None = None
    partial: bool = False
    memory_used: int = 0
    managed: int = 0
    tsgs: int = 0
    channels: int = 0
    ctxshares: int = 0
    usermodes: int = 0
    objects: int = 0
    refused: int = 0
    klass: str = ""
    mps: bool = False


@dataclass(frozen=True, slots=True)
class TsgRow:
    """A channel group. `slice_us` None: the driver did not answer; `level` None: never set by us."""

    vctx_id: int
    pid: int
    client: int
    handle: int
    gpu: int | None = None
    engine: int = 0
    compute: bool = False
    channels: int = 0
    slice_us: int | None = None
    level: int | None = None
    slice_before_us: int | None = None
    managed: bool = False


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit and its account's use. `gpu` None: on each GPU by itself."""

    kind: int
    pid: int = 0
    cgroup_id: int = 0
    tenant: str = ""
    gpu: int | None = None
    limit: int | None = None
    used: int = 0
    peak: int = 0
    refused: int = 0
    start_time: int = 0


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A named tenant."""

    name: str
    pids: tuple[int, ...] = ()
    used: int = 0


@dataclass(frozen=True, slots=True)
class SchedRow:
    """A standing order, or what came of one. `status`, `tpc_status`: NV_STATUS of the last that the driver refused."""

    pid: int = 0
    klass: str = ""
    slice_us: int | None = None
    level: int | None = None
    tsgs_set: int = 0
    tsgs_failed: int = 0
    status: int = 0
    kind: int = 0
    cgroup_id: int = 0
    tenant: str = ""
    weight: int | None = None
    tpc_percent: int | None = None
    tpc_status: int = 0
    processes: int = 0
    start_time: int = 0


@dataclass(frozen=True, slots=True)
class ClassRow:
    """The row of a class. `gpu` None: on each GPU by itself."""

    name: str
    gpu: int | None = None
    weight: int | None = None
    slice_us: int | None = None
    level: int | None = None
    floor_permille: int = 0
    entities: int = 0
    turn_us: int = 0
    turn_rank: int = 0


@dataclass(frozen=True, slots=True)
class BucketRow:
    """A bucket of GPU time, in microseconds; `rate_us` for each second."""

    kind: int
    rate_us: int
    burst_us: int
    pid: int = 0
    cgroup_id: int = 0
    tenant: str = ""
    level_us: int = 0
    used_us: int = 0
    emptied: int = 0
    empty: bool = False
    start_time: int = 0


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A hold by order, or what came of one. `lease_ms`: what is left of it."""

    kind: int
    pid: int = 0
    cgroup_id: int = 0
    tenant: str = ""
    gate: bool = False
    pause: bool = False
    lease_ms: int = 0
    vctxs: int = 0
    gated: int = 0
    paused: int = 0
    failed: int = 0
    status: int = 0
    why: str = ""
    gate_ns: int = 0
    pause_ns: int = 0
    start_time: int = 0


@dataclass(frozen=True, slots=True)
class EntityRow:
    """What a virtual context is doing. `last_kick`, `held_since`: CLOCK_MONOTONIC nanoseconds."""

    vctx_id: int
    pid: int
    gpu: int = 0
    client: int = 0
    klass: str = ""
    weight: int | None = None
    state: int = 0
    reasons: int = 0
    last_kick: int | None = None
    idle_ns: int = 0
    kicks: int = 0
    faults: int = 0
    waits: int = 0
    wait_ns: int = 0
    waiting: int = 0
    doors: int = 0
    doors_unknown: int = 0
    used_us: int = 0
    tsgs: int = 0
    channels_off: int = 0
    held_since: int | None = None
    tpc_percent: int | None = None
    denied: int = 0


@dataclass(frozen=True, slots=True)
class DeniedRow:
    """Calls of one virtual context that the filter did not let through."""

    pid: int
    command: int
    reason: int
    vctx_id: int | None = None
    comm: str = ""
    status: int = 0
    count: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event. `cmd` says which; `time` is CLOCK_MONOTONIC nanoseconds."""

    cmd: int
    seq: int = 0
    time: int = 0
    vctx_id: int | None = None
    pid: int | None = None
    comm: str = ""
    gpu: int | None = None
    client: int | None = None
    handle: int | None = None
    engine: int | None = None
    kind: int | None = None
    cgroup_id: int | None = None
    tenant: str | None = None
    asked: int | None = None
    used: int | None = None
    limit: int | None = None
    driver_version: str | None = None
    idle_ns: int | None = None
    by: int | None = None
    reasons: int | None = None
    command: int | None = None
    denial: int | None = None
    status: int | None = None
    count: int | None = None


_PLURAL = {
    ("HOOK", Status): "hooks",
    ("MECHANISM", Status): "mechanisms",
    ("LAPSE", Status): "lapses",
    ("PID", TenantRow): "pids",
}
"""attributes that come once for each value"""
_FIELD = {"CLASS": "klass"}


@cache
def _known(kind: Any) -> Mapping[str, Field[Any]]:
    """A record's fields by name; asked for each of thousands of messages."""
    return {field.name: field for field in fields(kind)}


@cache
def _places(kind: Any, message: Any) -> Mapping[int, tuple[str, str]]:
    """By number of an attribute of a class of messages: the field that it is for, and its form: "plural", "bool",
    "as it is". Without those of a newer module."""
    known, found = _known(kind), {}
    for number, (name, _) in enumerate(message.nla_map):
        short = name.removeprefix(message.prefix)
        field = _PLURAL.get((short, kind)) or _FIELD.get(short, short.lower())
        if (short, kind) in _PLURAL:
            found[number] = field, "plural"
        elif field in known:
            found[number] = field, "bool" if known[field].type == "bool" else "as it is"
    return found


@cache
def _needed(kind: Any) -> tuple[str, ...]:
    """Fields that a record cannot be without."""
    return tuple(name for name, field in _known(kind).items() if field.default is MISSING)


def record(kind: type[T], msg: Answer) -> T:
    """A message of the family as a record; attributes of a newer module that the record lacks are passed over.

    ValueError where the message lacks what the record cannot be without, or is malformed.
    """
    values: dict[str, Any] = {"cmd": msg.cmd} if "cmd" in _known(kind) else {}  # type: ignore[arg-type]
    places = _places(kind, msg.kind) if msg.kind is not None else {}  # type: ignore[arg-type]  # classes are hashable
    for number, value in msg.values():
        place = places.get(number)
        if place is None:
            continue
        field, form = place
        if form == "as it is":
            values[field] = value
        elif form == "bool":
            values[field] = bool(value)
        else:
            values[field] = (*values.get(field, ()), value)
    lacking = [name for name in _needed(kind) if name not in values]  # type: ignore[arg-type]
    if lacking:
        raise ValueError(f"an answer of detshare.ko (command {msg.cmd}) lacks {', '.join(lacking)}")
    return kind(**values)


KINDS = {genl.DETSHARE_KIND_PID: "pid", genl.DETSHARE_KIND_CGROUP: "cgroup", genl.DETSHARE_KIND_TENANT: "tenant"}
LEVELS = {genl.DETSHARE_LEVEL_LOW: "low", genl.DETSHARE_LEVEL_MEDIUM: "medium", genl.DETSHARE_LEVEL_HIGH: "high"}
ABIS = {genl.DETSHARE_ABI_NONE: "none", genl.DETSHARE_ABI_BRANCH: "branch", genl.DETSHARE_ABI_EXACT: "exact"}
ENTITY_STATES = {
    genl.DETSHARE_ENTITY_STATE_IDLE: "idle",
    genl.DETSHARE_ENTITY_STATE_ACTIVE: "active",
    genl.DETSHARE_ENTITY_STATE_GATED: "gated",
    genl.DETSHARE_ENTITY_STATE_PAUSED: "paused",
}
HOLDS = {
    genl.DETSHARE_HOLD_ORDER: "order",
    genl.DETSHARE_HOLD_BUCKET: "bucket",
    genl.DETSHARE_HOLD_TURN: "turn",
}
"""bits of reasons"""
DENIALS = {
    genl.DETSHARE_DENIAL_ORDER: "order",
    genl.DETSHARE_DENIAL_FOREIGN: "foreign",
    genl.DETSHARE_DENIAL_RAW: "raw",
    genl.DETSHARE_DENIAL_QUERY: "query",
    genl.DETSHARE_DENIAL_DOORBELL: "doorbell",
}
ABILITIES = {
    genl.DETSHARE_ABILITY_UNKNOWN: "unknown",
    genl.DETSHARE_ABILITY_ABSENT: "absent",
    genl.DETSHARE_ABILITY_PRESENT: "present",
}


def reasons(bits: int) -> tuple[str, ...]:
    """The reasons in a field of bits, in words."""
    known = tuple(name for bit, name in HOLDS.items() if bits & bit)
    rest = bits & ~sum(HOLDS)
    return (*known, f"{rest:#x}") if rest else known
