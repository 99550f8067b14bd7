# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko adds to an ioctl: the same loop with and without it, taking turns in one guest."""

from __future__ import annotations

from statistics import median

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report

KINDS = {
    "empty": "empty control",
    "version": "CHECK_VERSION_STR",
    "handle": "control with nested parameters",
    "client": "client, alloc and free",
    "fb-info": "FB_GET_INFO_V2, rewritten by limits",
    "memory": "64 KiB of memory, alloc and free",
}


def measure(report: Report, machine: Machine, rounds: int, batches: int = 15, calls: int = 200) -> None:
    """Rows of one machine."""
    words = ("--rounds", rounds, "--batches", batches, "--calls", calls)
    lines = run(machine, "interception", *words, timeout=120 + rounds * 120, took=report.record)
    for kind, text in KINDS.items():
        mine = [line for line in lines if line.get("kind") == kind]
        if mine:
            _rows(report, f"{machine.text}: {text}", mine)
    report.kernel_log(machine.text, lines)


def _rows(report: Report, what: str, lines: list[Line]) -> None:
    """Medians of all batches: single batches meet what else this machine does, and there are many."""
    without = [ns for line in lines if not line["loaded"] for ns in line["ns"]]
    loaded = [ns for line in lines if line["loaded"] for ns in line["ns"]]
    report.row(f"{what}: added, median", median(loaded) - median(without), "ns", median(without))
    report.row(f"{what}: added, of the quickest batch of either", min(loaded) - min(without), "ns", min(without))
