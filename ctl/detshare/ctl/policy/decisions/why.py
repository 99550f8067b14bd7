# SPDX-License-Identifier: Apache-2.0
"""The log in words: what was decided about a program, by which rule, from what, and what became of it."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from detshare.ctl.core import words
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Program, Snapshot, plain
from detshare.ctl.core.verbs import LEVELS
from detshare.ctl.policy.decisions.log import Turn, lines, segments, turns
from detshare.ctl.policy.types import TenantView

__all__ = ["recent", "say", "story"]

MOST: int = 200
"""decisions in one story; the newest"""
_HOOKS = {
    "on_attach": "it came",
    "on_launch": "it got work",
    "on_completion": "its work ended",
    "on_congestion": "it waited too long",
    "on_memory_pressure": "memory that did not fit",
    "on_tick": "time passed",
    "on_detach": "it went",
}
_KINDS = {
    "Slice": "time slice",
    "Bind": "share of SMs",
    "Move": "pool member",
    "Gate": "gate",
    "Reflex": "reflex",
}


_POLICIES = ("switch", "unset", "failed", "anew")
"""notes about a policy, not about a program"""


def duration(us: float) -> str:
    """In words: 200 us, 20 ms, 1.5 s."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{us / scale:.3g} {unit}"
    return f"{us:.3g} us"


def say(action: Mapping[str, Any]) -> str:
    """An action of the log in words."""
    tenant = action.get("tenant", "?")
    match action.get("do"):
        case "Slice":
            level = LEVELS[int(action.get("level", 1))]
            return f"{tenant}: slice {duration(float(action.get('slice_us', 0)))}, level {level}"
        case "Bind":
            return f"{tenant}: {action.get('sms')} SMs"
        case "Move":
            return f"{tenant}: moved to {action.get('pctx')}"
        case "Gate":
            return f"{tenant}: {'let go' if action.get('open') else 'held'}"
        case "Park":
            return f"{tenant}: parked, {action.get('room_for')} has the room first"
        case "Preempt":
            return f"{tenant}: taken off the GPU once"
        case "Reflex":
            busy = action.get("busy_sms")
            while_busy = "as always" if busy is None else "held" if busy == 0 else f"{busy} SMs"
            return f"{tenant}: while a higher class is active: {while_busy}"
        case "ClassRow":
            row = ", ".join(f"{k} {v}" for k, v in action.items() if k not in ("do", "klass", "reason"))
            return f"class {action.get('klass')}: {row}"
    return f"no action: {action.get('do')}"


def _about(action: Mapping[str, Any], pid: str, klass: str) -> bool:
    if pid in (str(action.get("tenant", "")), str(action.get("room_for", ""))):
        return True
    return action.get("do") == "ClassRow" and action.get("klass") == klass


def _active(turn: Turn, pid: str) -> list[str]:
    return [f"{each.name} ({_named(each)})" for each in turn.now.tenants if each.active and each.name != pid]


def _named(view: TenantView) -> str:
    words = [view.command.split("/")[-1][:40] if view.command else view.name]
    return ", ".join([*words, f"class {view.klass}"] if view.klass else words)


def _entries(folder: Path, since: float) -> Iterable[dict[str, Any]]:
    """Everything in the log from a moment on, one entry for each action and note."""
    for record in turns(folder):
        when = record.when if isinstance(record, Turn) else float(record.get("when", 0.0))
        if when < since:
            continue
        if not isinstance(record, Turn):
            yield {"when": when, "what": record["kind"], "note": record}
            continue
        for hook, tenant, actions in record.calls:
            for action, fate in actions:
                yield {
                    "when": when,
                    "what": "decision",
                    "policy": record.policy,
                    "hook": hook,
                    "by": tenant,
                    "action": action,
                    "fate": fate,
                    "turn": record,
                }


def _text(entry: Mapping[str, Any]) -> str:
    """One entry in words."""
    if entry["what"] == "decision":
        action, fate = entry["action"], entry["fate"]
        text = say(action) if fate == "done" else f"refused: {say(action)}: {fate}"
        if reason := action.get("reason"):
            text += f"; {reason}"
        because = _HOOKS.get(entry["hook"], entry["hook"])
        whose = "" if entry["by"] is None else f" ({entry['by']})"
        return f"{text} [{entry['policy']}, for {because}{whose}]"
    note = entry["note"]
    where = f" on {note['gpu'][:12]}" if note.get("gpu") else ""
    match entry["what"]:
        case "switch":
            params = " ".join(f"{k}={v}" for k, v in note.get("params", {}).items())
            was = f", it was {note['before']}" if note.get("before") else ""
            by = f", by {note['by']}" if note.get("by") else ""
            return f"policy {note.get('policy')} {params}".rstrip() + f" decides{where} from now on{was}{by}"
        case "failed":
            return f"policy {note.get('policy')} failed{where}: {note.get('text')}; what it decided stands"
        case "unset":
            by = f", by {note['by']}" if note.get("by") else ""
            return f"policy {note.get('policy')} decides{where} from now on, it was {note.get('before')}{by}"
        case "anew":
            return f"policy {note.get('policy')} begins anew{where} after its failure"
        case "deadline":
            goal = "no deadline any more" if note.get("us") is None else f"deadline {duration(float(note['us']))}"
            return f"{', '.join(note.get('tenants', ()))}: {goal}, by a person"
        case "hand":
            whom = ", ".join(note.get("tenants", ())) or f"class {note.get('klass')}"
            return f"{note.get('verb')} by a person: {whom}"
        case "resumed":
            whom = ", ".join(note.get("tenants", ())) or f"class {note.get('klass')}"
            return f"given back to the policy by a person: {whom}"
        case "undone":
            what = say(note["action"]) if "action" in note else f"row of class {note.get('klass')}"
            return f"taken back, for the policy changed: {what} ({note.get('result')})"
        case "opened":
            return f"{note.get('tenant')}: {note.get('text')}"
    return f"{entry['what']}"


def _concerns(entry: Mapping[str, Any], pid: str, klass: str) -> bool:
    if entry["what"] == "decision":
        return _about(entry["action"], pid, klass)
    note = entry["note"]
    if entry["what"] in _POLICIES:
        return True
    return pid in note.get("tenants", ()) or note.get("tenant") == pid or (bool(klass) and note.get("klass") == klass)


def story(pid: int, since_s: float, seen: Snapshot, status: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What there is to say of a program: how it stands, who shares its GPU, what was decided since so many seconds.

    ControlError where neither the last look nor the log knows it.
    """
    program = next((each for each in seen.programs if each.id.pid == pid), None)
    klass = (program.klass or "") if program is not None else ""
    found: deque[dict[str, Any]] = deque(maxlen=MOST)
    refused = 0
    for entry in _entries(folder, time.time() - since_s):
        if _concerns(entry, str(pid), klass):
            refused += entry["what"] == "decision" and entry["fate"] != "done"
            found.append(entry)
    known = [each for each in found if each["what"] not in _POLICIES]
    if program is None and not known:
        following = "see which programs there are: detshare-ctl ps; look further back: --since 1d"
        raise ControlError(f"why {pid}", "it holds no GPU, and the log has nothing about it", following)
    decisions = []
    for entry in found:
        made = {"when": entry["when"], "what": entry["what"], "text": _text(entry)}
        if entry["what"] == "decision":
            made |= {"action": entry["action"], "fate": entry["fate"], "hook": entry["hook"], "policy": entry["policy"]}
            made["active"] = _active(entry["turn"], str(pid))
        decisions.append(made)
    return {
        "pid": pid,
        "command": program.command if program is not None else "",
        "policy": {"name": status["name"], "rule": status["rule"], "failed": status["failed"]},
        "now": _standing(program, seen) if program is not None else ["it holds no GPU any more"],
        "decisions": decisions,
        "refused": refused,
        "denied": program.activity.denied if program is not None and program.activity is not None else 0,
    }


def _standing(program: Program, seen: Snapshot) -> list[str]:
    """How a program stands, in words."""
    lane = "spatial" if program.spatial is not None else "temporal"
    lines = [f"class {program.klass}" if program.klass else "no class"]
    lines[0] += f", weight {program.weight}" if program.weight is not None else ""
    lines[0] += f", {lane} lane, {program.state.value}"
    if program.spatial is not None:
        lines.append(f"runs on {program.spatial.idle}; while a higher class is active: {program.spatial.busy}")
    elif program.compute:
        tsg = program.compute[0]
        level = f", level {tsg.level.name.lower()}" if tsg.level is not None else ""
        lines.append(f"time slice {duration(tsg.slice_us)}{level}, {len(program.compute)} compute channel group(s)")
    for kind, who in sorted(program.decided.items()):
        lines.append(f"{_KINDS.get(kind, kind)} decided by {'a person' if who == 'hand' else who}")
    lines += _turns(program, seen)
    activity = program.activity
    if activity is not None:
        held = f", held by {' and '.join(activity.reasons)}" if activity.reasons else ""
        lines.append(
            f"launches: {activity.state}{held}; waited {activity.wait_ms:.0f} ms in all, {activity.waits} times"
        )
        for denial in activity.denials:
            told = "told that it was done" if denial.status == 0 else f"answered {denial.status:#x}"
            lines.append(f"refused by detshare.ko: {denial.count} x {denial.name} ({denial.reason}), {told}")
    if (requests := program.requests) is not None:
        p50, p99 = duration(requests.p50_s * 1e6), duration(requests.p99_s * 1e6)
        lines.append(
            f"requests ({requests.source}): p50 {p50}, p99 {p99} of {requests.count} in the last {requests.seconds:g} s"
        )
    if (observed := program.observed) is not None:
        rate = f"{observed.launches_per_s:g} launches and {observed.graph_launches_per_s:g} graphs a second"
        grid = f", most of them {observed.blocks} blocks" if observed.blocks else ""
        partial = f" (partial: {'; '.join(observed.partial)})" if observed.partial else ""
        lines.append(f"seen by {observed.source}: {rate}{grid}{partial}")
    if program.refused:
        lines.append(f"refused by its memory limit: {program.refused} request(s)")
    lines += list(program.notes)
    others = [
        f"{each.id.pid} {each.command[:40]}" + (f" (class {each.klass})" if each.klass else "") + _busy(each)
        for each in seen.programs
        if each.id != program.id and set(each.gpus) & set(program.gpus)
    ]
    lines.append("beside it on its GPU: " + ("; ".join(others[:12]) if others else "nobody"))
    return lines


def _turns(program: Program, seen: Snapshot) -> list[str]:
    """Its GPU time and places in rotations, what decided these, and whether it makes no progress."""
    numbers = {gpu.uuid: str(gpu.minor) for gpu in seen.gpus}
    data = program.to_json()
    lines = [*words.gpu_times(data, numbers), *words.places(data, numbers)]
    lines += [f"floor {text}" for text in words.floor(data, numbers)]
    for each in seen.schedules:
        if each.gpu in program.gpus:
            because = f"; because {each.why}" if each.why else ""
            lines.append(f"GPU {numbers.get(each.gpu, '?')}: {words.schedule(plain(each))}{because}")
    return lines + words.warning(data, numbers)


def _busy(program: Program) -> str:
    if program.spatial is not None:
        return ", active" if program.spatial.in_flight else ""
    if program.activity is not None:
        return f", {program.activity.state}"
    return f", {program.share:.0%} of the GPU" if program.share else ""


def recent(folder: Path, since_s: float, most: int) -> list[dict[str, Any]]:
    """The newest entries in words, oldest first."""
    since = time.time() - since_s
    found: list[dict[str, Any]] = []
    for _, path in reversed(segments(folder)):  # the newest first: a screen asks again and again
        with contextlib.suppress(FileNotFoundError):  # dropped meanwhile
            if len(found) >= most or path.stat().st_mtime < since:
                break
            found[:0] = [_told(entry) for entry in _plain_entries(path, since)]
    return found[-most:] if most else []


def _plain_entries(path: Path, since: float) -> Iterable[dict[str, Any]]:
    """Like `_entries` of one segment, without the snapshots, which cost most."""
    for record in lines(path):
        when = record.get("when")
        if not isinstance(when, int | float) or when < since:
            continue
        if record["kind"] != "turn":
            yield {"when": when, "what": record["kind"], "note": record}
            continue
        with contextlib.suppress(KeyError, TypeError, ValueError):
            for hook, tenant, actions in record["calls"]:
                for action, fate in actions:
                    values = {"policy": record["policy"], "hook": hook, "by": tenant, "action": action, "fate": fate}
                    yield {"when": when, "what": "decision", **values}


def _told(entry: Mapping[str, Any]) -> dict[str, Any]:
    made = {"when": entry["when"], "what": entry["what"], "text": _text(entry)}
    if entry["what"] == "decision":
        made |= {"tenant": str(entry["action"].get("tenant", "")), "fate": entry["fate"], "policy": entry["policy"]}
    return made
