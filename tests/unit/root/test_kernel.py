# SPDX-License-Identifier: Apache-2.0
"""The driver's own side where a container shows a part of the machine's GPUs: whose programs, whose switch log."""

from __future__ import annotations

from typing import Any

import pytest

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import Gpu, NotAllowed, Opener, ProcessId
from detshare.ctl.rm import kernel
from detshare.ctl.rm.fecs import OtherGpu

HERE = Gpu("GPU-2", 2, "H100", "0000:00:08.0", 0)
BOUND = ["0000:00:06.0", "0000:00:07.0", "0000:00:08.0", "0000:00:09.0"]


def opener(pid: int, *minors: int) -> Opener:
    """A process that holds /dev/nvidiactl and these GPUs."""
    fds = tuple((10 + minor, minor) for minor in minors)
    return Opener(ProcessId(pid, 1), 1, "train", "train", "root", "/", "", (3,), fds, 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> kernel.KernelDriver:
    """A driver with four GPUs, of which /proc shows the third."""
    monkeypatch.setattr(procfs, "driver_version", lambda: "580.159.04")
    monkeypatch.setattr(procfs, "gpus", lambda: [HERE])
    monkeypatch.setattr(procfs, "bound", lambda: BOUND)
    found = kernel.KernelDriver()
    monkeypatch.setattr(found.nvml, "memory_total", dict)
    return found


def test_programs_of_other_gpus_are_another_daemons(
    driver: kernel.KernelDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has no GPU yet, or only /dev/nvidia-modeset beside it, may still become ours."""
    there = [opener(1, 2), opener(2, 3), opener(3), opener(4, 0, 2), opener(5, procfs.MODESET_MINOR)]
    monkeypatch.setattr(driver._sweep, "openers", lambda clients: there)
    assert [each.id.pid for each in driver.openers()] == [1, 3, 4, 5]
    monkeypatch.setattr(driver, "_gpus", [])
    assert len(driver.openers()) == 5


def logs(answers: dict[int, str], asked: list[int]) -> Any:
    """FecsLog on a driver whose devices have these UUIDs; "" is refused."""

    def made(abi: object, minor: int, uuid: str, instance: int) -> tuple[int, int]:
        asked.append(instance)
        if not answers[instance]:
            raise NotAllowed(f"making a device of GPU {minor}: refused")
        if answers[instance] != uuid:
            raise OtherGpu(f"device {instance} is {answers[instance]}")
        return minor, instance

    return made


@pytest.mark.parametrize(
    ("answers", "order"),
    [
        ({0: "GPU-0", 1: "GPU-1", 2: "GPU-2", 3: "GPU-3"}, [2]),
        ({0: "GPU-3", 1: "GPU-2", 2: "GPU-1", 3: "GPU-0"}, [2, 0, 1]),
        ({0: "", 1: "", 2: "", 3: "GPU-2"}, [2, 0, 1, 3]),
    ],
)
def test_the_uuid_says_which_device_has_the_log(
    driver: kernel.KernelDriver, monkeypatch: pytest.MonkeyPatch, answers: dict[int, str], order: list[int]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernel, "FecsLog", logs(answers, asked))
    assert driver.switch_log(HERE) == (2, order[-1])
    assert asked == order


def test_what_stops_the_log_is_said(driver: kernel.KernelDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal tells more than a device that was another one."""
    for answers, words in (
        ({0: "GPU-0", 1: "GPU-1", 2: "", 3: "GPU-3"}, "refused"),
        (dict.fromkeys(range(4), "GPU-9"), "device 2 is GPU-9"),
    ):
        monkeypatch.setattr(kernel, "FecsLog", logs(answers, []))
        with pytest.raises(NotAllowed, match=words):
            driver.switch_log(HERE)
