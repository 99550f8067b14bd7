# SPDX-License-Identifier: Apache-2.0
"""What the page's list tells of a program: values, which the browser puts into the words of detshare-top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from detshare.ctl.core import words
from detshare.ctl.core.snapshot import Program, State, plain
from detshare.ctl.core.work import times

__all__ = ["MIXED", "key_of", "latency", "memory_on", "row", "text"]

MIXED: Final = "mixed"
_LONGEST: Final = 400
"""characters of a command line"""


def text(value: str, most: int = _LONGEST) -> str:
    """One line that can be shown: no control code, and nothing that turns the direction of what follows."""
    cut = value[:most]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in cut)


def key_of(program: Program) -> str:
    """Identity that a reused PID does not share."""
    return f"{program.id.pid}:{program.id.start}"


def latency(program: Program) -> tuple[float | None, str]:
    """Seconds in which 99 of 100 requests are done (spatial lane: launches begin), and of what; None: nobody says."""
    if program.requests is not None:
        return program.requests.p99_s, f"requests, {program.requests.source}"
    queued = times(program.spatial.delays) if program.spatial is not None else None
    return (None, "") if queued is None else (queued.p99_us / 1e6, "in queue")


def memory_on(uuid: str, program: Program) -> int:
    """Bytes that are known of a program on a GPU."""
    if program.gpu_memory:
        return program.gpu_memory.get(uuid, 0)
    return program.memory_bytes or 0 if program.gpus == (uuid,) else 0


def _one(values: Iterable[Any]) -> Any:
    """The value that all have; MIXED; None where there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else MIXED if found else None


def row(program: Program, numbers: Mapping[str, int], now: list[list[int]]) -> dict[str, Any]:
    """One program. `numbers`: GPU UUID -> its number; `now`: [GPU, step of its share in this second]."""
    doing = program.activity
    stalls = [{"stalled_s": each.stalled_s} for each in program.gpu_time]
    managed = {"class": program.klass, "weight": program.weight, "state": program.state.value, "gpu_time": stalls}
    share, waits = program.share, latency(program)[0]
    return {
        "pid": program.id.pid,
        "start": program.id.start,
        "command": text(program.command),
        "user": text(program.user, 40),
        "container": text(program.container, 12),
        "tenant": text(program.tenant, 64),
        "gpus": [numbers.get(uuid, -1) for uuid in program.gpus],
        "class": program.klass,
        "weight": program.weight,
        "tsgs": len(program.compute),
        "slice_us": _one(each.slice_us for each in program.compute),
        "level": _one(each.level.name.lower() if each.level is not None else "-" for each in program.compute),
        "memory": program.memory_bytes,
        "limit": program.memory_limit,
        "share": None if share is None else round(share, 2),
        "latency_s": waits,
        "turn": words.turn({"places": [plain(each) for each in program.places]}) if program.places else "",
        "state": doing.state if doing is not None and program.state is State.RUNNING else program.state.value,
        "paused": program.state is State.PAUSED,
        "stalled": bool(words.stalled(managed)),
        "lane": "spatial" if program.spatial is not None else "temporal" if program.compute else "",
        "now": now,
    }
