# SPDX-License-Identifier: Apache-2.0
"""What a look leaves out while nothing calls for it: counted, in the model's time."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import pytest
from turns_stage import Stage, background

from detshare.ctl.core.driver import Usage
from detshare.ctl.core.snapshot import Program, Snapshot


def asked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Of which GPUs shares are asked of NVML, from now on."""
    found: list[set[str]] = []
    usage = stage.driver.usage

    def counted(shares: Collection[str] | None = None) -> Usage:
        found.append({"all"} if shares is None else set(shares))
        return usage(shares)

    monkeypatch.setattr(stage.driver, "usage", counted)
    return found


def looks(stage: Stage, count: int) -> list[Snapshot]:
    """One a second."""
    found = []
    for _ in range(count):
        stage.run(1.0)
        found.append(stage.backend.look())
    return found


def test_beside_others_no_share_is_asked_of_nvml(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        stage.backend.set_priority(stage.start(f"low {number}", background(number)), "low")
    looks(stage, 7)
    gpus = asked(stage, monkeypatch)
    last = looks(stage, 4)[-1]
    assert gpus == [set()] * 4
    assert all(0.2 < (program.share or 0) < 0.5 for program in last.programs)


def test_the_share_of_who_is_alone_is_nvmls_in_the_very_look_that_finds_it_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        stage.backend.set_priority(stage.start(f"low {number}", background(number)), "low")
    looks(stage, 7)
    gpus = asked(stage, monkeypatch)
    stage.driver.machine.kill(stage.programs["low 1"][0])
    del stage.programs["low 1"]
    seen = looks(stage, 8)
    (first,) = [number for number, (was, now) in enumerate(pairwise(seen), 1) if not alone(was) and alone(now)]
    assert all(program.gpu_share is not None for each in seen[first:] for program in each.programs)
    assert gpus[-3:] == [{stage.gpu.info.uuid}] * 3


def alone(snapshot: Snapshot) -> bool:
    (program,) = snapshot.programs
    return any(time.alone for time in program.gpu_time)


def test_a_look_that_changes_nothing_describes_programs_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    who = stage.start("weighted", background(1))
    stage.backend.set_weight(who, 50)
    looks(stage, 5)
    count = 0
    describe = stage.backend._describe

    def counted() -> list[Program]:
        nonlocal count
        count += 1
        return describe()

    monkeypatch.setattr(stage.backend, "_describe", counted)
    (last,) = looks(stage, 1)
    assert count == 1
    # what somebody else set is put back, and shown as it is then
    tsg = next(tsg for tsg in stage.gpu.tsgs if tsg.runlist == 0)
    slices = [t.slice_us for t in last.programs[0].compute]
    tsg.slice_us = 12_345
    seen = looks(stage, 2)
    assert count == 4
    assert [t.slice_us for each in seen for t in each.programs[0].compute] == 2 * slices
    assert tsg.slice_us == slices[0]
