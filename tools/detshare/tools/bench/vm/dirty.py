# SPDX-License-Identifier: Apache-2.0
"""What `dirty` reports beside what random programs and kernels wrote: nothing too little, and how much too much."""

from __future__ import annotations

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.inside.dirty import SHAPES
from detshare.tools.bench.vm.machines import Machine, run
from detshare.tools.bench.vm.report import Report

_NAMES = {
    "text": "PTX as text",
    "lz4": "PTX in a fat binary, LZ4",
    "zstd": "PTX beside machine code in a fat binary, zstd",
    "code": "machine code alone",
}


def dirty(report: Report, machine: Machine, programs: int) -> None:
    """Rows: nothing missed, and how much too much was reported, by the form of the programs' images."""
    lines = run(machine, "dirty", "--amount", programs, timeout=900 + 30 * programs, took=report.record)
    epochs = [line for line in lines if line["event"] == "epoch"]
    (lost,) = (line for line in lines if line["event"] == "lost")
    text = f"{machine.text}: "
    report.row(f"{text}epochs of random programs", len(epochs), "epochs", target=f">= {5 * programs}")
    _missed(report, f"{text}written allocations that were not reported", epochs)
    report.row(f"{text}events lost", lost["lost"], "events", target="== 0")
    exact = [line for line in epochs if not line["whole"]]
    report.row(f"{text}epochs in which all memory had to be called dirty", _share(epochs), "%")
    report.row(f"{text}bytes reported for each written, other epochs", _ratio(exact), "x")
    report.row(f"{text}bytes reported for each written, all epochs", _ratio(epochs), "x")
    for shape in SHAPES:
        which = [line for line in exact if line["shape"] == shape]
        if which:
            report.row(f"{text}bytes reported for each written, other epochs, {_NAMES[shape]}", _ratio(which), "x")
    code = [line for line in epochs if line["shape"] == "code"]
    if code:
        said = sum(bool(line["partial"]) for line in code)
        report.row(f"{text}epochs of machine code alone that were called partial", 100 * said / len(code), "%")
    kernels = [line for line in lines if line["event"] == "kernel"]
    plain = [line for line in kernels if not line["chases"]]
    report.row("random kernels in PTX", len(kernels), "kernels", target=f">= {10 * programs}")
    _missed(report, "allocations that they wrote and were not seen to", kernels)
    report.row("kernels that follow no pointer in memory, called to write anywhere", _share(plain), "%")
    understood = [line for line in plain if not line["whole"]]
    report.row("allocations seen for each written, of the others of these", _ratio(understood), "x")


def _missed(report: Report, what: str, which: list[Line]) -> None:
    report.row(what, sum(line["missed"] for line in which), "allocations", target="== 0")


def _share(which: list[Line]) -> float:
    return 100 * sum(bool(line["whole"]) for line in which) / max(1, len(which))


def _ratio(which: list[Line]) -> float:
    written, reported = (float(sum(line[name] for line in which)) for name in ("written", "reported"))
    return reported / max(1.0, written)
