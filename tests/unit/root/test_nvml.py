# SPDX-License-Identifier: Apache-2.0
"""NVML keeps the last sample of a GPU on which nobody computes any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.core.driver import Instance
from detshare.ctl.rm.nvml import SILENT_S, Nvml, _is_cut


class Board:
    """What stands in for pynvml: one GPU with the samples that it is given."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int, int]] = []
        self.questions = 0

    def nvmlDeviceGetComputeRunningProcesses(self, _device: object) -> list[Any]:
        return []

    def nvmlDeviceGetProcessUtilization(self, _device: object, _since: int) -> list[Any]:
        self.questions += 1
        return [SimpleNamespace(pid=pid, timeStamp=when, smUtil=busy) for pid, when, busy in self.samples]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[Nvml, Board, list[float]]:
    now, board = [100.0], Board()
    nvml = Nvml(lambda: now[0])
    monkeypatch.setattr(nvml, "_open", lambda: board)
    monkeypatch.setattr(nvml, "_devices", [("GPU-1", object())])
    return nvml, board, now


def test_the_last_sample_of_a_gpu_that_fell_silent_counts_no_more(told: tuple[Nvml, Board, list[float]]) -> None:
    nvml, board, now = told
    board.samples = [(7, 1_000_000, 100)]
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 1.0}
    now[0] += SILENT_S
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 1.0}
    now[0] += 0.1
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 0.0}
    board.samples.append((7, 9_000_000, 40))
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 0.4}


def test_who_fell_silent_beside_another_counts_no_more(told: tuple[Nvml, Board, list[float]]) -> None:
    nvml, board, _now = told
    board.samples = [(7, 1_000_000, 100), (8, 3_000_000, 50)]
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 0.0, (8, "GPU-1"): 0.5}


def test_shares_are_asked_of_the_named_gpus_only(told: tuple[Nvml, Board, list[float]]) -> None:
    nvml, board, _now = told
    board.samples = [(7, 1_000_000, 100)]
    assert nvml.usage(()).gpu_share == nvml.usage({"GPU-2"}).gpu_share == {}
    assert not board.questions
    assert nvml.usage({"GPU-1", "GPU-2"}).gpu_share == {(7, "GPU-1"): 1.0}
    assert board.questions == 1


def test_a_sample_of_a_time_in_which_nobody_asked_is_as_old_as_its_date_says(
    told: tuple[Nvml, Board, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml, board, now = told
    monkeypatch.setattr(nvml, "_wall", lambda: now[0] + 900.0)
    board.samples = [(7, 1_000_000_000, 100)]
    nvml.usage()
    now[0] += 60.0
    board.samples = [(7, 1_055_000_000, 50)]  # five seconds old
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 0.0}
    now[0] += 60.0
    board.samples = [(7, 1_119_500_000, 50)]
    assert nvml.usage().gpu_share == {(7, "GPU-1"): 0.5}


class Cut(Board):
    """With MIG on and two instances, numbers 0 and 2; a program in each, and one that NVML puts nowhere."""

    PARTS = {0: ("MIG-a", 1, 0, "1g.10gb"), 2: ("MIG-b", 2, 0, "3g.40gb")}

    def nvmlDeviceGetMigMode(self, _device: object) -> tuple[int, int]:
        return 1, 1

    def nvmlDeviceGetMaxMigDeviceCount(self, _device: object) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, _device: object, number: int) -> Any:
        return self.PARTS[number]

    def nvmlDeviceGetUUID(self, part: Any) -> str:
        return str(part[0])

    def nvmlDeviceGetGpuInstanceId(self, part: Any) -> int:
        return int(part[1])

    def nvmlDeviceGetComputeInstanceId(self, part: Any) -> int:
        return int(part[2])

    def nvmlDeviceGetName(self, part: Any) -> str:
        return f"NVIDIA H100 80GB HBM3 MIG {part[3]}"

    def nvmlDeviceGetComputeRunningProcesses(self, _device: object) -> list[Any]:
        places = ((7, 1, 0), (8, 2, 0), (9, 0xFFFFFFFF, 0xFFFFFFFF))
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=1 << 30, gpuInstanceId=gi, computeInstanceId=ci)
            for pid, gi, ci in places
        ]

    def nvmlDeviceGetProcessUtilization(self, _device: object, _since: int) -> list[Any]:
        raise RuntimeError("Not Supported")


def test_instances_that_mig_made_and_who_is_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    board, whole = Cut(), object()
    nvml = Nvml()
    monkeypatch.setattr(nvml, "_open", lambda: board)
    monkeypatch.setattr(nvml, "_devices", [("GPU-1", object()), ("GPU-2", whole)])
    monkeypatch.setattr(nvml, "_cut", {"GPU-1": object()})
    small, large = Instance("MIG-a", "1g.10gb"), Instance("MIG-b", "3g.40gb")
    assert nvml.instances() == {"GPU-1": (small, large)}
    usage = nvml.usage()
    assert usage.instance == {(7, "GPU-1"): small, (8, "GPU-1"): large}
    assert usage.memory_bytes[9, "GPU-1"] == 1 << 30
    assert _is_cut(board, whole)
    assert not _is_cut(Board(), whole)  # a chip without MIG
