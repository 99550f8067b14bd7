# SPDX-License-Identifier: Apache-2.0
"""Every recorded call of both traces is answered by the simulated driver as the H100's driver answered it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.replay.conformance import TRACES, convert_all
from detshare.tools.replay.run import CLIENTS, Report, build, parse
from tests.vm.conftest import results, steps


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


TRUTH = "cat /sys/kernel/debug/nvsim/gpu0/used /sys/kernel/debug/nvsim/gpu0/objects"


def test_both_traces_are_answered_as_recorded_and_leave_nothing_on_6_1(vm: Callable[..., Any], scripts: Path) -> None:
    done = vm(f"{replays(scripts)} && {TRUTH}", kernel="6.1", driver="sim", load=True, mounts=[scripts])
    check(parse(done.stdout))
    assert done.returncode == 0, done.stderr
    assert "\n0\n0\n" in done.stdout, done.stdout


def test_both_traces_are_answered_as_recorded_and_leave_nothing(vm: Callable[..., Any], scripts: Path) -> None:
    """Without the module and with it; and a driver of another branch is told apart."""
    work = f"{replays(scripts)} && {TRUTH}"
    commands = steps(
        bare=f"vm-load driver && {work}",
        command=f".venv/bin/python -m detshare.tools.replay {TRACES}/h100-580-runtime-greenctx.jsonl.gz",
        loaded=f"vm-load module && {work}",
        # recorded with 580: the same words have other sizes for 550, and that must show
        other=f"vm-load -r module && vm-load -r driver && vm-load driver version=550.163.01 && "
        f"{replays(scripts).replace('&&', ';')}",
    )
    done = vm(commands, driver="sim", load=True, order="by-hand", mounts=[scripts], timeout=300)
    assert done.returncode == 0, done.stderr
    found = results(done.stdout)
    for name in ("bare", "loaded"):
        check(parse(found[name].text))
        assert found[name].status == 0, done.stderr
        assert found[name].text.endswith("\n0\n0\n"), found[name].text
    assert "521 of 521 calls accepted with the recorded status" in found["command"].text
    reports = parse(found["other"].text)
    assert found["other"].status == 1
    assert reports
    assert all(report.mismatches for report in reports)
