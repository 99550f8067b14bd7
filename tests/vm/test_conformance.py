# SPDX-License-Identifier: Apache-2.0
"""Every recorded call of both traces is answered by the simulated driver as the H100's driver answered it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.replay.conformance import TRACES, convert_all
from detshare.tools.replay.run import CLIENTS, Report, build, parse


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build()
    folder = tmp_path_factory.mktemp("scripts")
    assert len(convert_all(folder)) == 2
    return folder


def replays(folder: Path) -> str:
    return " && ".join(f"{CLIENTS / 'nvreplay'} {script}" for script in sorted(folder.glob("*.nvr")))


def check(reports: list[Report]) -> None:
    assert [report.trace for report in reports] == ["h100-580-mps-client", "h100-580-runtime-greenctx"]
    for report in reports:
        assert report.agrees, "\n".join(map(str, report.mismatches))
        assert report.accepted == report.calls > 400
        assert report.checks > 2 * report.calls


@pytest.mark.parametrize(("kernel", "load"), [("6.12", False), ("6.1", True), ("6.12", True)])
def test_both_traces_are_answered_as_recorded_and_leave_nothing(
    vm: Callable[..., Any], scripts: Path, kernel: str, load: bool
) -> None:
    truth = "cat /sys/kernel/debug/nvsim/gpu0/used /sys/kernel/debug/nvsim/gpu0/objects"
    command = f"{replays(scripts)} && {truth}"
    if not load:
        command += f" && .venv/bin/python -m detshare.tools.replay {TRACES}/h100-580-runtime-greenctx.jsonl.gz"
    done = vm(command, kernel=kernel, driver="sim", load=load, mounts=[scripts])
    check(parse(done.stdout))
    assert done.returncode == 0, done.stderr
    assert "\n0\n0\n" in done.stdout, done.stdout
    assert load or "521 of 521 calls accepted with the recorded status" in done.stdout


def test_a_driver_of_another_branch_is_told_apart(vm: Callable[..., Any], scripts: Path) -> None:
    """Recorded with 580: the same words have other sizes for 550, and that must show."""
    every = replays(scripts).replace("&&", ";")
    done = vm(every, driver="sim", mounts=[scripts], driver_options=["version=550.163.01"])
    assert done.returncode == 1
    reports = parse(done.stdout)
    assert reports
    assert all(report.mismatches for report in reports)
