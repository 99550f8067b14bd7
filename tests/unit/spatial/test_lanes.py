# SPDX-License-Identifier: Apache-2.0
"""In which lane `--lane auto` puts a program beside those that run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.core import procfs
from detshare.runtime.admission import Admission
from detshare.runtime.profiles import BUCKETS, Profile, Profiles, key
from detshare.runtime.reflexes import Desired
from detshare.runtime.runs import Run

SHORT, LONG, NEW = ["python", "short.py"], ["python", "long.py"], ["python", "new.py"]


def _run(klass: str, lane: str) -> Run:
    pid = os.getppid()
    return Run(pid, procfs.start_time(pid) or 0, 0, "other", "x", "x", lane == "temporal", Desired(klass))


def _lane(folder: Path, command: list[str], klass: str, *others: Run) -> tuple[str, str]:
    profiles = Profiles(folder / "profiles")
    for each, bucket in ((SHORT, 14), (LONG, 21)):
        profiles.add(key(each), Profile(tuple(100 * (n == bucket) for n in range(BUCKETS))))
    tenants: Any = SimpleNamespace(runs=lambda: list(others), announce=lambda run: None)
    mps: Any = SimpleNamespace(make_ready=lambda *args: "", environment={})
    body = {"run": command, "lane": "auto", "class": klass, "sm": None, "memory": None, "tenant": ""}
    admission = Admission(tenants, mps, threading.Lock(), profiles, lambda *args: [])
    found = admission.answer(json.dumps(body).encode(), os.getpid(), 0, 0)
    return found["lane"], found["why"]


@pytest.mark.parametrize(
    ("command", "klass", "other", "where", "lane"),
    [
        (SHORT, "low", "", "", "spatial"),
        (SHORT, "low", "high", "temporal", "temporal"),  # on an H200 a graph's p99 was 986 ms beside such a one
        (SHORT, "low", "high", "spatial", "spatial"),
        (SHORT, "low", "low", "temporal", "temporal"),  # on an H200 one had 1.2 of 46 steps/s across the lanes
        (SHORT, "high", "high", "temporal", "spatial"),
        (LONG, "high", "", "", "temporal"),
        (LONG, "high", "low", "spatial", "spatial"),
        (LONG, "high", "high", "spatial", "temporal"),
        (LONG, "low", "low", "spatial", "spatial"),
        (LONG, "low", "high", "spatial", "temporal"),
        (SHORT, "normal", "low", "temporal", "temporal"),
        (NEW, "high", "low", "spatial", "temporal"),  # nothing is known of it: it is watched first
    ],
)
def test_who_runs_at_once_is_in_one_lane(
    command: list[str], klass: str, other: str, where: str, lane: str, tmp_path: Path
) -> None:
    others = [_run(other, where)] if other else []
    found, why = _lane(tmp_path, command, klass, *others)
    assert found == lane
    alone, _ = _lane(tmp_path, command, klass)
    if alone != lane:
        assert f"is in the {lane} lane" in why


def test_between_programs_of_both_lanes_its_own_runs_decide(tmp_path: Path) -> None:
    both = _run("low", "spatial"), _run("low", "temporal")
    assert _lane(tmp_path, LONG, "low", *both)[0] == "temporal"
    assert _lane(tmp_path, SHORT, "high", *both)[0] == "spatial"
