# SPDX-License-Identifier: Apache-2.0
"""Everything known of one program, as `show` prints it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from detshare.ctl.cli.tables import Json, account, clean, count, duration, gpu_numbers, size
from detshare.ctl.core import streams, words
from detshare.ctl.core.gputime import SLOT_S, SLOTS

__all__ = ["show"]


def show(console: Console, answer: Json, program: Json) -> None:
    """Everything known of one program."""
    names = {gpu["uuid"]: f"{gpu['minor']} ({clean(gpu['name'])})" for gpu in answer["gpus"]}
    share, adopted = program.get("gpu_share"), program.get("adopted_ms")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    rows: list[tuple[str, str]] = [
        ("pid", f"{program['pid']} (started {program['start']} ticks after boot)"),
        ("command", clean(program["command"])),
        ("user", clean(program["user"])),
        ("container", clean(program["container"]) or "-"),
        ("state", clean(program["state"])),
        ("class", clean(program.get("class") or "-")),
        ("weight", clean(program["weight"] if program.get("weight") is not None else "-")),
        ("gpu", ", ".join(names.get(uuid, clean(uuid)) for uuid in program["gpus"]) or "-"),
        ("memory", size(program.get("memory_bytes"))),
        *(("containment", text) for text in containment(program)),
        ("tenant", clean(program.get("tenant") or "-")),
        *(("job", f"with PID {ranks}") for ranks in [_ranks(answer, program)] if ranks),
        ("pctx", clean(program.get("pctx") or "-")),
        ("gpu share", _served(answer, program) or (f"{share:.1%}" if share is not None else "-")),
        ("adopted in", f"{adopted:.1f} ms" if adopted is not None else "-"),
    ]
    rows += turn_rows(answer, program)
    rows += activity_rows(program)
    rows += spatial_rows(program)
    rows += parking_rows(program)
    rows += request_rows(program)
    rows += observed_rows(program)
    rows += decided_rows(program)
    rows += [("note", clean(note)) for note in program["notes"]]
    for name, value in rows:
        table.add_row(name, Text(value))
    console.print(table)
    if program["tsgs"]:
        console.print("\nchannel groups (TSGs), of which only the compute ones are steered:")
        console.print(_tsgs(program))


def _ranks(answer: Json, program: Json) -> str:
    """The other ranks of its job that are on a GPU."""
    job = program.get("job")
    others = [each["pid"] for each in answer["programs"] if job and each.get("job") == job]
    return ", ".join(str(pid) for pid in others if pid != program["pid"])


def _served(answer: Json, program: Json) -> str:
    servers = words.servers(program, answer["programs"])
    return f"in that of MPS server {' or '.join(servers)}, with those of its other clients" if servers else ""


def turn_rows(answer: Json, program: Json) -> list[tuple[str, str]]:
    """What `show` says of a program's GPU time, its turns, and the rotations of its GPUs."""
    numbers = gpu_numbers(answer)
    rows = [("gpu time", text) for text in words.gpu_times(program, numbers)]
    if lately := words.history(program):
        drawn = words.spark(lately, SLOTS, ascii_only=not streams.utf8())
        rows.append(("lately", f"[{drawn}] {SLOT_S:g} s each, the newest to the right"))
    rows += [("turn", text) for text in words.places(program, numbers)]
    rows += [("floor", text) for text in words.floor(program, numbers)]
    for each in words.schedules(answer):
        if each["gpu"] in program["gpus"]:
            rows.append(("rotation", f"GPU {numbers.get(each['gpu'], '?')}: {words.schedule(each)}"))
            rows += [("", f"because {reason}") for reason in (words.why(each),) if reason]
    return rows + [("warning", text) for text in words.warning(program, numbers)]


_DECIDED = {"Slice": "time slice", "Bind": "share of SMs", "Move": "pCtx", "Gate": "gate", "Reflex": "reflex"}


def decided_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of who decided what; nothing without a daemon."""
    who = {"hand": "a person"}
    return [
        ("decided", f"{_DECIDED.get(kind, clean(kind))} by {who.get(by, clean(by))}")
        for kind, by in sorted((program.get("decided") or {}).items())
    ]


def activity_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of a program's launches, as the kernel module sees them."""
    doing = program.get("activity")
    if not doing:
        return []
    why = f", held by {' and '.join(map(clean, doing['reasons']))}" if doing["reasons"] else ""
    unknown = f", {doing['doors_unknown']} of them taken for one by its looks" if doing["doors_unknown"] else ""
    seen = f"{count(doing['kicks'], 'burst')} seen, {count(doing['faults'], 'fault')}"
    rows = [
        ("activity", f"{clean(doing['state'])}{why}; last sign {doing['idle_ms']:.1f} ms ago"),
        ("gpu time", f"{duration(doing['used_us'])} (estimate)"),
        ("doorbells", f"{doing['doors']}{unknown}; {seen}"),
        ("waited", f"{count(doing['waits'], 'time')}, {doing['wait_ms']:.1f} ms; {doing['waiting']} waiting now"),
    ]
    if doing["channels_off"]:
        rows.append(("off the run list", count(doing["channels_off"], "channel")))
    if doing["ceiling"] is not None:
        rows.append(("TPC ceiling", f"{doing['ceiling']} %"))
    for each in doing["denials"]:
        answer = f"status {each['status']:#x}" if each["status"] else "told done, did nothing"
        times = count(each["count"], "time")
        rows.append(("denied", f"{clean(each['name'])}: {times} ({clean(each['reason'])}; {answer})"))
    return rows


def request_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of how long a program's requests take."""
    told = program.get("requests")
    if not told:
        return []
    times = f"p50 {duration(told['p50_s'] * 1e6)}, p99 {duration(told['p99_s'] * 1e6)}"
    window = f"{count(told['count'], 'request')} of the last {told['seconds']:g} s"
    return [("requests", f"{times}: {window}, {clean(told['source'])}; the last {told['age_s']:g} s ago")]


def observed_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of a program's calls to CUDA, as somebody outside saw them."""
    seen = program.get("observed")
    if not seen:
        return []
    by = clean(seen["source"])
    rate = f"{seen['launches_per_s']:g} + {seen['graph_launches_per_s']:g} a second"
    done = f"{count(seen['copies'], 'copy').replace('copys', 'copies')} ({size(seen['copied_bytes'])})"
    rows = [
        (f"by {by}", f"{seen['launches']} launches + {seen['graph_launches']} of graphs, {rate}"),
        ("", f"{done}, {count(seen['fills'], 'fill')}, {count(seen['waits'], 'wait')} of {seen['wait_ms']:.1f} ms"),
    ]
    for each in seen["grids"][:4]:
        rows.append(("", f"grid of {each['blocks']} x {each['threads'] or '-'} threads: {each['launches']} times"))
    return [*rows, *((f"partial by {by}", clean(why)) for why in seen["partial"])]


def spatial_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of a program of the spatial lane."""
    lane = program.get("spatial")
    if not lane:
        return []
    asked = f"; asked for {lane['percent']} %" if lane["percent"] is not None else ""
    acknowledged = "" if lane["acknowledged"] else " (older work still runs)"
    waiting = "a higher class is active" if lane["waiting"] else "no higher class is active"
    now = "held by hand" if lane["held"] else waiting
    launched = f"{count(lane['launches'], 'kernel')}, {count(lane['graph_launches'], 'graph')}"
    rows = [
        ("lane", f"spatial; {now}"),
        ("sms", f"{clean(lane['idle'])} of {lane['sms']}{asked}{acknowledged}"),
        ("beside a higher class", clean(lane["busy"])),
        ("launched", f"{launched}; {lane['in_flight']} in flight, moved {count(lane['remaps'], 'time')}"),
        ("waited", f"{lane['held_ms']:.1f} ms"),
        ("its green contexts", size(lane["pool_bytes"])),
    ]
    if lane["full_runs"]:
        rows.append(("beyond its share", f"{count(lane['full_runs'], 'kernel')} that cannot run on fewer than all SMs"))
    if lane["memory_limit"] is not None:
        rows.append(("memory limit", f"{size(lane['memory_limit'])}, kept by its own runtime, not by the kernel"))
    return rows


def parking_rows(program: Json) -> list[tuple[str, str]]:
    """What `show` says of GPU memory that can leave."""
    parking = program.get("parking")
    if not parking:
        return []
    after = f"; parked after {parking['after']:g} s without work" if parking["after"] is not None else ""
    if parking.get("way") == "driver":
        return _checkpoint_rows(program, parking)
    wants = f"; it waits for {size(parking['wants_bytes'])} of room" if parking.get("wants_bytes") else ""
    deep = "; its context too, by the driver's checkpoint" if parking.get("way") == "deep" else ""
    rows = [
        ("gpu memory is", f"{_WHERE.get(parking['state'], clean(parking['state']))}{deep}{after}{wants}"),
        ("can be parked", f"{size(parking['parkable_bytes'])}; {size(parking['stays_bytes'])} stay on the GPU"),
        ("in host memory", f"{size(parking['parked_bytes'])}; the arena has {size(parking['arena_bytes'])} for it"),
    ]
    here = parking["parkable_bytes"] - parking["parked_bytes"]
    if parking["state"] in ("parked", "waiting") and 0 < here < parking["parkable_bytes"]:
        rows.append(("in parts", f"{size(here)} of it is on the GPU, until the arena or the GPU has room for the rest"))
    if parking.get("kept_bytes"):
        rows.append(("copies kept", f"{size(parking['kept_bytes'])}, until another program has to be parked there"))
    if parking["parks"]:
        times = f"{count(parking['parks'], 'time')}, woken by its own call {count(parking['wakes'], 'time')}"
        took = f"the last took {parking['park_ms']:.1f} ms, the way back {parking['resume_ms']:.1f} ms"
        rows.append(("was parked", f"{times}; {took}"))
        why = f", everything: {clean(parking['whole'])}" if parking.get("whole") else ""
        rows.append(("the last copied", f"{size(parking.get('copied_bytes', 0))}{why}"))
    return rows


def _checkpoint_rows(program: Json, parking: Json) -> list[tuple[str, str]]:
    where = _WHERE.get(parking["state"], clean(parking["state"]))
    if parking["state"] == "parked":
        where = f"in its own host memory, by the driver's checkpoint; it waits for: resume {program['pid']}"
    rows = [("gpu memory is", where)]
    if parking["parks"]:
        took = f"the last took {parking['park_ms'] / 1e3:.3g} s, the way back {parking['resume_ms'] / 1e3:.3g} s"
        rows.append(("was parked", f"{count(parking['parks'], 'time')} by the driver; {took}"))
    return rows


_WHERE = {
    "home": "on the GPU",
    "leaving": "about to leave the GPU",
    "parked": "parked; its next launch brings it back",
    "coming": "on its way back",
    "returning": "partly in host memory; it runs, and the rest comes home",
    "waiting": "parked; it wants to come back and the GPU has no room",
}


def _tsgs(program: Json) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("KIND", "ENGINE", "CLIENT", "HANDLE", "TSG", "SLICE", "LEVEL", "CHANNELS"):
        table.add_column(name, no_wrap=True)
    for tsg in program["tsgs"]:
        table.add_row(
            clean(tsg["kind"]),
            clean(tsg["engine"]),
            f"{tsg['client']:#x}",
            f"{tsg['handle']:#x}",
            str(tsg["tsg_id"]) if tsg["tsg_id"] >= 0 else "-",
            duration(tsg["slice_us"]),
            clean(tsg["level"] or "-"),
            str(len(tsg["channels"])),
        )
    return table


def containment(program: Json) -> list[str]:
    """What holds a program's memory, a line for each limit."""
    limits = program.get("limits") or ()
    if not limits:
        return ["no memory limit"]
    return [f"held by the kernel: {account(each)}" for each in limits]
