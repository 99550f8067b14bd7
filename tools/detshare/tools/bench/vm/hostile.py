# SPDX-License-Identifier: Apache-2.0
"""A hostile tenant that plays its whole list of tricks, judged by what the simulated GPU does."""

from __future__ import annotations

from collections import Counter

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import SIM_61, Machine, run
from detshare.tools.bench.vm.report import Report

PEOPLE = ("root", "user")
_WORDS = {"root": "root without CAP_SYS_ADMIN", "user": "ordinary user"}
_HARMLESS = {
    "reschedule": "on the simulated GPU, scheduling does not switch channels on again",
    "reset-channel": "the simulated driver does not have it",
    "tpc-table": "the driver refuses it to user space",
    "other-slice": "the driver asks whose the client is",
    "second-mapping-child": "the driver asks which process made the client",
    "registers": "only an administrator may map registers",
}
"""Tricks that fail without the module too, and why: they stay in the list, for another driver may do otherwise."""
_ASIDE = {"ring", "run"}
"""Goals that filter=0 does not let through: a hold holds without the filter too."""


def people(machine: Machine) -> tuple[str, ...]:
    """Who plays on a machine, first whom it is for: each of them is first somewhere."""
    return PEOPLE[::-1] if machine == SIM_61 else PEOPLE


def measure(report: Report, machine: Machine, who: tuple[str, ...] = PEOPLE, only: tuple[str, ...] = ()) -> None:
    """Rows of one machine."""

    def took(line: Line) -> None:
        report.record(line)
        if line["event"] == "trick":
            report.say(f"{line['run']}, {line['who']}: {line['name']} {'works' if line['worked'] else 'does not work'}")

    for person in who:
        words = [word for name in only for word in ("--only", name)]
        lines = run(machine, "hostile", "--who", person, *words, timeout=3600, took=took)
        _person(report, f"{machine.text}, {_WORDS[person]}", lines, whole=not only)


def _person(report: Report, what: str, lines: list[Line], *, whole: bool) -> None:
    tricks = [line for line in lines if line["event"] == "trick"]
    held = [line for line in tricks if line["run"] == "filter"]
    open_ = {line["name"] for line in tricks if line["run"] != "filter" and line["worked"]}
    # without this row a list that can do nothing would pass
    works = {line["name"] for line in held} - set(_HARMLESS)
    dull = sorted(works - open_ - _not_for(what))
    report.row(f"{what}: tricks played", len(held), "tricks", target=">= 50" if whole else "> 0")
    report.row(f"{what}: of them work without the module or its filter", len(open_ & works), "tricks", target="> 0")
    report.row(
        f"{what}: of them that should and do not ({' '.join(dull) or 'none'})", len(dull), "tricks", target="== 0"
    )
    won = sorted(line["name"] for line in held if line["worked"])
    report.row(f"{what}: tricks that work ({' '.join(won) or 'none'})", len(won), "tricks", target="== 0")
    silent = sorted(line["name"] for line in held if _must_be_told(line) and not (line["denied"] and line["named"]))
    report.row(
        f"{what}: refused without a row of denied-get and a line in the log ({' '.join(silent) or 'none'})",
        len(silent),
        "tricks",
        target="== 0",
    )
    _neighbour(report, what, lines)
    (left,) = (line for line in lines if line["event"] == "left")
    kept = sum(value for key, value in left.items() if key not in ("event", "machine"))
    report.row(f"{what}: kept by the module when all have gone", kept, "things", target="== 0")
    report.kernel_log(what, lines)
    for goal, count in sorted(Counter(line["goal"] for line in held).items()):
        report.row(f"{what}: tricks with the goal {goal}", count, "tricks")


def _not_for(what: str) -> set[str]:
    """Tricks that the driver itself does not let an ordinary user play."""
    nice = {"own-level", "own-level-channel", "realtime", "policy", "restart-runlist"}
    return nice if "ordinary user" in what else set()


def _must_be_told(line: Line) -> bool:
    """What waits at a gate or for the end of a pause does what every program does there; what is judged is told."""
    return line["goal"] not in _ASIDE and line["name"] not in _HARMLESS


def _neighbour(report: Report, what: str, lines: list[Line]) -> None:
    beside = [line for line in lines if line["event"] == "neighbour" and line["run"] == "filter"]
    report.row(
        f"{what}: times that the neighbour was hurt", sum(line["hurt"] for line in beside), "times", target="== 0"
    )
    hurt = [line for line in lines if line["event"] == "neighbour" and line["run"] != "filter" and line["hurt"]]
    report.row(f"{what}: the same without the module or its filter", len(hurt), "times", target="> 0")
    rate, alone = sum(line["beside"] for line in beside), sum(line["alone"] for line in beside)
    # the guest's two CPUs start sixty programs meanwhile; a neighbour that is held up loses far more
    report.row(f"{what}: kernels of the neighbour beside it", rate, "1/s", alone, ">= 0.7 x baseline")
