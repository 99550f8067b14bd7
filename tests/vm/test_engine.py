# SPDX-License-Identifier: Apache-2.0
"""The simulated GPU, from a client's side: doorbells, time, controls, objects freed in mid-work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.replay.conformance import convert_all
from detshare.tools.replay.run import CLIENTS, build

TRUTH = "cat /sys/kernel/debug/nvsim/gpu0/used /sys/kernel/debug/nvsim/gpu0/objects"


@pytest.fixture(scope="module", autouse=True)
def clients() -> Path:
    return build()


def lines(output: str, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_kernels_obey_doorbells_and_controls(vm: Callable[..., Any], kernel: str) -> None:
    kill = f"timeout -s KILL 1 {CLIENTS}/nvbackground --us 3000 >/dev/null; sleep 0.3; {TRUTH}"
    done = vm(f"{CLIENTS}/nvsteer; {kill}", kernel=kernel, driver="sim")
    checks = lines(done.stdout, "check")
    assert len(checks) > 20, done.stderr
    assert [check["what"] for check in checks if not check["ok"]] == []
    assert done.stdout.split()[-2:] == ["0", "0"], "a client killed in mid-work left something"
    assert done.returncode == 0, done.stderr


def test_a_replayed_program_works_and_every_way_to_memory_is_granted(vm: Callable[..., Any], tmp_path: Path) -> None:
    scripts = convert_all(tmp_path)
    work = " && ".join(f"{CLIENTS}/nvlatency --us 1000 --seconds 2 --replay {script}" for script in scripts)
    done = vm(f"{work} && {CLIENTS}/nvalloc ways --size 10m && {TRUTH}", driver="sim", mounts=[tmp_path])
    assert done.returncode == 0, done.stderr
    summaries = lines(done.stdout, "summary")
    assert len(summaries) == len(scripts)
    # one kernel every 10 ms for 2 s would be 200; a busy host starves the guest
    assert all(summary["count"] > 20 for summary in summaries)
    assert all(min(line["latency_us"]) >= 1000 for line in lines(done.stdout, "window") if line["count"])
    ways = {line["way"]: line for line in lines(done.stdout, "way")}
    assert len(ways) == 16
    # memory of the CPU's that is the GPU's own exists on other machines only
    assert ways.pop("RM_ALLOC of NV_MEMORY_EXTENDED_USER")["name"] == "NV_ERR_NOT_SUPPORTED"
    # a device file works for the clients of the control file that it is bound to
    assert ways.pop("ALLOC_MEMORY through a device file that is not bound")["name"] == "NV_ERR_INVALID_CLIENT"
    assert {way: line["name"] for way, line in ways.items() if line["status"]} == {}
    assert all(line["granted"] >= 10 << 20 for line in ways.values())
    assert done.stdout.split()[-2:] == ["0", "0"]
