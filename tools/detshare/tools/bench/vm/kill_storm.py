# SPDX-License-Identifier: Apache-2.0
"""kill -9 of clients in mid-allocation: how long until nothing of them is left."""

from __future__ import annotations

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import SIM, Machine, run
from detshare.tools.bench.vm.report import Report

NEVER = 10_000.0
"""ms that are written down for what did not happen while it was waited for"""


def measure(report: Report, singles: int, groups: int, size: int, machine: Machine = SIM) -> None:
    """Rows: clients killed one by one, counted from the kill; and many at a time, counted from the last death."""
    what = machine.text
    words = ("--groups", f"{singles}x1,{groups}x{size}")
    timeout = 300 + 2 * singles + groups * size
    lines = run(machine, "kill_storm", *words, timeout=timeout, took=report.record, options=("--mem", "3072"))
    killed = [line for line in lines if line["event"] == "group"]
    (left,) = (line for line in lines if line["event"] == "left")
    (references,) = (line for line in lines if line["event"] == "references")
    clients = sum(line["size"] for line in killed if line["dead"] is not None)
    report.row(f"{what}: clients killed", clients, "clients", target=f">= {singles + groups * size}")
    report.row(f"{what}: of them while ground truth showed memory", _alive(killed), "clients", target=f">= {clients}")
    alone = [line for line in killed if line["size"] == 1]
    many = [line for line in killed if line["size"] > 1]
    zeros = {"truth": "ground truth zero", "ps": "no virtual context listed", "objects": "no object left"}
    for name, text in zeros.items():
        if alone:
            worst = max(line[name] if line[name] is not None else NEVER for line in alone)
            report.row(f"{what}: one client, from the kill: {text}, slowest of {singles}", worst, "ms", target="<= 100")
        if many:
            worst = max(_after(line, name) for line in many)
            who = f"{what}: {size} clients, from the last death"
            report.row(f"{who}: {text}, slowest of {groups}", worst, "ms", target="<= 100")
    if many:
        slowest = max(line["dead"] if line["dead"] is not None else NEVER for line in many)
        report.row(f"{what}: {size} clients, from the last kill: all dead, slowest", slowest, "ms")
    report.row(f"{what}: memory held at the end", left["used"], "bytes", target="== 0")
    report.row(f"{what}: virtual contexts at the end", left["vctxs"], "contexts", target="== 0")
    for name in ("objects", "clients", "shadows"):
        report.row(f"{what}: {name} kept by the module at the end", left[name], name, target="== 0")
    # nvidia-uvm holds nvidia; nobody else is left
    report.row(f"{what}: references to the driver at the end", references["nvidia"], "references", target="<= 1")
    report.kernel_log(what, lines)


def _alive(lines: list[Line]) -> int:
    """Clients of groups that held memory when they were killed."""
    return sum(line["size"] for line in lines if line["used_before"] > 0 and line["vctxs_before"] >= line["size"])


def _after(line: Line, name: str) -> float:
    """Milliseconds from the last death; 0 where it was so before that."""
    if line[name] is None or line["dead"] is None:
        return NEVER
    return max(0.0, float(line[name]) - float(line["dead"]))
