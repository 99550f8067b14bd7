# SPDX-License-Identifier: Apache-2.0
"""What is known of one program, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detshare.ctl.core import words
from detshare.ctl.core.gputime import SLOT_S, SLOTS
from detshare.ctl.top.rows import Row, activity, containment, gpu_index, observed
from detshare.ctl.top.values import UNKNOWN, clean, items, memory, microseconds, number, texts, whole

_BOLD = "bold"


def _handle(value: object) -> str:
    number_ = whole(value)
    return UNKNOWN if number_ is None else f"{number_:#x}"


def _count(value: object) -> str:
    number_ = whole(value)
    return UNKNOWN if number_ is None else str(number_)


def _tsg(tsg: Mapping[str, Any], index: Mapping[str, str]) -> str:
    channels = tsg.get("channels")
    count = len(channels) if isinstance(channels, list | tuple) else None
    before, now = microseconds(tsg.get("before_us")), microseconds(tsg.get("slice_us"))
    slice_ = now if before in (UNKNOWN, now) else f"{now} (before DetShare {before})"
    return (
        f"  GPU {index.get(clean(tsg.get('gpu')), '?')}  TSG {_handle(tsg.get('handle'))}"
        f" (hardware {UNKNOWN if (whole(tsg.get('tsg_id')) or 0) < 0 else _count(tsg.get('tsg_id'))})"
        f"  {clean(tsg.get('kind')) or UNKNOWN} {clean(tsg.get('engine')) or UNKNOWN}"
        f"  {UNKNOWN if count is None else count} channels"
        f"  slice {slice_}  level {clean(tsg.get('level')) or UNKNOWN}"
    )


def _lane(row: Row) -> list[str]:
    """Lane, rates and who decided, where they are known."""
    lines = []
    cells, spatial = row.cells, row.raw.get("spatial")
    if isinstance(spatial, Mapping):
        sms = f"{_count(spatial.get('idle_sms'))} of {_count(spatial.get('sms'))} SMs"
        lines.append(
            f"lane spatial  pCtx {cells['PCTX']}  {sms} ({clean(spatial.get('idle')) or UNKNOWN}),"
            f" beside a higher class {clean(spatial.get('busy')) or UNKNOWN}"
        )
        delay = f"in queue p99 {cells['Q99']}"
    else:
        rates = row.raw.get("rates")
        waited = rates.get("door_p99_us") if isinstance(rates, Mapping) else None
        delay = f"waits at a shut door p99 {microseconds(waited)}"
    if row.launches is not None:
        seen = row.raw.get("observed")
        what = "launches" if isinstance(spatial, Mapping) else "bursts of launches"
        if not isinstance(spatial, Mapping) and isinstance(seen, Mapping):
            what = f"launches ({clean(seen.get('source'))})"
        lines.append(f"{cells['L/S']} {what} a second  {delay}  held {cells['HELD']} of the time")
    parking = row.raw.get("parking")
    if isinstance(parking, Mapping):
        sizes = [memory(parking.get(name)) for name in ("parkable_bytes", "parked_bytes", "stays_bytes")]
        state = clean(parking.get("state")) or UNKNOWN
        ways = {"driver": " (driver's checkpoint)", "deep": " (its context too)"}
        state += ways.get(str(parking.get("way")), "")
        lines.append(f"memory {state}  can be parked {sizes[0]}  in host memory {sizes[1]}  stays {sizes[2]}")
    decided = row.raw.get("decided")
    if isinstance(decided, Mapping) and decided:
        told = ", ".join(f"{clean(what)} by {clean(who)}" for what, who in decided.items())
        lines.append(f"decided: {told}; why: detshare-ctl why {cells['PID']}")
    return lines


def _turns(
    snapshot: Mapping[str, Any], program: Mapping[str, Any], index: Mapping[str, str]
) -> list[tuple[str, str]]:
    """GPU time, places in rotations, and the rotations of its GPUs, as lines of (text, style)."""
    lines = [(text, "") for text in words.gpu_times(program, index)]
    if lately := words.history(program):
        lines.append((f"lately [{words.spark(lately, SLOTS)}] {SLOT_S:g} s each, the newest to the right", "green"))
    lines += [(text, "") for text in words.places(program, index)]
    lines += [(f"floor {text}", "") for text in words.floor(program, index)]
    mine = texts(program.get("gpus"))
    for each in words.schedules(snapshot):
        if (reason := words.why(each)) and clean(each.get("gpu")) in mine:
            lines.append((f"GPU {index.get(clean(each.get('gpu')), '?')} rotates so because {reason}", "cyan"))
    return lines + [(text, "bold red") for text in words.warning(program, index)]


def details(snapshot: Mapping[str, Any], row: Row | None) -> list[tuple[str, str]]:
    """Lines of (text, style) for the selected program."""
    if row is None:
        return [("", ""), ("the selected program is not here any more; select another one", "dim")]
    program = row.raw
    index = gpu_index(items(snapshot.get("gpus")))
    adopted = number(program.get("adopted_ms"))
    klass, weight = row.klass or UNKNOWN, whole(program.get("weight"))
    lines = [
        ("", ""),
        (f"PID {row.cells['PID']}  {row.cells['COMMAND']}", _BOLD),
        (
            f"  user {row.cells['USER']}  container {clean(program.get('container')) or UNKNOWN}"
            f"  state {row.state}"
            f"  class {klass}  weight {UNKNOWN if weight is None else weight}"
            f"  adopted in {UNKNOWN if adopted is None else f'{adopted:.1f} ms'}",
            "",
        ),
    ]
    if snapshot.get("backend") == "kmod":
        tenant = clean(program.get("tenant"))
        lines += [(f"  memory: {text}", "") for text in containment(program)]
        lines += [(f"  tenant {tenant}", "")] if tenant else []
        lines += [(f"  launches: {text}", "") for text in activity(program)]
    lines += [(f"  {text}", style) for text, style in _turns(snapshot, program, index)]
    lines += [(f"  {text}", "") for text in _lane(row)]
    lines += [(f"  {text}", "") for text in observed(program)]
    tsgs = items(program.get("tsgs"))
    lines += [(_tsg(tsg, index), "") for tsg in tsgs] or [("  no TSG: it has made no context yet", "dim")]
    lines += [(f"  note: {note}", "yellow") for note in texts(program.get("notes"))]
    return lines
