# SPDX-License-Identifier: Apache-2.0
"""insmod and rmmod of detshare.ko, over and over, while programs call the driver."""

from __future__ import annotations

from statistics import median

from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report


def measure(report: Report, machine: Machine, rounds: int, processes: int = 8) -> None:
    """Rows of one machine. A fault in the kernel log ends the experiment: ExperimentError."""
    words: tuple[object, ...] = ("--rounds", rounds, "--processes", processes)
    if machine.driver == "sim":
        words += ("--simulated",)
    elif machine.label:
        words += ("--no-fuzz",)  # 580.142 itself keeps its API lock after one of those calls (docs/results/NOTES.md)
    lines = run(machine, "unload", *words, timeout=300 + rounds * 40, took=report.record)
    done = [line for line in lines if line["event"] == "round"]
    (after,) = (line for line in lines if line["event"] == "after")
    what = machine.text
    report.row(f"{what}: rounds of insmod and rmmod", len(done), "rounds", target=f">= {rounds}")
    alive = min(line["alive"] for line in done)
    report.row(f"{what}: processes that call the driver", alive, "processes", target=f">= {processes}")
    busy = sum(line["clients"] > 0 for line in done)
    report.row(f"{what}: rounds in which the module had seen clients", busy, "rounds", target="> 0")
    inside = sum(line["loaded"] for line in done)
    report.row(f"{what}: rounds after which the module was still in", inside, "rounds", target="== 0")
    left = after["references"] - after["before"]
    report.row(f"{what}: references to the driver that were left", left, "references", target="== 0")
    held = after["clients_before"]
    report.row(f"{what}: clients that the module knew before they were killed", held, "clients", target="> 0")
    for name in ("objects", "clients", "shadows"):
        report.row(f"{what}: {name} kept by the module when all have gone", after[name], name, target="== 0")
    for name, text in (("load_ms", "insmod"), ("unload_ms", "rmmod")):
        report.row(f"{what}: {text}, median", median(line[name] for line in done), "ms")
        report.row(f"{what}: {text}, slowest", max(line[name] for line in done), "ms")
    report.kernel_log(what, lines)
