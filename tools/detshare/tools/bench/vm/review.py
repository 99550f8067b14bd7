# SPDX-License-Identifier: Apache-2.0
"""Weaknesses that a review of the module found: what shows each, on the module of before its mends and on today's."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from detshare.tools.bench.lines import Line
from detshare.tools.bench.vm.machines import TOP, ExperimentError, Machine, run
from detshare.tools.bench.vm.report import Report
from detshare.tools.vm import builds, cache, kernels
from detshare.tools.vm.errors import VmError

BEFORE: Final = "711bb00"
"""the last commit before the first mend; its module speaks the family's messages that these tests need"""
_TESTS: Final = "tests/vm/guest"
_SHOWS: Final = ("assert", "AssertionError", "Failed")
"""how the reason of a test begins that judged what it saw, and did not stumble over what an old module lacks"""


@dataclass(frozen=True)
class Case:
    """A weakness, by its number in the review, and the guest tests that show it."""

    name: str
    text: str
    tests: tuple[str, ...]
    before: bool = True
    """whether the module of before is asked: not where it lacks what the test sets, or chance decides what is seen"""


CASES: Final = (
    Case("1", "a shut program stops the driver", ("sched_stalled.py::test_a_shut_door_does_not_stop_the_driver",)),
    Case(
        "2",
        "one process takes all places in the driver",
        ("sched_bounds.py::test_one_process_has_so_many_calls_in_the_driver",),
        before=False,
    ),
    Case("3", "HMM escapes limits", ("sched_bounds.py::test_who_is_limited_goes_without_hmm",)),
    Case(
        "4",
        "sharing a channel group switches pauses off",
        (
            "sched_bounds.py::test_who_is_managed_shares_no_channel_group",
            "sched_bounds.py::test_an_mps_object_helps_nobody_of_one_tenant",
        ),
    ),
    Case(
        "5",
        "many waits for idle channels at once",
        ("sched_bounds.py::test_waits_for_idle_channels_of_one_tenant_follow_each_other",),
        before=False,
    ),
    Case("7", "who is held moves managed memory", ("sched_managed.py::test_who_is_held_has_no_memory_moved",)),
    Case(
        "8",
        "memory on a second GPU escapes its limit",
        (
            "sched_managed.py::test_a_limit_of_the_second_gpu_holds_managed_memory",
            "kmod_far.py::test_a_limit_holds_what_hangs_below_another_device",
        ),
    ),
    Case(
        "9",
        "context buffers without bound",
        ("sched_bounds.py::test_a_limit_bounds_the_channel_groups_too",),
        before=False,
    ),
    Case(
        "10",
        "a hold goes through everybody's doorbells",
        ("sched_floods.py::test_a_hold_takes_nothing_from_programs_that_it_does_not_concern",),
    ),
    Case(
        "11",
        "a full cgroup is searched with shared locks held",
        ("sched_throttled.py::test_nobody_searches_for_memory_while_others_wait_for_its_locks",),
        before=False,
    ),
    Case("12", "rare controls name neighbours", ("kmod_reach.py::test_nobody_names_a_neighbour_in_rare_controls",)),
    Case("14", "memory of other nodes is not charged", ("sched_bounds.py::test_who_is_limited_exports_nothing",)),
    Case("15", "a doorbell moved below a lookup is found", ("kmod_lookup.py",)),
    Case(
        "18",
        "neighbours are told of",
        ("kmod_reach.py::test_who_is_managed_is_not_told_who_else_is_there",),
    ),
    Case(
        "16",
        "hooks are switched off silently",
        ("sched_stalled.py::test_hooks_cannot_be_switched_off_under_the_module",),
    ),
)


def _module_of(commit: str, kernel: str) -> Path:
    """The module of that commit, built for a kernel."""
    asked = ["git", "-C", str(TOP), "archive", commit, "Kbuild", "kmod"]
    archive = subprocess.run(asked, capture_output=True, check=False)
    if archive.returncode:
        raise ExperimentError(f"read {commit}: {archive.stderr.decode().strip()}; next: a checkout with its history")
    folder = cache.root() / "before" / f"module-{commit}"  # a name that stays: the cache knows a build by it
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder)
    try:
        return builds.build(folder, kernels.kernel(kernel)) / "detshare.ko"
    except VmError as error:
        raise ExperimentError(f"build the module of {commit}: {error}") from error


def _shows(line: Line) -> bool:
    outcome, why = str(line["outcome"]), str(line["why"])
    return outcome == "ENDLESS" or (outcome == "FAILED" and why.startswith(_SHOWS))


def measure(report: Report, machine: Machine, cases: tuple[Case, ...] = CASES) -> None:
    """Two rows a weakness."""

    def took(line: Line) -> None:
        report.record(line)
        if line["event"] == "test":
            report.say(f"{line['run']}, {line['case']}: {line['test']} {line['outcome']} {line['why']}")

    before = _module_of(BEFORE, machine.kernel)
    words = []
    for case in cases:
        words += ["--case", f"{case.name}={' '.join(f'{_TESTS}/{test}' for test in case.tests)}"]
        words += [] if case.before else ["--now-only", case.name]
    options = ("--gpus", "2", "--mount", str(before.parent))
    lines = run(machine, "review", "--before", before, *words, timeout=3600, took=took, options=options)
    for case in cases:
        played = [line for line in lines if line["event"] == "test" and line["case"] == case.name]
        what = f"{machine.text}: {case.name}, {case.text}"
        shown = [line for line in played if line["run"] == "before" and _shows(line)]
        now = [line for line in played if line["run"] == "now"]
        if case.before:
            report.row(f"{what}: tests that show it on the module of {BEFORE}", len(shown), "tests", target="> 0")
        report.row(f"{what}: tests of it now", len(now), "tests", target="> 0")
        failed = [line for line in now if line["outcome"] != "PASSED"]
        report.row(f"{what}: of them that show it now", len(failed), "tests", target="== 0")
    (left,) = (line for line in lines if line["event"] == "left")
    kept = sum(value for key, value in left.items() if key not in ("event", "machine"))
    report.row(f"{machine.text}: kept by the module when all have gone", kept, "things", target="== 0")
    report.kernel_log(machine.text, lines)
