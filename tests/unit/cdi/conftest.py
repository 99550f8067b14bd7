# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from detshare.ctl.cdi.machine import Machine

DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"


@pytest.fixture
def machine() -> Machine:
    """One with two GPUs."""
    return Machine(
        gpus={0: "/dev/nvidia0", 1: "/dev/nvidia1"},
        control=("/dev/nvidiactl", "/dev/nvidia-uvm"),
        driver=((DRIVER, "/usr/lib/x86_64-linux-gnu/libcuda.so.1"), (DRIVER, DRIVER)),
        library="/usr/lib/python3/dist-packages/detshare/runtime/libdetshare.so",
    )
