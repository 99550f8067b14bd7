# SPDX-License-Identifier: Apache-2.0
"""With detshare.ko the genuine drivers answer the same bytes, little later. In full: detshare bench interception."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench.vm import interception
from detshare.tools.bench.vm.machines import MACHINES, PROGRAMS, SIM, prepare
from detshare.tools.bench.vm.report import Report

MOST = 100_000.0
"""ns that an intercepted call may take longer, in an emulated CPU on a busy machine"""


@pytest.mark.parametrize(("machine", "order"), [("535", "driver-first"), ("550", "module-first")])
def test_answers_are_the_same_to_the_byte(vm: Callable[..., Any], tmp_path: Path, machine: str, order: str) -> None:
    prepare()
    nvraw, out = shlex.quote(str(PROGRAMS / "nvraw")), shlex.quote(str(tmp_path))
    runs = (
        f"{nvraw} >{out}/with && vm-load -r module && {nvraw} >{out}/without && vm-load module && {nvraw} >{out}/again"
    )
    where = MACHINES[machine]
    done = vm(runs, kernel=where.kernel, driver=where.driver, load=True, order=order, mounts=[tmp_path])
    assert done.returncode == 0, done.stderr
    said = {name: (tmp_path / name).read_text() for name in ("with", "without", "again")}
    assert len(said["without"].splitlines()) > 40
    assert "RM_ALLOC NV01_ROOT NVOS21" in said["without"]
    assert said["with"] == said["without"] == said["again"]


@pytest.mark.alone
def test_what_the_module_adds_to_a_call_is_measured_and_small() -> None:
    report = Report("interception", SIM.proof, "pytest (short form)")
    interception.measure(report, SIM, rounds=1, batches=15, calls=100)
    added = {row.what: row.value for row in report.rows if "added, median" in row.what}
    assert len(added) == len(interception.KINDS)
    assert all(value < MOST for value in added.values()), added
