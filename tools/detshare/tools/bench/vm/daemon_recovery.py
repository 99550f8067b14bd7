# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon at random points under load: what programs notice, and what the next daemon finds."""

from __future__ import annotations

from statistics import median

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import SIM, run
from detshare.tools.bench.vm.report import Report

PROGRAMS = 4


def measure(report: Report, kills: int, seed: int) -> None:
    """Rows. ExperimentError where a guest does not do it, or its kernel log has a fault."""

    def took(line: Line) -> None:
        report.record(line)
        if line["event"] == "kill":
            report.say(f"kill {line['number'] + 1}: next daemon after {line['restart_s']} s")

    words = ("--kills", kills, "--seed", seed)
    lines = run(SIM, "daemon_recovery", *words, timeout=600 + 60 * kills, took=took)
    killed = [line for line in lines if line["event"] == "kill"]
    (end,) = (line for line in lines if line["event"] == "end")
    programs = [line for line in lines if line["event"] == "program"]
    alone = [line["held_after"] for line in killed if line["held_after"] is not None]
    report.row("daemons killed at a random point", len(killed), "daemons", target=f">= {kills}")
    early = sum(line["early"] for line in killed)
    report.row("of them while starting", early, "daemons", target="> 0")
    held = sum(bool(line["held"]) for line in killed)
    report.row("of them while a program was held", held, "daemons", target="> 0")
    report.row("changes that were answered meanwhile", killed[-1]["answers"], "changes", target="> 0")
    ended = PROGRAMS * len(killed) - sum(line["alive"] for line in killed)
    report.row("programs that ended of it", ended, "programs", target="== 0")
    stopped = sum(line["stopped"] for line in killed)
    what = "programs that got no GPU time after a kill, though nobody holds them"
    report.row(what, stopped, "programs", target="== 0")
    lost = sum(len(line["wrong"]) for line in killed)
    report.row("answered changes that the kernel had not after the kill", lost, "changes", target="== 0")
    changed = sum(len(line["changed"]) for line in killed)
    row = "settings that the next daemon changed though nobody had asked for it"
    report.row(row, changed, "settings", target="== 0")
    finished = sum(len(line["finished"]) for line in killed)
    report.row("changes under way at a kill that the next daemon finished or took back", finished, "changes")
    differs = sum(len(line["differs"]) for line in killed)
    report.row("settings that the next daemon shows otherwise than the kernel", differs, "settings", target="== 0")
    report.row("kills without another daemon for a lease and a second", len(alone), "kills", target="> 0")
    report.row("holds that were left after that", sum(alone), "holds", target="== 0")
    report.row("holds at the end", end["held"], "holds", target="== 0")
    report.row("programs that got no GPU time at the end", end["stopped"], "programs", target="== 0")
    counted = sum(line["count"] > 0 for line in programs)
    report.row("programs that ended as asked and told their launches", counted, "programs", target=f">= {PROGRAMS}")
    seconds = [line["restart_s"] for line in killed]
    report.row("from the start of the next daemon to its first answer, median", median(seconds), "s")
    report.row("from the start of the next daemon to its first answer, slowest", max(seconds), "s")
    report.kernel_log("whole time", lines)
