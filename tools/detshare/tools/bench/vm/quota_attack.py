# SPDX-License-Identifier: Apache-2.0
"""Threads that race to get more memory than a limit allows, judged by what the simulated GPU handed out at most."""

from __future__ import annotations

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import SIM, Machine, run
from detshare.tools.bench.vm.report import Report


def measure(
    report: Report,
    seconds: float,
    control_seconds: float,
    threads: int = 8,
    processes: int = 1,
    seed: int = 1,
    machine: Machine = SIM,
) -> None:
    """Rows of one attack: controls without the module and without its shield, then the limit."""
    people = f"{threads} threads" if processes == 1 else f"{processes} processes of {threads} threads"
    who = f"{machine.text}, {people}"
    words = ["--seconds", seconds, "--control-seconds", control_seconds, "--threads", threads]
    words += ["--processes", processes, "--seed", seed]
    lines = run(machine, "quota_attack", *words, timeout=300 + 2 * (seconds + control_seconds), took=report.record)
    runs = {line["run"]: line for line in lines if line["event"] == "run"}
    attacks = [line for line in lines if line["event"] == "attack" and "way" in line and line["run"] == "limit"]
    (account,) = (line for line in lines if line["event"] == "account")
    (left,) = (line for line in lines if line["event"] == "left")
    limited, bare = runs["limit"], runs["no module"]

    # without these rows a program that attacks nothing, or never between check and use, would pass
    above = bare["peak"] - bare["limit"]
    report.row(f"{who}, without the module: ground truth above the limit", above, "bytes", target="> 0")
    above = runs["no shield"]["peak"] - runs["no shield"]["limit"]
    report.row(f"{who}, limit checked but not shielded: ground truth above it", above, "bytes", target="> 0")
    above = max(0, limited["peak"] - limited["limit"])
    report.row(f"{who}: ground truth above the limit, at most", above, "bytes", target="== 0")
    report.row(f"{who}: ground truth, highest", limited["peak"], "bytes", limited["limit"], "<= 1 x baseline")
    report.row(f"{who}: charged, highest", account["peak"], "bytes", limited["limit"], "<= 1 x baseline")
    report.row(f"{who}: attack time", limited["seconds"], "s", target=f">= {seconds:g}")
    report.row(f"{who}: ways", len({line["way"] for line in attacks}), "ways", target=">= 20")
    for name in ("attempts", "granted", "refused"):
        report.row(f"{who}: {name}", sum(line[name] for line in attacks), "calls", target="> 0")
    report.row(f"{who}: processes that failed", sum(map(bool, limited["exit"])), "processes", target="== 0")
    _left(report, who, left)
    report.kernel_log(who, lines)


def _left(report: Report, who: str, left: Line) -> None:
    report.row(f"{who}: held when all have gone", left["used"], "bytes", target="== 0")
    for name in ("objects", "clients", "shadows"):
        report.row(f"{who}: {name} kept by the module when all have gone", left[name], name, target="== 0")
