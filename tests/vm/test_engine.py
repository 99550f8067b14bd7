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
from tests.unit.builds import once
from tests.vm.conftest import results, steps

TRUTH = "cat /sys/kernel/debug/nvsim/gpu0/used /sys/kernel/debug/nvsim/gpu0/objects"


@pytest.fixture(scope="module", autouse=True)
def clients() -> Path:
    return build()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded programs as scripts, in a folder of theirs."""

    def convert(folder: Path) -> Path:
        assert len(convert_all(folder)) == 2
        return folder

    return once(tmp_path_factory, "recorded-programs", convert)


def played(vm_once: Callable[..., Any], programs: Path, kernel: str) -> Any:
    """One guest for the tests below."""
    kill = f"timeout -s KILL 1 {CLIENTS}/nvbackground --us 3000 >/dev/null; sleep 0.3; {TRUTH}"
    work = " && ".join(
        f"{CLIENTS}/nvlatency --us 1000 --seconds 2 --replay {script}" for script in sorted(programs.glob("*.nvr"))
    )
    commands = steps(
        steering=f"{CLIENTS}/nvsteer; {kill}", work=f"{work} && {CLIENTS}/nvalloc ways --size 10m && {TRUTH}"
    )
    return vm_once(f"engine-{kernel}", commands, kernel=kernel, driver="sim", mounts=[programs], timeout=240)


def lines(output: str, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


@pytest.mark.parametrize("kernel", [pytest.param("6.1", marks=pytest.mark.thorough), "6.12"])
def test_kernels_obey_doorbells_and_controls(vm_once: Callable[..., Any], programs: Path, kernel: str) -> None:
    done = played(vm_once, programs, kernel)
    assert done.returncode == 0, done.stderr
    steering = results(done.stdout)["steering"]
    checks = lines(steering.text, "check")
    assert len(checks) > 20, done.stderr
    assert [check["what"] for check in checks if not check["ok"]] == []
    assert steering.text.split()[-2:] == ["0", "0"], "a client killed in mid-work left something"
    assert steering.status == 0


def test_a_replayed_program_works_and_every_way_to_memory_is_granted(
    vm_once: Callable[..., Any], programs: Path
) -> None:
    work = results(played(vm_once, programs, "6.12").stdout)["work"]
    assert work.status == 0
    summaries = lines(work.text, "summary")
    assert len(summaries) == 2
    # one kernel every 10 ms for 2 s would be 200; a busy host starves the guest
    assert all(summary["count"] > 20 for summary in summaries)
    assert all(min(line["latency_us"]) >= 1000 for line in lines(work.text, "window") if line["count"])
    ways = {line["way"]: line for line in lines(work.text, "way")}
    assert len(ways) == 16
    # memory of the CPU's that is the GPU's own exists on other machines only
    assert ways.pop("RM_ALLOC of NV_MEMORY_EXTENDED_USER")["name"] == "NV_ERR_NOT_SUPPORTED"
    # a device file works for the clients of the control file that it is bound to
    assert ways.pop("ALLOC_MEMORY through a device file that is not bound")["name"] == "NV_ERR_INVALID_CLIENT"
    assert {way: line["name"] for way, line in ways.items() if line["status"]} == {}
    assert all(line["granted"] >= 10 << 20 for line in ways.values())
    assert work.text.split()[-2:] == ["0", "0"]
