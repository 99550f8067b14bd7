# SPDX-License-Identifier: Apache-2.0
"""A snapshot turned into rows of text. What cannot be read is "-", and no snapshot makes it raise."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from detshare.ctl.core import words
from detshare.ctl.top.values import (
    UNKNOWN,
    Json,
    clean,
    items,
    memory,
    microseconds,
    number,
    percent,
    rate,
    texts,
    whole,
)

SORTS = ("share", "memory", "pid", "class", "launches", "delay", "held", "gpu")
_ALWAYS = SORTS[:4]
CLASSES = ("high", "normal", "low", "idle")
_ON_GPU = re.compile(r"gpu ?([0-9]{1,4})")
_SHORT_STATE = {"not-understood": "unclear"}


@dataclass(frozen=True, slots=True)
class Row:
    """One program: text for each column, and the values that sorting needs."""

    pid: int | None
    start: int | None
    cells: Mapping[str, str]
    """column name -> text"""
    share: float | None = None
    """0..1 per GPU"""
    memory: int | None = None
    """bytes"""
    klass: str | None = None
    state: str = UNKNOWN
    sms: float | None = None
    """0..1 of the GPU's SMs"""
    limit: float | None = None
    """0..1 of its memory limit that is in use"""
    launches: float | None = None
    """a second"""
    delay: float | None = None
    """p99, microseconds: see rates.py"""
    held: float | None = None
    """0..1 of the time"""
    lately: Sequence[object] = ()
    """shares of each tenth of a second, oldest first"""
    stalled: bool = False
    """it has work and makes no progress"""
    raw: Json = field(default_factory=dict)

    @property
    def key(self) -> tuple[int | None, int | None]:
        """Identity that a reused PID does not share."""
        return (self.pid, self.start)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU of the header."""

    index: str
    name: str
    uuid: str
    memory: str


def _same(values: Iterable[str]) -> str:
    found = list(dict.fromkeys(values))
    return UNKNOWN if not found else found[0] if len(found) == 1 else "mixed"


def compute_tsgs(program: Json) -> list[Json]:
    """The channel groups on which slices and levels act."""
    return [tsg for tsg in items(program.get("tsgs")) if tsg.get("kind") == "compute"]


def gpu_index(gpus: Sequence[Json]) -> dict[str, str]:
    """GPU UUID -> the number that the header shows."""
    index: dict[str, str] = {}
    for position, gpu in enumerate(gpus):
        minor = whole(gpu.get("minor"))
        index[clean(gpu.get("uuid"))] = str(position if minor is None else minor)
    return index


def _gpus_of(program: Json, index: Mapping[str, str]) -> str:
    found = [index.get(uuid, "?") for uuid in texts(program.get("gpus"))]
    return ",".join(found) or UNKNOWN


def _state(program: Json) -> str:
    """The state; for a running program what it does, where the kernel module sees that."""
    state = clean(program.get("state")) or UNKNOWN
    doing = program.get("activity")
    if state == "running" and isinstance(doing, Mapping):
        return clean(doing.get("state")) or state
    return state


def activity(program: Json) -> list[str]:
    """What the kernel module knows of a program's launches, a line each."""
    doing = program.get("activity")
    if not isinstance(doing, Mapping):
        return []
    reasons = ", ".join(texts(doing.get("reasons")))
    waited, waits = number(doing.get("wait_ms")), whole(doing.get("waits"))
    parts = [
        f"{clean(doing.get('state')) or UNKNOWN}{f' ({reasons})' if reasons else ''}",
        f"GPU time {microseconds(doing.get('used_us'))}",
        f"{UNKNOWN if waits is None else waits} waits, {UNKNOWN if waited is None else f'{waited:.1f} ms'}",
    ]
    ceiling = whole(doing.get("ceiling"))
    parts += [f"TPC ceiling {ceiling} %"] if ceiling is not None else []
    lines = ["; ".join(parts)]
    for each in items(doing.get("denials")):
        times, why = whole(each.get("count")) or 0, clean(each.get("reason"))
        lines.append(f"denied {times} x {clean(each.get('name'))} ({why})")
    return lines


def observed(program: Json) -> list[str]:
    """What was seen from outside of a program's calls to CUDA, a line each."""
    seen = program.get("observed")
    if not isinstance(seen, Mapping):
        return []
    by = clean(seen.get("source")) or UNKNOWN
    counts = {name: whole(seen.get(name)) for name in ("launches", "graph_launches", "copies", "fills", "waits")}
    told = {name: UNKNOWN if count is None else str(count) for name, count in counts.items()}
    copied, waited = memory(whole(seen.get("copied_bytes"))), number(seen.get("wait_ms"))
    lines = [
        f"{by}: {told['launches']} launches, {told['graph_launches']} graphs, {told['copies']} copies ({copied}),"
        f" {told['fills']} fills, {told['waits']} waits ({UNKNOWN if waited is None else f'{waited:.1f} ms'})"
    ]
    grids = [
        f"{whole(each.get('blocks'))} x {whole(each.get('threads')) or UNKNOWN}: {whole(each.get('launches'))}"
        for each in items(seen.get("grids"))[:4]
    ]
    lines += [f"{by}: blocks x threads: launches  {', '.join(grids)}"] if grids else []
    return [*lines, *(f"{by}: partial: {why}" for why in texts(seen.get("partial")))]


def _lane(program: Json) -> tuple[str, str, float | None]:
    """The lane, the pCtx (or the share of SMs, where it is bound to none), and 0..1 of the SMs."""
    spatial, doing = program.get("spatial"), program.get("activity")
    pctx, part, lane = clean(program.get("pctx")), None, "temporal"
    if isinstance(spatial, Mapping):
        lane = "spatial"
        sms, mine = whole(spatial.get("sms")), whole(spatial.get("idle_sms"))
        if isinstance(spatial.get("waiting"), bool) and spatial["waiting"] and not spatial.get("held"):
            busy = whole(spatial.get("busy_sms"))
            mine = mine if busy is None else busy
        part = mine / sms if sms and mine is not None else None
    elif isinstance(doing, Mapping):
        ceiling = whole(doing.get("ceiling"))
        part = 1.0 if ceiling is None else ceiling / 100
    elif not compute_tsgs(program):
        lane = UNKNOWN
    return lane, pctx or percent(part), part


def row(program: Json, index: Mapping[str, str], servers: Sequence[Json] = ()) -> Row:
    """One program of a snapshot; `index` as from gpu_index; `servers`: the MPS servers of the snapshot."""
    pid, weight = whole(program.get("pid")), whole(program.get("weight"))
    klass = clean(program.get("class")) or None
    state = _state(program)
    share, bytes_ = number(program.get("gpu_share")), whole(program.get("memory_bytes"))
    tsgs = compute_tsgs(program)
    lane, pctx, sms = _lane(program)
    found = program.get("rates")
    rates: Json = found if isinstance(found, Mapping) else {}
    launches, delay, held = (number(rates.get(name)) for name in ("launches_per_s", "queue_p99_us", "held"))
    most = whole(program.get("memory_limit"))
    cells = {
        "PID": UNKNOWN if pid is None else str(pid),
        "GPU": _gpus_of(program, index),
        "CLASS": klass or (UNKNOWN if weight is None else f"w {weight}"),
        "SLICE": _same(microseconds(tsg.get("slice_us")) for tsg in tsgs),
        "LEVEL": _same(clean(tsg.get("level")) or UNKNOWN for tsg in tsgs),
        "MEM": memory(bytes_),
        "LIMIT": memory(most),
        "USE": memory(bytes_) + ("" if most is None else f"/{memory(most)}"),
        "LANE": lane,
        "PCTX": pctx,
        "L/S": rate(launches),
        "Q99": microseconds(delay),
        "HELD": percent(held),
        "SHARE": words.SERVED if words.servers(program, servers) else percent(share),
        "TURN": words.turn(program) or UNKNOWN,
        "STATE": _SHORT_STATE.get(state, state),
        "USER": clean(program.get("user")) or UNKNOWN,
        "CONTAINER": clean(program.get("container"))[:12] or UNKNOWN,
        "TSGS": str(len(tsgs)) if isinstance(program.get("tsgs"), list | tuple) else UNKNOWN,
        "COMMAND": clean(program.get("command")) or UNKNOWN,
    }
    return Row(
        pid=pid,
        start=whole(program.get("start")),
        cells=cells,
        share=share,
        memory=bytes_,
        klass=klass,
        state=state,
        sms=sms,
        limit=bytes_ / most if most and bytes_ is not None else None,
        launches=launches,
        delay=delay,
        held=held,
        lately=words.history(program),
        stalled=bool(words.stalled(program)),
        raw=program,
    )


def containment(program: Json) -> list[str]:
    """What keeps a program's memory within bounds, a line for each limit."""
    found = []
    for limit in items(program.get("limits")):
        gpu = whole(limit.get("gpu"))
        refused = whole(limit.get("refused"))
        found.append(
            f"held by the kernel: {clean(limit.get('kind')) or '?'} {clean(limit.get('name')) or '?'}"
            + ("" if gpu is None else f" on GPU {gpu}")
            + f", {memory(limit.get('used'))} of {memory(limit.get('limit'))}"
            + (f", refused {refused} times" if refused else "")
        )
    return found or ["no memory limit"]


def rows(snapshot: Json) -> list[Row]:
    """Every program of the snapshot, in its order."""
    index = gpu_index(items(snapshot.get("gpus")))
    programs = items(snapshot.get("programs"))
    servers = [each for each in programs if each.get("state") == "mps-server"]
    return [row(program, index, servers) for program in programs]


def gpu_rows(snapshot: Json) -> list[GpuRow]:
    """The GPUs of a snapshot with the memory that its programs hold there."""
    gpus = items(snapshot.get("gpus"))
    index = gpu_index(gpus)
    found = []
    for gpu in gpus:
        uuid = clean(gpu.get("uuid"))
        total = whole(gpu.get("memory_bytes"))
        used = [_memory_on(uuid, program) for program in items(snapshot.get("programs"))]
        known = [size for size in used if size is not None]
        sum_ = memory(sum(known)) if len(known) == len(used) else UNKNOWN
        # 0 means unknown (ctl.core.driver)
        text = f"{sum_}/{memory(total) if total else UNKNOWN}"
        name = ", ".join(filter(None, (clean(gpu.get("name")) or UNKNOWN, words.mig(gpu, brief=True))))
        found.append(GpuRow(index.get(uuid, "?"), name, short_uuid(uuid), text))
    return found


def _memory_on(uuid: str, program: Json) -> int | None:
    """Bytes of a program on a GPU; None: it has some there, and nobody knows how much."""
    by_gpu, on = program.get("gpu_memory"), texts(program.get("gpus"))
    if isinstance(by_gpu, Mapping) and by_gpu:
        return whole(by_gpu.get(uuid)) or 0
    # what never made a context holds no memory
    if uuid not in on or (program.get("memory_bytes") is None and not program.get("tsgs")):
        return 0
    return whole(program.get("memory_bytes")) if len(on) == 1 else None


def short_uuid(uuid: str) -> str:
    """GPU-710ea6b1-... -> GPU-710ea6b1"""
    return "-".join(uuid.split("-")[:2])[:16] or UNKNOWN


def select(found: Iterable[Row], text: str) -> list[Row]:
    """Rows in which `text` occurs (any case) in PID, command, user, container, class or state; all for "". Of "gpu 1"
    those on that GPU.
    """
    wanted = text.casefold().strip()
    if not wanted:
        return list(found)
    if on := _ON_GPU.fullmatch(wanted):
        return [r for r in found if on[1] in r.cells["GPU"].split(",")]
    return [
        r
        for r in found
        if any(wanted in r.cells[name].casefold() for name in ("PID", "COMMAND", "USER", "CLASS"))
        or wanted in r.state.casefold()
        or wanted in clean(r.raw.get("container")).casefold()
    ]


def sorts(found: Iterable[Row]) -> tuple[str, ...]:
    """The orders that make a difference for these rows."""
    every = list(found)
    counted = (by for by in SORTS[4:-1] if any(getattr(each, by) is not None for each in every))
    return (*_ALWAYS, *counted, *(SORTS[-1:] if several(every) else ()))


def several(found: Iterable[Row]) -> bool:
    """Whether they are on more than one GPU."""
    return len({gpu for row in found for gpu in row.cells["GPU"].split(",") if gpu.isdecimal()}) > 1


def ordered(found: Iterable[Row], by: str) -> list[Row]:
    """Largest value first, lowest PID and GPU first, highest class first; what is unknown comes last."""

    def key(r: Row) -> tuple[float, float]:
        pid = math.inf if r.pid is None else r.pid
        if by == "pid":
            return (pid, pid)
        if by == "gpu":
            first = r.cells["GPU"].split(",")[0]
            return (int(first) if first.isdecimal() else math.inf, math.inf if r.share is None else -r.share)
        if by == "class":
            return (CLASSES.index(r.klass) if r.klass in CLASSES else len(CLASSES), pid)
        values = {"share": r.share, "memory": r.memory, "launches": r.launches, "delay": r.delay, "held": r.held}
        value = values.get(by)
        return (math.inf if value is None else -value, pid)

    return sorted(found, key=key)
