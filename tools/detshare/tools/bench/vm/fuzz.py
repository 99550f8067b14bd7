# SPDX-License-Identifier: Apache-2.0
"""Random ioctls with fixed seeds: the same answers with detshare.ko as without, and no fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report


def measure(report: Report, machine: Machine, calls: int, seeds: Sequence[int]) -> None:
    """Rows of one machine. A fault in the kernel log ends the experiment: ExperimentError."""
    words = ("--calls", calls, "--seeds", ",".join(map(str, seeds)))
    timeout = 300 + calls * len(seeds) * 2 / 200
    lines = run(machine, "fuzz", *words, timeout=timeout, took=report.record)
    fuzz = [line for line in lines if line["event"] == "fuzz"]
    bare, loaded = ([line for line in fuzz if line["loaded"] is each] for each in (False, True))
    what = machine.text
    last = {line["seed"]: line for line in loaded}.values()  # of each seed: nvfuzz counts its calls as it goes
    sent = sum(line["calls"] for line in last)
    report.row(f"{what}: random ioctls with the module", sent, "calls", target=f">= {calls * len(seeds)}")
    differ = sum(one["hash"] != other["hash"] for one, other in zip(bare, loaded, strict=True))
    text = f"{what}: of {len(loaded)} hashes over the answers, that differ from those without it"
    report.row(text, differ, "hashes", target="== 0")
    for line in (line for line in lines if line["event"] == "differs"):
        report.say(f"{what}: the first that differs: {_difference(line)}")
    answered = sum(line["ok"] for line in last)
    report.row(f"{what}: of the calls, that the driver carried out", answered, "calls", target="> 0")
    kept = [line[name] for line in lines if line["event"] == "left" for name in ("objects", "clients", "shadows")]
    report.row(f"{what}: objects, clients and shadows kept by the module", sum(kept), "things", target="== 0")
    report.kernel_log(what, lines)


def _difference(line: dict[str, Any]) -> str:
    """A line of the guest's about the first call that was answered differently, in words."""
    without, loaded = line["without"], line["loaded"]
    if not without:
        return f"none of seed {line['seed']} when its calls were repeated, so the answers are not always the same"
    answers = (f"errno {each['errno']} status {each['status']}" for each in (without, loaded))
    call = f"call {without['call']} of seed {line['seed']}, number {without['nr']} on device {without['device']}"
    return f"{call}: {' without the module, '.join(answers)} with it; asked was {without['asked']}"
