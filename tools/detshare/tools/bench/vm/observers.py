# SPDX-License-Identifier: Apache-2.0
"""Observers (detshare.ebpf) against programs of which everything is known: exact counts, cost, dirty memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from statistics import median

from detshare.ebpf import build
from detshare.ebpf.errors import EbpfError
from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm import dirty as written
from detshare.tools.bench.vm.inside import observers as inside
from detshare.tools.bench.vm.machines import HERE, TOP, ExperimentError, Machine, run
from detshare.tools.bench.vm.report import Report


def _prepare() -> None:
    """The programs of both sides, built here: a guest would need minutes for it."""
    try:
        for source in build.sources():
            build.build(source)
    except EbpfError as error:
        raise ExperimentError(str(error)) from error
    for part in ("fakecuda", "tracee"):
        done = subprocess.run(
            ["make", "-s", "-C", str(TOP / "tests" / part)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ExperimentError(f"build tests/{part}: {done.stderr.strip()}")


def _of(lines: list[Line], event: str) -> list[Line]:
    return [line for line in lines if line["event"] == event]


def counts(report: Report, machine: Machine, _: int) -> None:
    """Rows: exact numbers, and the storm."""
    _prepare()
    lines = run(machine, "observers", "counts", timeout=1500, took=report.record)
    (launched,), (allocated,) = _of(lines, "launches"), _of(lines, "allocations")
    (processes,), (storm,), (forced,) = _of(lines, "processes"), _of(lines, "storm"), _of(lines, "forced")

    def exact(what: str, value: float, unit: str, expected: int) -> None:
        report.row(f"{machine.text}: {what}", value, unit, target=f"== {expected}")

    exact("launches counted", launched["launches"], "launches", inside.LAUNCHES)
    exact("of them in the one grid and block that there was", max(launched["shapes"]), "launches", inside.LAUNCHES)
    exact("copies counted", launched["copies"], "copies", inside.COPIED)
    exact("bytes copied", launched["copied"], "bytes", inside.COPIED * 4096)
    exact("births of memory objects", allocated["born"], "objects", inside.ALLOCATIONS)
    exact("their deaths, with their program", allocated["died"], "objects", inside.ALLOCATIONS)
    exact("programs born", processes["born"], "programs", inside.PROCESSES)
    exact("programs that died", processes["died"], "programs", inside.PROCESSES)
    report.row(f"{machine.text}: storm, calls a second while nobody read", storm["rate"], "1/s", target=">= 50000")
    exact("storm, calls told of", storm["calls"], "calls", inside.CALLS)
    exact("storm, events lost", storm["lost"], "events", 0)
    small = "a ring of one page"
    exact(f"{small}: events lost and kept", forced["lost"] + forced["kept"], "events", forced["events"])
    report.row(f"{machine.text}: {small}: events lost", forced["lost"], "events", target="> 0")
    exact(f"{small}: the loss is said", int(forced["told"]), "yes", 1)


def overhead(report: Report, machine: Machine, rounds: int) -> None:
    """Rows: what a watched call takes beside one that is not."""
    _prepare()
    lines = run(machine, "observers", "overhead", "--amount", rounds, timeout=900 + 300 * rounds, took=report.record)
    (reader,) = _of(lines, "reader")
    taken = f"{machine.text}: records that a reader of objects takes in by second of its CPU time, best of 3"
    report.row(taken, max(reader["rates"]), "1/s", target=">= 50000" if machine is HERE else None)
    for event, observers, what in (
        ("launch", ("launches", "dirty"), "a launch of the stand-in"),
        ("call", ("objects",), "a call into the simulated driver"),
    ):
        if not _of(lines, event):
            continue

        def times(observer: str, event: str = event) -> list[float]:
            return [float(line["ns"]) for line in _of(lines, event) if line["observer"] == observer]

        alone = times("none")
        report.row(f"{machine.text}: {what}, median of {rounds}", median(alone), "ns")
        report.row(f"{machine.text}: {what}, fastest", min(alone), "ns")
        for observer in observers:
            watched, by = times(observer), f"{machine.text}: {what}, watched by {observer}"
            report.row(f"{by}, median of {rounds}", median(watched), "ns", baseline=median(alone))
            report.row(f"{by}, fastest", min(watched), "ns", baseline=min(alone))


def dirty(report: Report, machine: Machine, programs: int) -> None:
    """What `dirty` reports beside what was written."""
    _prepare()
    written.dirty(report, machine, programs)


MEASURES: dict[str, Callable[[Report, Machine, int], None]] = {
    "ebpf-counts": counts,
    "ebpf-overhead": overhead,
    "dirty": dirty,
}
