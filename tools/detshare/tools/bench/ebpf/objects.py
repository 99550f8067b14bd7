# SPDX-License-Identifier: Apache-2.0
"""`objects` on a real driver: the same objects as a recorder in the program has, and storms of calls without loss."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.core import procfs
from detshare.ebpf.objects import RING_BYTES, ObjectTracer
from detshare.ebpf.records import Kind, unpack
from detshare.ebpf.world import ObjectChange
from detshare.tools.bench.catalog import decode, train
from detshare.tools.bench.ebpf import native
from detshare.tools.bench.ebpf.part import Line, Part, PartError, main, of, say
from detshare.tools.bench.ebpf.trees import Birth, Recorded, differences, read, replay
from detshare.tools.results import Row

STORM = 100_003
"""objects of the storm; a prime number"""
STORM_QUICK = 20_011
THREADS = 4
RATE = 50_000
_SHOWN = 40
_KINDS = {"child": "objects", "refused": "refused frees", "client": "clients"}


def abi() -> Abi:
    """Of the loaded driver. PartError without one."""
    version = procfs.driver_version()
    if version is None:
        raise PartError("no NVIDIA driver is loaded")
    return for_version(version)


def observed(found: Sequence[ObjectChange], pid: int) -> Recorded:
    """What the observer told of one process, in the recorder's terms."""
    mine = [each for each in found if each.pid == pid]
    ended = max((each.when for each in mine if each.kind == "process" and not each.born), default=None)
    tree = Recorded()
    alive: dict[tuple[int, int], Birth] = {}
    for each in mine:
        if each.kind == "process":
            continue
        key = (each.client, each.handle, each.number, each.parent)
        if each.born:
            tree.births[key] += 1
            alive[each.client, each.handle] = key
            continue
        key = alive.pop((each.client, each.handle), key)  # a client's death does not tell its class
        if each.when == ended:
            tree.ended[key] += 1
        else:
            tree.freed[key] += 1
    return tree


def _named(births: Sequence[Birth]) -> list[str]:
    return [f"client {c:#x} object {h:#x} class {k:#x} parent {p:#x}" for c, h, k, p in births[:_SHOWN]]


def compare(what: str, mine: Recorded, recorded: Recorded, lost: int, notes: list[str]) -> None:
    """A line with both sides' numbers, and each difference by name."""
    differ: dict[str, Any] = {}
    for name, ours, theirs in (
        ("births", mine.births, recorded.births),
        ("frees", mine.freed, recorded.freed),
        ("deaths", mine.deaths, recorded.deaths),
    ):
        only_observer, only_recorder = differences(ours, theirs)
        differ[f"{name}_differ"] = len(only_observer) + len(only_recorder)
        differ[f"{name}_only_observer"] = _named(only_observer)
        differ[f"{name}_only_recorder"] = _named(only_recorder)
    say(
        "compared",
        what=what,
        births=mine.births.total(),
        recorded_births=recorded.births.total(),
        freed=mine.freed.total(),
        recorded_freed=recorded.freed.total(),
        calls=recorded.calls,
        odd=recorded.odd,
        classes={f"{k:#x}": n for k, n in Counter(birth[2] for birth in mine.births.elements()).most_common()},
        lost=lost,
        notes=notes,
        **differ,
    )


def recorded_run(what: str, argv: Sequence[str], seconds: float) -> None:
    """A program under the recorder and under `objects`, from its begin to its end."""
    with tempfile.TemporaryDirectory() as folder:
        tracer = ObjectTracer(abi())
        try:
            env = {**os.environ, "LD_PRELOAD": native.path("recorder.so"), "RECORDER_OUT": f"{folder}/calls"}
            program = subprocess.Popen(list(argv), stdout=subprocess.DEVNULL, env=env)
            found: list[ObjectChange] = []
            until = time.monotonic() + seconds
            while program.poll() is None:
                if time.monotonic() > until:
                    program.kill()
                    program.wait()
                    say("cut", what=what, seconds=seconds)
                    break
                found += tracer.poll(0.05)
            found += tracer.drain(0.2)
            lost, notes = tracer.trouble(), tracer.notes()
        finally:
            tracer.close()
        say("program", what=what, status=program.returncode, loader=tracer.how)
        files = {int(file.suffix[1:]): file for file in Path(folder).glob("calls.*")}
        strangers = {each.pid for each in found} - set(files)
        if strangers:
            say("strangers", what=what, pids=sorted(strangers))
        if not files:
            raise PartError(f"{what}: the recorder wrote nothing")
        for pid, file in sorted(files.items()):
            lines = read(file)
            name = what if pid == program.pid else f"{what}, a child"
            say("trace", what=name, pid=pid, records=len(lines), files=sorted({line["path"] for line in lines}))
            compare(name, observed(found, pid), replay(lines), lost.lost + lost.full + lost.unread, notes)


def _quick_decode(quick: bool) -> None:
    recorded_run("decode loop", decode(0, "--layers", 4, "--seconds", 1 if quick else 3), 100)


def _quick_train(quick: bool) -> None:
    words = ("--batch", 16, "--no-benchmark", "--seconds", 1 if quick else 3)
    recorded_run("training step", train("resnet", *words), 140)


def _run_storm(kind: str, objects: int, tracers: Sequence[ObjectTracer]) -> tuple[Line, list[bytes], int]:
    """The storm's own line, what the first of the tracers told of it, and how much it told of all programs; the others
    are not read."""
    command = [native.path("storm"), kind, str(objects), str(THREADS)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told: list[bytes] = []
    until = time.monotonic() + 60
    while program.poll() is None and time.monotonic() < until:
        if tracers and tracers[0].wait(0.01):
            told += tracers[0].records()
        elif not tracers:
            time.sleep(0.01)
    if program.poll() is None:
        program.kill()
    out, err = program.communicate()
    if program.returncode:
        raise PartError(f"storm {kind}: {err.strip()}")
    time.sleep(0.2)
    if tracers:
        told += tracers[0].records()
    pid = struct_pid(program.pid)
    return json.loads(out), [data for data in told if data[16:20] == pid], len(told)


def struct_pid(pid: int) -> bytes:
    """As it stands in a record."""
    return pid.to_bytes(4, "little")


def _births(told: Sequence[bytes], tables: Abi) -> tuple[int, int]:
    """Births and deaths of objects and clients in records, those of the program itself at its end left out."""
    from detshare.ebpf.records import Decoder
    from detshare.ebpf.world import World

    world, count = World(Decoder(tables)), Counter[bool]()
    for data in told:
        record = unpack(data)
        if record.kind is Kind.CALL:
            count.update(each.born for each in world.take(record) if each.kind != "process")
    return count[True], count[False]


def storm(quick: bool) -> None:
    """As many objects as a prime number says, made and freed by threads, once for each kind, with a reader; then with
    a ring that is too small."""
    tables, objects = abi(), STORM_QUICK if quick else STORM
    for kind in ("child", "refused", "client"):
        # clients are an order of magnitude dearer
        count = objects if kind != "client" else STORM_QUICK
        watched = ObjectTracer(tables)
        small = ObjectTracer(tables, ring_bytes=4096)
        try:
            before = sum(1 for _ in watched.records())
            line, told, all_told = _run_storm(kind, count, (watched, small))
            calls = sum(unpack(data).kind is Kind.CALL for data in told)
            born, died = _births(told, tables)
            trouble = watched.trouble()
            say(
                "storm",
                kind=kind,
                objects=count,
                made=line["calls"],
                counted=calls,
                events=len(told),
                rate=line["calls"] / line["ns"] * 1e9,
                born=born - THREADS,
                died=died,
                lost=trouble.lost,
                other=trouble.full + trouble.unread,
                ring=RING_BYTES,
            )
            missed, kept = small.trouble().lost, sum(1 for _ in small.records())
            said = any(str(missed) in note for note in small.notes())
            # other programs' events are in both rings, or in one where they fell between the two's begins or ends
            least, most = all_told, before + all_told + sum(1 for _ in watched.records())
            apart = max(0, least - missed - kept, missed + kept - most)
            say("forced", kind=kind, lost=missed, kept=kept, events=all_told, apart=apart, told=said)
        except PartError as error:
            say("refused", kind=kind, why=str(error))
        finally:
            small.close()
            watched.close()


PARTS = {
    "storm": Part(storm, 150),
    "decode": Part(_quick_decode, 130),
    "train": Part(_quick_train, 170),
}


def rows(lines: list[Line]) -> list[Row]:
    """Figures of what was measured."""
    found = []
    for line in of(lines, "compared"):
        what = line["what"]
        found += [
            Row(f"{what}: RM calls that the recorder inside it saw", line["calls"], "calls", target="> 0"),
            Row(f"{what}: births of RM objects by the observer", line["births"], "objects", target="> 0"),
            Row(
                f"{what}: births (client, handle, class, parent) that only one of the two has",
                line["births_differ"],
                "objects",
                target="== 0",
            ),
            Row(f"{what}: objects freed before its end, by the observer", line["freed"], "objects"),
            Row(f"{what}: such deaths that only one of the two has", line["frees_differ"], "objects", target="== 0"),
            Row(f"{what}: deaths in all that only one of the two has", line["deaths_differ"], "objects", target="== 0"),
            Row(f"{what}: events lost", line["lost"], "events", target="== 0"),
        ]
    for line in of(lines, "storm"):
        kind = f"storm of {_KINDS[line['kind']]}"
        found += [
            Row(f"{kind}: RM calls a second, {THREADS} threads", line["rate"], "1/s"),
            Row(f"{kind}: calls told of", line["counted"], "calls", line["made"], ">= 1 x baseline"),
            Row(f"{kind}: calls told of that nobody made", line["counted"] - line["made"], "calls", target="<= 0"),
            Row(f"{kind}: events lost", line["lost"], "events", target="== 0"),
        ]
        if line["kind"] != "refused":
            expected = line["objects"]
            found += [
                Row(f"{kind}: births told of", line["born"], "objects", target=f"== {expected}"),
                Row(f"{kind}: deaths told of", line["died"], "objects", target=f"== {expected}"),
            ]
    if storms := of(lines, "storm"):
        found.append(
            Row("fastest storm, RM calls a second", max(line["rate"] for line in storms), "1/s", target=f">= {RATE}")
        )
    for line in of(lines, "forced"):
        kind = f"storm of {_KINDS[line['kind']]}, a ring of one page that nobody reads"
        found += [
            Row(f"{kind}: events lost", line["lost"], "events", target="> 0"),
            Row(f"{kind}: events lost and kept", line["lost"] + line["kept"], "events"),
            Row(
                f"{kind}: events by which that differs from what the reader beside was told",
                line["apart"],
                "events",
                target="== 0",
            ),
            Row(f"{kind}: the loss is said", int(line["told"]), "yes", target="== 1"),
        ]
    return found


if __name__ == "__main__":
    main(PARTS)
