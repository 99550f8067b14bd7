# SPDX-License-Identifier: Apache-2.0
"""The simulated driver against its own contract, in guests: it is the truth that detshare.ko is judged by."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.tools.replay.run import build
from tests.vm.conftest import Completed

TOP = Path(__file__).resolve().parents[2]
PARTS = ("objects", "calls", "memory", "doorbell", "sidedoors", "steering")
SUITE = [f"tests/vm/guest/nvsim_{name}.py" for name in PARTS]


@pytest.mark.parametrize(
    ("kernel", "version"),
    [("6.12", "580.159.04"), ("6.1", "550.163.01"), pytest.param("6.12", "580.65.06", marks=pytest.mark.thorough)],
)
def test_the_simulated_driver(guest_pytest: Callable[..., Completed], kernel: str, version: str) -> None:
    build()  # nvkick
    guest_pytest(*SUITE, kernel=kernel, driver="sim", driver_options=[f"version={version}"], timeout=300)


def test_it_is_unloaded_only_when_nobody_holds_it(vm: Callable[..., Completed]) -> None:
    """Open files pin the modules; when they are gone both can be removed, and loaded again."""
    script = (
        "exec 3<>/dev/nvidiactl 4<>/dev/nvidia-uvm; ! rmmod nvidia_uvm && ! rmmod nvidia"
        " && exec 3>&- 4>&- && vm-load -r driver && ! test -e /sys/module/nvidia"
        " && vm-load driver && cat /proc/driver/nvidia/version && vm-load -r driver"
    )
    done = vm(["bash", "-c", script], driver="sim")
    assert done.returncode == 0
    assert "580.159.04" in done.stdout


def test_a_version_that_it_does_not_have(vm: Callable[..., Completed]) -> None:
    done = vm('! insmod "$DETSHARE_VM_DRIVER_KO" version=999.1', driver="sim", order="by-hand")
    assert done.returncode == 0
    assert "no simulated driver 999.1; there are 550.163.01" in done.log


ABOUT_THE_GPU = ("CARD_INFO ", "GET_BUILD_VERSION ", "WAIT_OPEN_COMPLETE ", "REGISTER_FD ")
"""answers that tell what hardware there is, how the driver was built, or that a fake GPU never opens"""


def test_it_answers_as_the_genuine_driver(vm: Callable[..., Completed]) -> None:
    """The calls that the genuine 550.163.01 answers without a GPU, byte by byte."""
    out = TOP / "build" / "vm" / "nvclient"
    subprocess.run(["make", "-s", "-C", str(TOP / "tests" / "nvclient"), f"OUT={out}"], check=True)
    answers = []
    for named in ({"driver": "nvidia-550"}, {"driver": "sim", "driver_options": ["version=550.163.01"]}):
        done = vm([str(out / "nvraw")], kernel="6.12", **named)
        assert done.returncode == 0
        answers.append([line for line in done.stdout.splitlines() if not line.startswith(ABOUT_THE_GPU)])
    genuine, simulated = answers
    assert len(genuine) > 30
    assert simulated == genuine
