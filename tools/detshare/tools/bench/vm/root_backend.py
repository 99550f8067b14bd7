# SPDX-License-Identifier: Apache-2.0
"""Backend root that hears of births by eBPF: whether it hears all, and how soon a program has its class."""

from __future__ import annotations

from statistics import median

from detshare.ebpf import build
from detshare.ebpf.errors import EbpfError
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.machines import ExperimentError, Machine, run
from detshare.tools.bench.vm.report import Report

WITHIN_MS = 10
LATE_MS = 100
"""no birth may take longer, whoever gave the class: looks alone take some 500 ms"""
_STEPS = {
    "told": "its program made what tells that it is for compute",
    "heard": "detshared read that",
    "begun": "it began to act",
    "desired found": "it knew the class",
    "TSG read": "it had asked the driver about the TSG",
    "set": "slice and level were set",
}


def measure(report: Report, machine: Machine, amount: int) -> None:
    """Rows of one machine; `amount` births and deaths of each kind."""
    try:
        for source in build.sources():
            build.build(source)
    except EbpfError as error:
        raise ExperimentError(str(error)) from error
    lines = run(machine, "root_backend", "--amount", amount, timeout=600 + 60 * amount, took=report.record)
    rounds = [line for line in lines if line["event"] == "agreement"]
    (heard,) = (line for line in lines if line["event"] == "heard")
    where = machine.text
    report.row(f"{where}: channel groups compared", sum(each["groups"] for each in rounds), "groups", target="> 0")
    differ = sum(each["differ"] for each in rounds)
    asked = f"{where}: of them heard of otherwise than the backend's own asking has them"
    report.row(asked, differ, "groups", target="== 0")
    for name, who in (("module", "detshare.ko's tree"), ("driver", "the driver")):
        apart = sum(each["objects"] != each[name] for each in rounds)
        report.row(f"{where}: moments when {who} had other objects", apart, "moments", target="== 0")
    report.row(f"{where}: events lost", heard["lost"], "events", target="== 0")
    births = [line for line in lines if line["event"] == "birth"]
    watched = [line for line in births if line["observers"]]
    times = [each["ms"] for each in watched]
    without = f"{where}: no module, a look a minute"
    soon = sum(ms <= LATE_MS for ms in times)
    report.row(f"{without}: programs that had their class within {LATE_MS} ms", soon, "programs", target=f"== {amount}")
    first = sum(not each["early"] for each in watched)
    report.row(f"{without}: programs that a look gave their class before it was heard of", first, "programs")
    report.row(f"{without}: first TSG to class, median", median(times), "ms", target=f"<= {WITHIN_MS}")
    report.row(f"{without}: first TSG to class, p90", percentile(times, 90), "ms")
    report.row(f"{without}: first TSG to class, longest", max(times), "ms")
    for step in next((line["legs"] for line in watched if line["legs"]), ()):
        taken = median(line["legs"][step] for line in watched if step in line["legs"])
        report.row(f"{without}: of that, from the first TSG until {_STEPS[step]}, median", taken, "ms")
    waited = median(line["waited_ms"] for line in births if not line["observers"])
    report.row(f"{where}: without observers, a look every 0.25 s: context made to class, median", waited, "ms")
    heard_of = median(line["waited_ms"] for line in watched)
    report.row(f"{where}: with them, context made to class, median", heard_of, "ms", baseline=waited)
    ended = [line["status"] for line in lines if line["event"] == "ended"]
    report.row(f"{where}: daemons that ended well", ended.count(0), "daemons", target="== 2")
