# SPDX-License-Identifier: Apache-2.0
"""What observers cost programs on a real GPU: a launch, a training step, a token, an RM call; and CPU time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import median

from detshare.ebpf import elf
from detshare.ebpf.launches import Kind, LaunchTracer
from detshare.tools.bench.catalog import decode, train
from detshare.tools.bench.ebpf import native
from detshare.tools.bench.ebpf.observer import Observer, cpu_s
from detshare.tools.bench.ebpf.part import Line, Part, PartError, main, of, say
from detshare.tools.bench.ebpf.told import Told
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.stats import latencies, percentile, rate
from detshare.tools.results import Row

COUNTED = 10_007
"""launches that are counted exactly; a prime number"""
HZ = 10_000
MOST_US = {"launches": 2.0, "dirty": 3.0}
"""that a launch may cost more"""
TOOLS = (None, "launches", "dirty")
_BATCH = 64
"""images of a training step"""


def pinned(pid: int) -> None:
    """To one CPU: where the scheduler puts it is worth more than what is measured."""
    os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})


def launcher() -> Told:
    """The program that launches, ready."""
    program = Told("launcher", [native.path("launcher")])
    program.answer(60)
    return program


def launch(quick: bool) -> None:
    """ns of a launch, by a fresh program in each turn: an observer of what is written must see a program's begin."""
    for turn in range(2 if quick else 7):
        for tool in TOOLS if turn % 2 == 0 else TOOLS[::-1]:
            with Observer(tool), launcher() as program:
                pinned(program.pid)
                program.say("launch 2000")
                time.sleep(0.1)
                times = [program.say("launch 5000") for _ in range(5)]
                ns = [line["ns"] / line["launches"] for line in times]
                say("launch", turn=turn, observer=tool or "none", ns=ns)


def share(quick: bool) -> None:
    """CPU time of the program and of the observer's process while it launches so often."""
    seconds = 2 if quick else 6
    for tool in TOOLS:
        with Observer(tool) as observer, launcher() as program:
            pinned(program.pid)
            program.say("launch 2000")
            time.sleep(1.2)  # a tool that looks once a second has looked
            before = observer.cpu_s()
            line = program.say(f"pace {HZ * seconds} {HZ}")
            spent = observer.cpu_s() - before
            taken = line["ns"] / 1e9
            say(
                "share",
                observer=tool or "none",
                hz=line["launches"] / taken,
                program=100 * line["cpu_ns"] / line["ns"],
                process=100 * spent / taken,
                late=line["late"],
            )


_TORCH = """
import json, sys, torch
x = torch.zeros(1 << 16, device="cuda")
x.add_(1)
torch.cuda.synchronize()
print(json.dumps({{"event": "ready"}}), flush=True)
sys.stdin.readline()
for _ in range({count}):
    x.add_(1)
torch.cuda.synchronize()
print(json.dumps({{"event": "done", "launches": {count}}}), flush=True)
sys.stdin.readline()
print(json.dumps({{"event": "right", "right": bool((x.cpu() == {count} + 1).all())}}), flush=True)
"""


def _launches(tracer: LaunchTracer, pid: int) -> int:
    return sum(each.calls for each in tracer.counts() if each.pid == pid and each.kind is Kind.LAUNCH)


def _entries(path: str) -> dict[str, str]:
    """The first bytes of some functions of a libcuda: a probe costs more where the kernel has to step over them."""
    library, found = elf.read(path), dict[str, str]()
    with open(path, "rb") as file:
        for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2"):
            if name in library.functions:
                file.seek(library.functions[name])
                found[name] = file.read(16).hex()
    return found


def count(quick: bool) -> None:
    """A prime number of launches by the driver's interface, and the same by PyTorch."""
    del quick
    for by, argv in (
        ("the driver's interface", [native.path("launcher")]),
        ("PyTorch", [sys.executable, "-c", _TORCH.format(count=COUNTED)]),
    ):
        tracer = LaunchTracer()
        if by != "PyTorch":
            say("entries", **{path: _entries(path) for path in tracer.probes.paths})
        try:
            with Told(by, argv) as program:
                program.answer(120)
                before = _launches(tracer, program.pid)
                program.say(f"launch {COUNTED}")
                told = _launches(tracer, program.pid) - before
                shapes = [asdict(each) for each in tracer.shapes() if each.pid == program.pid]
                kinds = {each.kind.name: each.calls for each in tracer.counts() if each.pid == program.pid}
                say(
                    "counted",
                    by=by,
                    launches=COUNTED,
                    told=told,
                    before=before,
                    shapes=shapes[:8],
                    kinds=kinds,
                    libraries=tracer.probes.paths,
                    notes=tracer.notes(),
                    loader=tracer.how,
                )
        except PartError as error:
            say("not-counted", by=by, why=str(error))
        finally:
            tracer.close()


def ms_per_step(windows: list[Line]) -> float:
    """Of training."""
    return 1e3 * _BATCH / rate(windows)


def ms_per_token(windows: list[Line]) -> float:
    """The median token."""
    return percentile(latencies(windows), 50) / 1e3


def _whole(what: str, argv: Sequence[str], value: Callable[[list[Line]], float], quick: bool) -> None:
    """A program that begins under `dirty`; then observers come and go beside it, in turns."""
    seconds = 1.5 if quick else 3.0

    def slot(program: Program, observer: Observer) -> None:
        time.sleep(0.7)
        begin, spent, used = time.monotonic(), observer.cpu_s(), cpu_s(program.pid)
        time.sleep(seconds)
        end = time.monotonic()
        took = end - begin
        say(
            "whole",
            what=what,
            observer=observer.tool or "none",
            ms=value(program.windows(begin, end, 5.0)),
            process=100 * (observer.cpu_s() - spent) / took,
            program=100 * (cpu_s(program.pid) - used) / took,
        )

    watching = Observer("dirty")
    try:
        with Program(what, argv) as program:
            try:
                program.ready(150)
                for _ in range(2):
                    slot(program, watching)
                watching.close()
                say("said", what=what, observer="dirty", lines=watching.said[-8:], epochs=watching.lines[-4:])
                for turn in range(1 if quick else 4):
                    for tool in (None, "launches", "objects"):
                        with Observer(tool) as observer:
                            slot(program, observer)
                    del turn
            except ProgramError as error:
                raise PartError(str(error)) from error
    finally:
        watching.close()


def whole_train(quick: bool) -> None:
    """A training step."""
    _whole("training step", train("resnet", "--no-benchmark"), ms_per_step, quick)


def whole_decode(quick: bool) -> None:
    """A token."""
    _whole("token", decode(0), ms_per_token, quick)


def rm_call(quick: bool) -> None:
    """ns of an RM call, alone and watched by `objects`, one thread."""
    for turn in range(2 if quick else 7):
        for tool in (None, "objects") if turn % 2 == 0 else ("objects", None):
            with Observer(tool):
                command = [native.path("storm"), "child", "5003", "1"]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
                if done.returncode:
                    raise PartError(f"storm: {done.stderr.strip()}")
                line = json.loads(done.stdout)
                say("rm-call", turn=turn, observer=tool or "none", ns=line["ns"] / line["calls"])


PARTS = {
    "launch": Part(launch, 120),
    "share": Part(share, 90),
    "count": Part(count, 120),
    "rm-call": Part(rm_call, 90),
    "decode": Part(whole_decode, 150),
    "train": Part(whole_train, 180),
}


def _values(lines: list[Line], event: str, key: str, observer: str) -> list[float]:
    return [float(line[key]) for line in of(lines, event, observer=observer)]


def rows(lines: list[Line]) -> list[Row]:
    """Figures of what was measured."""
    found: list[Row] = []
    middles = {
        tool or "none": [median(line["ns"]) for line in of(lines, "launch", observer=tool or "none")] for tool in TOOLS
    }
    if alone := middles["none"]:
        base = median(alone)
        found.append(Row(f"a launch, median of {len(alone)} turns", base, "ns"))
        for tool, most in MOST_US.items():
            if watched := middles[tool]:
                added = (median(watched) - base) / 1e3
                found.append(Row(f"a launch, watched by {tool}", median(watched), "ns", base))
                found.append(Row(f"added per launch: {tool}", added, "us", target=f"<= {most:g}"))
    for line in of(lines, "share"):
        where = f"{HZ} launches a second, observer {line['observer']}"
        found.append(Row(f"{where}: launches a second", line["hz"], "1/s"))
        found.append(Row(f"{where}: CPU of the program", line["program"], "% of one CPU"))
        if line["observer"] != "none":
            found.append(Row(f"{where}: CPU of the observer's process", line["process"], "% of one CPU"))
    for line in of(lines, "counted"):
        what = f"launches by {line['by']} that `launches` counted"
        found.append(Row(what, line["told"], "launches", target=f"== {line['launches']}"))
    calls = {name: _values(lines, "rm-call", "ns", name) for name in ("none", "objects")}
    if calls["none"] and calls["objects"]:
        base = median(calls["none"])
        found.append(Row("an RM call, one thread", base, "ns"))
        found.append(Row("an RM call, watched by objects", median(calls["objects"]), "ns", base))
    for what in ("training step", "token"):
        here = of(lines, "whole", what=what)
        alone = _values(here, "whole", "ms", "none")
        if not alone:
            continue
        found.append(Row(f"{what}, nobody watches, median of {len(alone)}", median(alone), "ms"))
        for tool in ("launches", "dirty", "objects"):
            if watched := _values(here, "whole", "ms", tool):
                found.append(Row(f"{what}, watched by {tool}", median(watched), "ms", median(alone)))
                used = median(_values(here, "whole", "process", tool))
                found.append(Row(f"{what}, CPU of the process of {tool}", used, "% of one CPU"))
    return found


if __name__ == "__main__":
    main(PARTS)
