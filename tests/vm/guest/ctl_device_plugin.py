# SPDX-License-Identifier: Apache-2.0
"""Containers by the device-plugin API: their CDI device's hook has the kernel hold them to its class and limit.

Real runtime, kubelet double: containerd, runc, the module, the daemon and the device plugin are real. The root on
the disk is the node: DetShare's package is installed there, its daemon runs there, and runc runs the package's hook.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.client import Client
from detshare.ctl.core import classes
from detshare.ctl.core.errors import ControlError
from tests.patience import ended
from tests.patience import until as comes_true
from tests.vm.guest.ctl_containerd import DISK, NO_MEMORY, granted, runtime
from tests.vm.guest.ctl_kubernetes import ROOT, tmp_path
from tests.vm.guest.kmod_tools import MIB
from tests.vm.guest.sched_tools import tsgs

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/kubernetes"))

from cluster import Cluster
from cri import IMAGE, Runtime
from node import World, until

__all__ = ["runtime", "tmp_path"]  # fixtures

RUN = DISK / "run/detshare"
HIGH, LOW = "detshare.io/high", "detshare.io/low"
OFFERED = ("--no-dra", "--resource", "high=2", "--resource", "low=4")
"""as packaging/kubernetes/device-plugin has it"""
CONFIG = """\
[containers]
required = true
[containers.devices.high]
priority = "high"
memory = "1G"
[containers.devices.low]
priority = "low"
memory = "512M"
"""


class Service:
    """detshared of the node's package."""

    def __init__(self, log: Path) -> None:
        words = ["vm-root", "detshared", "--backend", "kmod"]
        with log.open("ab") as file:
            self.process = subprocess.Popen(words, stdout=file, stderr=file)

        def alive() -> bool:
            assert self.process.poll() is None, log.read_text()
            return Client(RUN).alive()

        comes_true(alive, said=log.read_text)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        ended(self.process)


@pytest.fixture
def service(runtime: Runtime, tmp_path: Path) -> Iterator[Service]:
    """With the specification of the node's configuration."""
    log = tmp_path / "detshared.log"
    made = Service(log)
    try:
        (DISK / "etc/detshare/detshare.toml").write_text(CONFIG)
        subprocess.run(["vm-root", "detshare-ctl", "cdi", "generate", "--output", "/etc/cdi"], check=True)
        yield made
    finally:
        made.process.send_signal(signal.SIGCONT)
        made.end()
        print(log.read_text()[-3000:])


@contextmanager
def driver(w: World, log: Path) -> Iterator[None]:
    with log.open("ab") as file, subprocess.Popen([*w.command, *OFFERED], stderr=file) as process:
        try:
            yield
        finally:
            process.kill()


def health(w: World) -> dict[str, set[str]]:
    return {resource: set(devices.values()) for resource, devices in w.manager.devices.items()}


def seen() -> dict[str, Any]:
    return dict(Client(RUN).programs())


def asks(*sizes: str) -> str:
    return f"for size in {' '.join(sizes)}; do echo $size; done | nvalloc"


def test_a_container_is_held_to_the_device_that_kubelet_allocates(
    runtime: Runtime, service: Service, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"

    async def whole() -> None:
        version = await runtime.ask("Version", version="v1")
        assert (version.runtime_name, version.runtime_version[:4]) == ("containerd", "1.7.")
        w = World(tmp_path, Cluster(), ROOT, RUN)
        w.cdi = (DISK / "etc/cdi", DISK / "run/cdi")
        await w.manager.start()
        with driver(w, log):
            await until(lambda: health(w) == {HIGH: {"Healthy"}, LOW: {"Healthy"}}, said=log.read_text)
            assert w.manager.devices[HIGH].keys() == {"high-0", "high-1"}
            low = await w.manager.allocate(LOW, "low-0")
            assert low == ["detshare.io/gpu=low"]
            await held_to_its_limit(w, runtime, low)
            await of_its_class_from_its_first_context_on(w, runtime, service)
            # a container that is started again gets its devices from kubelet's memory; the module answers the hook
            service.end()
            await until(lambda: health(w) == {HIGH: {"Unhealthy"}, LOW: {"Unhealthy"}}, said=log.read_text)
            sandbox, container, _ = await start(w, runtime, low)
            assert granted((await runtime.run(container, asks("300m", "300m")))[1]) == [0, NO_MEMORY]
            await runtime.remove(sandbox)
            # nobody is left who could hold a limit, and the node's configuration requires one
            await asyncio.to_thread(subprocess.run, ["rmmod", "detshare"], check=True)
            with pytest.raises(ControlError, match=r"no daemon answers .* it does not start \(--required\)"):
                await start(w, runtime, low)
        await w.manager.stop()

    asyncio.run(whole())


async def start(w: World, runtime: Runtime, devices: list[str]) -> tuple[str, str, str]:
    """A pod with one container that has these devices; the ids of both, and the container's cgroup."""
    pod, cgroup = w.pod(systemd=False)
    sandbox, container = await runtime.start(pod, cgroup, IMAGE, devices)
    return sandbox, container, f"{cgroup}/{container}"


async def held_to_its_limit(w: World, runtime: Runtime, devices: list[str]) -> None:
    sandbox, container, cgroup = await start(w, runtime, devices)
    before = seen()
    assert (before["backend"], before["programs"]) == ("kmod", [])
    assert [(each["name"], each["text"]) for each in before["orders"]] == [(cgroup, "class low")]
    assert [(each["name"], each["limit"], each["used"]) for each in before["accounts"]] == [(cgroup, 512 * MIB, 0)]
    assert granted((await runtime.run(container, asks("300m", "300m", "100m")))[1]) == [0, NO_MEMORY, 0]
    # another container of the same name has a limit of its own; one without a device has no GPU at all
    holding = asyncio.create_task(runtime.run(container, "(printf '500m\\n'; sleep 100000) | nvalloc"))
    await until(lambda: holding.done() or [each for each in seen()["accounts"] if each["used"] == 500 * MIB])
    other, beside, _ = await start(w, runtime, await w.manager.allocate(LOW, "low-1"))
    assert granted((await runtime.run(beside, asks("500m", "100m")))[1]) == [0, NO_MEMORY]
    assert not holding.done(), await holding
    bare, without, _ = await start(w, runtime, [])
    assert (await runtime.run(without, "echo 1m | nvalloc"))[0] != 0
    for each in (bare, other, sandbox):
        await runtime.remove(each)
    await asyncio.gather(holding, return_exceptions=True)
    await until(lambda: not seen()["orders"] and not seen()["accounts"])


async def of_its_class_from_its_first_context_on(w: World, runtime: Runtime, service: Service) -> None:
    """While the daemon stands still: who gives it its class is the kernel."""
    sandbox, container, cgroup = await start(w, runtime, await w.manager.allocate(HIGH, "high-0"))
    service.process.send_signal(signal.SIGSTOP)
    working = asyncio.create_task(runtime.run(container, "echo $$ >/pid; exec nvlatency --quiet"))
    await until(lambda: working.done() or [each for each in tsgs() if each["finished"]])
    high = classes.CLASSES["high"]
    assert (high.slice_us, int(high.level)) in {(each["slice_us"], each["level"]) for each in tsgs()}, working
    service.process.send_signal(signal.SIGCONT)
    (program,) = await until(lambda: seen()["programs"])
    assert (program["class"], program["memory_limit"]) == ("high", 1024 * MIB)
    assert (await runtime.run(container, "read pid </pid; kill $pid"))[0] == 0
    assert json.loads((await working)[1].splitlines()[-1])["event"] == "summary"
    await runtime.remove(sandbox)
    await until(lambda: not [each for each in seen()["accounts"] if each["name"] == cgroup])
