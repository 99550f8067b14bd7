# SPDX-License-Identifier: Apache-2.0
"""The simulated driver against its own contract, in guests: it is the truth that detshare.ko is judged by."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

from detshare.tools.replay.run import build
from tests.vm.conftest import Completed, results, steps
from tests.vm.test_interception import genuine

PARTS = ("objects", "calls", "memory", "doorbell", "sidedoors", "steering", "switches")
SUITE = [f"tests/vm/guest/nvsim_{name}.py" for name in PARTS]


@pytest.mark.parametrize(
    ("kernel", "version"),
    [("6.12", "580.159.04"), ("6.1", "550.163.01"), pytest.param("6.12", "580.65.06", marks=pytest.mark.thorough)],
)
def test_the_simulated_driver(guest_pytest: Callable[..., Completed], kernel: str, version: str) -> None:
    clients = build()  # nvkick
    # and what `detshare bench driver-calls` sends to a GPU acts on it
    files = [*SUITE, "tests/vm/guest/acts.py"] if kernel == "6.12" else SUITE
    named: dict[str, Any] = {"kernel": kernel, "driver_options": [f"version={version}"]}
    guest_pytest(*files, driver="sim", env={"DETSHARE_NVCLIENT": str(clients)}, timeout=600, **named)


ABOUT_THE_GPU = ("CARD_INFO ", "GET_BUILD_VERSION ", "WAIT_OPEN_COMPLETE ", "REGISTER_FD ")
"""answers that tell what hardware there is, how the driver was built, or that a fake GPU never opens"""
HELD = (
    "exec 3<>/dev/nvidiactl 4<>/dev/nvidia-uvm; ! rmmod nvidia_uvm && ! rmmod nvidia"
    " && exec 3>&- 4>&- && vm-load -r driver && ! test -e /sys/module/nvidia"
    " && vm-load driver && cat /proc/driver/nvidia/version && vm-load -r driver"
)


@pytest.fixture
def by_hand(vm_once: Callable[..., Completed]) -> Completed:
    """One guest in which the simulated driver comes and goes, for the tests below."""
    commands = steps(
        empty="! test -e /sys/module/nvidia",
        held=f"vm-load driver && bash -c {shlex.quote(HELD)}",
        unknown='! insmod "$DETSHARE_VM_DRIVER_KO" version=999.1',
        calls=f"vm-load driver version=550.163.01 && {build() / 'nvraw'} && vm-load -r driver",
    )
    return vm_once("nvsim-by-hand", commands, driver="sim", order="by-hand", timeout=300)


def test_order_by_hand_leaves_the_driver_to_the_command(by_hand: Completed) -> None:
    assert by_hand.returncode == 0
    assert results(by_hand.stdout)["empty"].status == 0


def test_it_is_unloaded_only_when_nobody_holds_it(by_hand: Completed) -> None:
    """Open files pin the modules; when they are gone both can be removed, and loaded again."""
    held = results(by_hand.stdout)["held"]
    assert held.status == 0
    assert "580.159.04" in held.text


def test_a_version_that_it_does_not_have(by_hand: Completed) -> None:
    assert results(by_hand.stdout)["unknown"].status == 0
    assert "no simulated driver 999.1; there are 550.163.01" in by_hand.log


def test_it_answers_as_the_genuine_driver(by_hand: Completed, vm_once: Callable[..., Completed]) -> None:
    """The calls that the genuine 550.163.01 answers without a GPU, byte by byte."""
    done = genuine(vm_once, "550")
    assert done.returncode == 0
    answers = [results(done.stdout)["without"].text, results(by_hand.stdout)["calls"].text]
    real, simulated = (
        [line for line in answer.splitlines() if not line.startswith(ABOUT_THE_GPU)] for answer in answers
    )
    assert len(real) > 30
    assert simulated == real
