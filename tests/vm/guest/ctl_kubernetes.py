# SPDX-License-Identifier: Apache-2.0
"""Pods' cgroups as tenants of the real module; daemon and driver are real processes. Kubelet double, API double."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detshare.ctl.client import Client
from detshare.ctl.netlink import genl
from tests.vm.guest.ctl_sched import RUN, Daemon
from tests.vm.guest.kmod_tools import MIB, Hog, family, hog

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/kubernetes"))

from cluster import Cluster
from node import World, until

__all__ = ["family", "hog"]  # fixtures

ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Short enough for kubelet's sockets."""
    with tempfile.TemporaryDirectory(prefix="detshare-") as name:
        yield Path(name)


@pytest.fixture
def daemon(family: genl.DetShare, hog: Callable[..., Hog]) -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.end()


@contextmanager
def driver(w: World, log: Path) -> Iterator[None]:
    with log.open("ab") as file, subprocess.Popen(w.command, stderr=file) as process:
        try:
            yield
        finally:
            process.kill()


async def registered(w: World, log: Path, before: int = 0) -> None:
    await until(lambda: [p for p in w.kubelet.sockets() if p.stat().st_ctime_ns != before], said=log.read_text)
    await w.kubelet.register()


def limit(cgroup: str) -> int:
    accounts = Client(RUN).programs()["accounts"]
    return next((each["limit"] // MIB for each in accounts if each["name"] == cgroup), 0)


def standing(cgroup: str) -> str:
    orders = Client(RUN).programs()["orders"]
    return next((each["text"] for each in orders if each["name"] == cgroup), "")


def test_the_module_holds_a_pod_to_its_claim(daemon: Daemon, hog: Callable[..., Hog], tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    # without NVML the daemon knows a GPU's memory from the module, which learns it from the first program
    assert hog().take(1)

    async def whole() -> None:
        w = World(tmp_path, Cluster(), ROOT, RUN)
        async with w.cluster.serving():
            pod, cgroup = w.pod()
            container = ROOT / cgroup[1:] / "container"
            container.mkdir()
            with driver(w, log):
                await registered(w, log)
                slices = lambda: [each for each in w.cluster.slices if each["spec"]["devices"]]  # noqa: E731
                device = (await until(slices, said=log.read_text))[0]["spec"]["devices"][0]["name"]
                part = {"memory": "512Mi", "share": "30"}
                low = {"class": "low", "floorPercent": 5}
                claim = w.claim("a", pod, devices=(device,), consumed=part, of_class=low)
                await w.kubelet.prepare(claim)
                assert limit(cgroup) == 512
                assert standing(cgroup) == "class low-floor-50, weight 30"
                one = hog(preexec_fn=lambda: (container / "cgroup.procs").write_text(str(os.getpid())))
                assert one.take(300)
                assert not one.take(300), "the kernel refuses what is beyond the claim"
                await w.cluster.change("a", memory="400Mi", weight="7")
                await until(lambda: standing(cgroup).endswith("weight 7"), said=log.read_text)
                await until(lambda: limit(cgroup) == 400, said=log.read_text)
                assert not one.take(120)
                assert one.take(50)
            # killed: what stands is the kernel's
            assert not one.take(120)
            await w.cluster.change("a", memory=None)
            before = w.kubelet.sockets()[0].stat().st_ctime_ns
            with driver(w, log):
                await registered(w, log, before)
                await until(lambda: limit(cgroup) == 512, said=log.read_text)
                assert one.take(120)
                await w.kubelet.unprepare(claim)
                assert (limit(cgroup), standing(cgroup)) == (0, "")
                assert one.take(700)

    asyncio.run(whole())
