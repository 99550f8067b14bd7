# SPDX-License-Identifier: Apache-2.0
"""NVML keeps the last sample of a GPU on which nobody computes any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.rm.nvml import SILENT_S, Nvml


class Board:
    """What stands in for pynvml: one GPU with the samples that it is given."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int, int]] = []

    def nvmlDeviceGetComputeRunningProcesses(self, _device: object) -> list[Any]:
        return []

    def nvmlDeviceGetProcessUtilization(self, _device: object, _since: int) -> list[Any]:
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
