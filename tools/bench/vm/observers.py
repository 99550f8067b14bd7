# SPDX-License-Identifier: Apache-2.0
"""Observers (detshare.ebpf) against programs of which everything is known: exact counts, cost, dirty memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from statistics import median

from detshare.ebpf import build
from detshare.ebpf.errors import EbpfError
from detshare.tools.bench.vm.inside import observers as inside
from detshare.tools.bench.vm.machines import TOP, ExperimentError, Line, Machine, run
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
    rate = 2 * storm["pairs"] / storm["seconds"]
    report.row(f"{machine.text}: calls a second while nobody read", rate, "1/s")
    report.row(f"{machine.text}: calls in it", 2 * storm["pairs"], "calls", target=f">= {2 * inside.PAIRS}")
    exact("events lost in it", storm["lost"], "events", 0)
    forced_lost = f"{machine.text}: events said to be lost with a ring of one page"
    report.row(forced_lost, forced["lost"], "events", target="> 0")


def overhead(report: Report, machine: Machine, rounds: int) -> None:
    """Rows: what a watched call takes beside one that is not."""
    _prepare()
    lines = run(machine, "observers", "overhead", "--amount", rounds, timeout=900 + 300 * rounds, took=report.record)
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
    """Rows: nothing missed, and how much too much was reported."""
    _prepare()
    words = ("observers", "dirty", "--amount", programs)
    lines = run(machine, *words, timeout=900 + 30 * programs, took=report.record)
    epochs = _of(lines, "epoch")
    (lost,) = _of(lines, "lost")

    def ratio(which: list[Line]) -> float:
        written, reported = (float(sum(line[name] for line in which)) for name in ("written", "reported"))
        return reported / max(1.0, written)

    exact = [line for line in epochs if not line["whole"]]
    report.row(f"{machine.text}: epochs of random programs", len(epochs), "epochs", target=f">= {5 * programs}")
    missed = sum(line["missed"] for line in epochs)
    report.row(f"{machine.text}: written allocations that were not reported", missed, "allocations", target="== 0")
    report.row(f"{machine.text}: events lost", lost["lost"], "events", target="== 0")
    everything = 100 * (len(epochs) - len(exact)) / len(epochs)
    report.row(f"{machine.text}: epochs in which all memory had to be called dirty", everything, "%")
    report.row(f"{machine.text}: bytes reported for each written, other epochs", ratio(exact), "x")
    report.row(f"{machine.text}: bytes reported for each written, all epochs", ratio(epochs), "x")


MEASURES: dict[str, Callable[[Report, Machine, int], None]] = {
    "ebpf-counts": counts,
    "ebpf-overhead": overhead,
    "dirty": dirty,
}
