# SPDX-License-Identifier: Apache-2.0
"""Architectures of the GPUs here, as NVML tells them: by which parts of fat binaries are chosen."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.rm.nvml import architectures


class Session:
    """Stands for pynvml; a capability of None is an error of NVML."""

    def __init__(self, *capabilities: tuple[int, int] | None) -> None:
        self.open = 0
        self._capabilities = capabilities
        self.nvmlDeviceGetCount = lambda: len(capabilities)
        self.nvmlDeviceGetHandleByIndex = lambda index: index

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCudaComputeCapability(self, device: int) -> Any:
        found = self._capabilities[device]
        if found is None:
            raise RuntimeError("NVML: not supported")
        return found


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [(((9, 0), (9, 0)), {90}), (((8, 6), (12, 1)), {86, 121}), (((9, 0), None), set()), ((), set())],
)
def test_they_are_all_known_or_none_is(
    monkeypatch: pytest.MonkeyPatch, capabilities: tuple[tuple[int, int] | None, ...], expected: set[int]
) -> None:
    session = Session(*capabilities)
    monkeypatch.setitem(sys.modules, "pynvml", session)  # type: ignore[arg-type]
    assert architectures() == expected
    assert session.open == 0


def test_without_nvml_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("libnvidia-ml.so.1 is not there")

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=refuse))  # type: ignore[arg-type]
    assert architectures() == frozenset()
