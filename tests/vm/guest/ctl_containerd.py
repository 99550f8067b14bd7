# SPDX-License-Identifier: Apache-2.0
"""Pods by containerd's CRI, in the root on the guest's disk: their containers are held to their claims.

Real runtime, kubelet double: containerd, runc, the module, the daemon and the driver are real.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.core.errors import ControlError
from tests.patience import until as comes_true
from tests.vm.guest.ctl_kubernetes import ROOT, driver, limit, registered, tmp_path
from tests.vm.guest.ctl_sched import RUN, Daemon

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/kubernetes"))

from cluster import Cluster
from cri import IMAGE, Runtime
from node import World, until

__all__ = ["tmp_path"]  # a fixture

DISK = Path("/run/detshare/root")
NO_MEMORY = 0x51
CONFIG = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    subprocess.run(["vm-root", "mkdir", "-p", "/etc/containerd", "/etc/cdi"], check=True)
    (DISK / "etc/containerd/config.toml").write_text(CONFIG)
    for name, text in (("hosts", "127.0.0.1 localhost\n"), ("resolv.conf", "")):  # what each sandbox gets a copy of
        (DISK / "etc" / name).write_text(text)
    socket, log = DISK / "run/containerd/containerd.sock", tmp_path / "containerd.log"
    # in a chroot alone, runc's exec would enter the root of the mount namespace, which is the guest's
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    script = f"cd {DISK} && pivot_root . mnt && exec chroot . /usr/bin/env {path} containerd"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with log.open("ab") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        try:
            ctr = ["vm-root", "ctr", "--namespace", "k8s.io"]
            comes_true(lambda: subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0)
            subprocess.run([*ctr, "images", "import", "/srv/pod.tar"], check=True)
            yield Runtime(socket)
        finally:
            print(log.read_text()[-6000:])
            process.kill()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.end()


def granted(text: str) -> list[int]:
    """Statuses of nvalloc's lines, but for its first."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(lines) > 1, text
    return [line["status"] for line in lines[1:]]


def test_a_container_is_held_to_the_claim_of_its_pod(daemon: Daemon, runtime: Runtime, tmp_path: Path) -> None:
    log = tmp_path / "driver.log"

    async def whole() -> None:
        version = await runtime.ask("Version", version="v1")
        assert (version.runtime_name, version.runtime_version[:4]) == ("containerd", "1.7.")
        w = World(tmp_path, Cluster(), ROOT, RUN)
        w.cdi = (DISK / "etc/cdi", DISK / "run/cdi")
        async with w.cluster.serving():
            with driver(w, log):
                await registered(w, log)
                await until(lambda: w.cluster.slices, said=log.read_text)
                device = w.cluster.slices[0]["spec"]["devices"][0]["name"]
                pod, cgroup = w.pod(systemd=False)
                claim = w.claim("a", pod, devices=(device,), consumed={"memory": "512Mi", "share": "30"})
                ((name,),) = (await w.kubelet.prepare(claim)).values()
                sandbox, container = await runtime.start(pod, cgroup, IMAGE, [name])
                assert await runtime.run(container, "echo $DETSHARE_CLAIM") == (0, "default/a\n")
                asks = "printf '300m\\n300m\\n' | nvalloc"
                assert granted((await runtime.run(container, asks))[1]) == [0, NO_MEMORY]
                await w.cluster.change("a", memory="400Mi")
                await until(lambda: limit(cgroup) == 400, said=log.read_text)
                asks = "printf '300m\\n50m\\n100m\\n' | nvalloc"
                assert granted((await runtime.run(container, asks))[1]) == [0, 0, NO_MEMORY]
                # a pod without a claim has no GPU at all, and one whose claim is not prepared does not start
                other, beside = w.pod(systemd=False)
                bare, without = await runtime.start(other, beside, IMAGE, [])
                assert (await runtime.run(without, "echo 1m | nvalloc"))[0] != 0
                with pytest.raises(ControlError, match="unresolvable CDI devices"):
                    await runtime.start("0" * 36, beside, IMAGE, [name.replace("claim-", "claim-0")])
                await runtime.remove(bare)
                await runtime.remove(sandbox)
                await w.kubelet.unprepare(claim)
                assert limit(cgroup) == 0

    asyncio.run(whole())
