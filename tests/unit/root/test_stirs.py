# SPDX-License-Identifier: Apache-2.0
"""Whether a look can find anything new: what the daemon asks four times a second, to look once."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root.adopt import SETTLE_S
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.looking import STILL_S
from tests.unit.root.conftest import Clock

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"


def settle(backend: RootBackend, clock: Clock) -> None:
    for _ in range(40):
        backend.look()
        backend.drain_events()
        clock.sleep(SETTLE_S / 10)
        if not backend.stirs():
            return
    raise AssertionError("it never came to rest")


def test_nothing_stirs_until_something_changes_in_the_driver(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    first = scenario.cuda_process(driver, "python3 serve.py")
    settle(backend, clock)
    process = scenario.opened_only(driver, "python3 train.py")
    assert backend.stirs()
    settle(backend, clock)
    scenario.make_context(driver, process)
    assert backend.stirs()
    settle(backend, clock)
    driver.machine.kill(first)
    assert backend.stirs()


def test_who_allocates_without_rest_is_looked_at_as_seldom(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    """A training does: four looks a second at its descriptors and a reading of all its objects in each would be for
    nothing."""
    process = scenario.cuda_process(driver, "python3 train.py")
    [(file, client), _nvml] = [(file, c.handle) for file in process.fds.values() for c in driver.rm.clients_of(file)]
    settle(backend, clock)
    stirred = reads = 0
    for number in range(80):
        row = (0x200 + number, 1, driver.abi.klass("NV01_MEMORY_LOCAL_USER"), 0)
        scenario.alloc(driver, process, file, client, row, scenario.CUDA_BASE, 0)
        clock.sleep(0.25)
        if backend.stirs():
            before = driver.questions
            backend.look()
            backend.drain_events()
            stirred, reads = stirred + 1, reads + (driver.questions - before > 100)
    assert stirred <= 30  # of 20 s, with a look a second
    assert reads <= 8
    # and a context that it makes then has descriptors of its own
    scenario.make_context(driver, process, client=(file, client), base=scenario.CUDA_BASE + 0x300)
    clock.sleep(STILL_S)
    assert backend.stirs()
    assert len(backend.look().programs[0].compute) == 2


def test_a_context_that_is_being_made_is_looked_at_until_it_is_settled(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    scenario.cuda_process(driver, "python3 serve.py")
    backend.look()
    backend.drain_events()
    assert backend.stirs()


def test_a_look_is_never_older_than_a_second(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    scenario.cuda_process(driver, "python3 serve.py")
    settle(backend, clock)
    clock.sleep(STILL_S)
    assert backend.stirs()


def test_events_are_fetched_at_once(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.cuda_process(driver, "python3 serve.py")
    settle(backend, clock)
    backend.set_priority(str(process.id.pid), "high")
    assert backend.stirs()


@pytest.mark.parametrize("name", ["h100-580-runtime-greenctx", "h100-580-mps-client"])
def test_on_an_h100_each_tsg_came_with_a_descriptor_that_stays(name: str) -> None:
    """What rare readings rest on (adopt.RESCAN_S). A number that is not given again is of a file that stayed open."""
    abi = for_version("580.159.04")
    alloc, tsg = abi.constant("NV_ESC_RM_ALLOC"), abi.klass("KEPLER_CHANNEL_GROUP_A")
    at = abi.layout("NVOS64_PARAMETERS").fields["hClass"].offset
    seen: set[int] = set()
    mapped: list[int] = []
    since: list[int] = []
    """how many were mapped when each TSG was made"""
    with gzip.open(TRACES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row.get("mmap") and row["fd"] not in seen and row["path"] != "/dev/nvidia-uvm":
                mapped.append(row["fd"])
            seen.add(row["fd"])
            made = row.get("nr") == alloc and int.from_bytes(bytes.fromhex(row["in"])[at : at + 4], "little") == tsg
            if made:
                since.append(len(mapped))
    assert len(since) == 4
    assert all(before < after for before, after in pairwise([*since, len(mapped)]))
    assert mapped == sorted(set(mapped))
