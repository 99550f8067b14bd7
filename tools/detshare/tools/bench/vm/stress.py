# SPDX-License-Identifier: Apache-2.0
"""Everything at once, for a long time: what is left, what was lost, what the kernel complained of."""

from __future__ import annotations

from typing import Any

from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report


def measure(report: Report, machine: Machine, seconds: float, seed: int) -> None:
    """Rows of one machine. A fault in the kernel log ends the experiment: ExperimentError."""
    words = ("--seconds", seconds, "--seed", seed)
    options = ("--mem", "3072", "--cpus", "2")
    report.say(f"seed {seed}")

    def took(line: dict[str, Any]) -> None:
        report.record(line)
        if line["event"] == "progress":
            report.say(f"{line['left']} s left, {line['clients']} programs, {line['done']} steps")

    lines = run(machine, "stress", *words, timeout=900 + seconds * 2, took=took, options=options)
    (steps,) = (line for line in lines if line["event"] == "steps")
    (left,) = (line for line in lines if line["event"] == "left")
    (checks,) = (line for line in lines if line["event"] == "checks")
    (references,) = (line for line in lines if line["event"] == "references")
    workers = [line for line in lines if line["event"] == "worker"]
    what = f"{machine.text}, seed {seed}"

    report.row(f"{what}: time", seconds, "s")
    report.row(f"{what}: random steps that were carried out", sum(steps["done"].values()), "steps", target="> 0")
    report.row(f"{what}: kinds of step that were never carried out", len(steps["never"]), "kinds", target="== 0")
    for name, count in sorted(steps["done"].items()):
        report.row(f"{what}: {name}", count, "times")
    report.row(f"{what}: requests that the module refused", sum(steps["refused"].values()), "requests")
    report.row(f"{what}: programs killed", steps["killed"], "programs", target="> 0")
    report.row(f"{what}: programs that were asked to end and told their count", len(workers), "programs", target="> 0")
    launched = sum(line.get("submitted", 0) for line in workers)
    report.row(f"{what}: launches of these", launched, "launches", target="> 0")
    lost = launched - sum(line.get("finished", 0) for line in workers)
    report.row(f"{what}: of them lost", lost, "launches", target="== 0")
    report.row(
        f"{what}: of these programs, that failed",
        sum(bool(line["exit"]) for line in workers),
        "programs",
        target="== 0",
    )
    report.row(f"{what}: tasks that were stuck at the end", len(steps["stuck"]), "tasks", target="== 0")
    for name in sorted(set(left) - {"event", "machine", "t"}):
        report.row(f"{what}: {name} that were left", left[name], "bytes" if name == "used" else name, target="== 0")
    # nvidia-uvm holds nvidia; nobody else is left
    report.row(f"{what}: references to the driver that were left", references["nvidia"], "references", target="<= 1")
    if checks["lockdep"] is not None:
        report.row(f"{what}: lockdep watched until the end", float(checks["lockdep"]), "yes", target="== 1")
    if checks["leaks"] is not None:
        leaks = checks["leaks"].count("unreferenced object")
        report.row(f"{what}: pieces of memory that kmemleak found lost", leaks, "pieces", target="== 0")
    report.kernel_log(what, lines)
