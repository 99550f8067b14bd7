# SPDX-License-Identifier: Apache-2.0
"""A snapshot turned into rows of text. What cannot be read is "-", and no snapshot makes it raise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = "-"
SORTS = ("share", "memory", "pid", "class")
CLASSES = ("high", "normal", "low", "idle")
_SHORT_STATE = {"not-understood": "unclear"}

Json = Mapping[str, Any]


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


def clean(value: object) -> str:
    """One line of printable text. Programs choose their own argv: no control code may reach the terminal."""
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in value).strip()


def whole(value: object) -> int | None:
    """`value` if it is a whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def items(value: object) -> list[Json]:
    """The objects of a JSON list; nothing for anything else."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def texts(value: object) -> list[str]:
    """The strings of a JSON list that are not empty."""
    return [clean(item) for item in value if clean(item)] if isinstance(value, list | tuple) else []


def short(value: float) -> str:
    """At most four characters where the value allows: 1, 1.2, 20, 200."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"


def microseconds(value: object) -> str:
    """A time given in microseconds, in six characters at most: 50us, 2.05ms, 1s."""
    us = number(value)
    if us is None or us < 0:
        return UNKNOWN
    if us < 999.5:
        return f"{us:.0f}us"
    if us < 999_500:  # what would round to 1000
        return f"{us / 1e3:.3g}ms"
    return f"{us / 1e6:.{3 if us < 999.5e6 else 4}g}s" if us < 9_999e6 else ">9999s"


def memory(value: object) -> str:
    """Bytes in binary units: 512M, 1.2G."""
    size = number(value)
    if size is None or size < 0:
        return UNKNOWN
    for unit in ("B", "K", "M", "G"):
        if size < 999.5:
            return f"{short(size)}{unit}"
        size /= 1024
    return f"{short(size)}T"


def percent(value: float | None) -> str:
    """0..1 as percent."""
    return UNKNOWN if value is None else f"{value * 100:.0f}%"


def bar(value: float | None, width: int, ascii_only: bool = False) -> str:
    """A bar of `width` cells for 0..1, in eighths of a cell."""
    if value is None or width <= 0:
        return " " * max(width, 0)
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    if ascii_only:
        return ("#" * full).ljust(width)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)


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


def row(program: Json, index: Mapping[str, str]) -> Row:
    """One program of a snapshot; `index` as from gpu_index."""
    pid, weight = whole(program.get("pid")), whole(program.get("weight"))
    klass = clean(program.get("class")) or None
    state = _state(program)
    share, bytes_ = number(program.get("gpu_share")), whole(program.get("memory_bytes"))
    tsgs = compute_tsgs(program)
    cells = {
        "PID": UNKNOWN if pid is None else str(pid),
        "GPU": _gpus_of(program, index),
        "CLASS": klass or (UNKNOWN if weight is None else f"w {weight}"),
        "SLICE": _same(microseconds(tsg.get("slice_us")) for tsg in tsgs),
        "LEVEL": _same(clean(tsg.get("level")) or UNKNOWN for tsg in tsgs),
        "MEM": memory(bytes_),
        "LIMIT": memory(whole(program.get("memory_limit"))),
        "SHARE": percent(share),
        "STATE": _SHORT_STATE.get(state, state),
        "USER": clean(program.get("user")) or UNKNOWN,
        "CONTAINER": clean(program.get("container"))[:12] or UNKNOWN,
        "TSGS": str(len(tsgs)) if isinstance(program.get("tsgs"), list | tuple) else UNKNOWN,
        "COMMAND": clean(program.get("command")) or UNKNOWN,
    }
    return Row(pid, whole(program.get("start")), cells, share, bytes_, klass, state, program)


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
    return [row(program, index) for program in items(snapshot.get("programs"))]


def gpu_rows(snapshot: Json) -> list[GpuRow]:
    """The GPUs of a snapshot with the memory that its programs hold there."""
    gpus = items(snapshot.get("gpus"))
    index = gpu_index(gpus)
    found = []
    for gpu in gpus:
        uuid = clean(gpu.get("uuid"))
        total = whole(gpu.get("memory_bytes"))
        used: list[int | None] = []
        for program in items(snapshot.get("programs")):
            on = texts(program.get("gpus"))
            # what never made a context holds no memory
            if uuid in on and (program.get("memory_bytes") is not None or program.get("tsgs")):
                # a program's figure covers all its GPUs: with several it says nothing about this one
                used.append(whole(program.get("memory_bytes")) if len(on) == 1 else None)
        known = [size for size in used if size is not None]
        sum_ = memory(sum(known)) if len(known) == len(used) else UNKNOWN
        # 0 means unknown (ctl/rm/driver.py)
        text = f"{sum_}/{memory(total) if total else UNKNOWN}"
        found.append(GpuRow(index.get(uuid, "?"), clean(gpu.get("name")) or UNKNOWN, short_uuid(uuid), text))
    return found


def short_uuid(uuid: str) -> str:
    """GPU-710ea6b1-... -> GPU-710ea6b1"""
    return "-".join(uuid.split("-")[:2])[:16] or UNKNOWN


def select(found: Iterable[Row], text: str) -> list[Row]:
    """Rows in which `text` occurs (any case) in PID, command, user, container, class or state; all for ""."""
    wanted = text.casefold().strip()
    if not wanted:
        return list(found)
    return [
        r
        for r in found
        if any(wanted in r.cells[name].casefold() for name in ("PID", "COMMAND", "USER", "CLASS"))
        or wanted in r.state.casefold()
        or wanted in clean(r.raw.get("container")).casefold()
    ]


def ordered(found: Iterable[Row], by: str) -> list[Row]:
    """Largest share or memory first, lowest PID first, highest class first; what is unknown comes last."""

    def key(r: Row) -> tuple[float, float]:
        pid = math.inf if r.pid is None else r.pid
        match by:
            case "share":
                return (math.inf if r.share is None else -r.share, pid)
            case "memory":
                return (math.inf if r.memory is None else -r.memory, pid)
            case "class":
                return (CLASSES.index(r.klass) if r.klass in CLASSES else len(CLASSES), pid)
            case _:
                return (pid, pid)

    return sorted(found, key=key)
