# SPDX-License-Identifier: Apache-2.0
"""podman and crun in a machine that boots Debian 13: the image of the daemon, and containers in cgroups of systemd.

The driver is the simulated one, with detshare.ko; images and containers are made as docs/use/containers.md says. Level
model.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from detshare.ctl.core import classes
from detshare.tools.release import versions
from tests.debian import guest, images, packages
from tests.debian.roots import Root, skip_without
from tests.unit.builds import ROOT
from tests.unit.pages import Session
from tests.vm.guest.sched_tools import LEVEL, SLICE
from tests.vm.test_containers import ENGINE, fill, granted, install
from tests.vm.test_kmod import clients
from tests.vm.test_package_upgrade import GIB, NO_MEMORY, ordered, start, take

__all__ = ["clients"]  # a fixture

VERSION: Final = versions.said(ROOT)["dkms.conf"]
PAGE: Final = ROOT / "docs/use/containers.md"
RUN: Final = "sudo podman run -d --name detshared --privileged --pid=host --network=host --cgroupns=host"
MOUNTS: Final = f"-v /run/detshare:/run/detshare -v /etc/detshare:/etc/detshare:ro detshare:{VERSION}"
INSIDE: Final = "sudo podman exec detshared detshare-ctl"
MIB: Final = 1 << 20


def test_the_page_has_the_command() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"\n{RUN} \\\n    {MOUNTS.replace(VERSION, 'VERSION')}\n" in text


@pytest.mark.thorough
def test_daemon_and_tenants_in_containers(
    clients: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("mmdebstrap", "unshare", "mke2fs")
    debs, image = packages.debs(tmp_path_factory), images.archive(tmp_path_factory)
    root = Root("13", tmp_path / "root", {*guest.SYSTEM, *ENGINE, "dbus"})
    install(root, debs)
    guest.inhabit(root)
    guest.compile_ahead(root, debs)
    guest.simulate(root, clients)
    fill(root.folder / "srv/rootfs", clients)
    shutil.copy(image, root.folder / "srv/image.tar")
    machine = guest.Machine(root, guest.disk(root, tmp_path / "disk"), tmp_path / "console.log")
    with machine.boot() as session:
        session.say("sudo insmod /srv/built/detshare-*.ko; sudo systemctl restart detshared")
        session.check("sudo systemctl is-active detshared", ["active"])
        session.check("sudo podman info --format '{{.Host.CgroupManager}} {{.Host.OCIRuntime.Name}}'", ["systemd crun"])
        tenants(session)
        session.say("sudo systemctl disable --now detshared 2>/dev/null")
        session.say("sudo podman load --quiet -i /srv/image.tar >/dev/null")
        daemon(session)
        session.tell("sudo systemctl poweroff")
        assert machine.ended(session) == 0
    assert guest.faults(tmp_path / "console.log") == []


def programs(session: Session, command: str = "sudo detshare-ctl") -> dict[str, Any]:
    return dict(json.loads(session.say(f"{command} ps --json")))


def tenants(session: Session) -> None:
    """A container's cgroup is a scope of systemd's; that has its class and its limit before its program runs."""
    given = "--device high:priority=high,memory=1G --device batch:priority=low,memory=512M --required"
    session.say(f"sudo detshare-ctl cdi generate --output /etc/cdi {given}")
    run = "sudo podman --cgroup-manager=systemd run --network none --rootfs"
    kept = session.say(f"{run} -d --device detshare.io/gpu=high /srv/rootfs /bin/sleep 100000").split()[-1]
    found = programs(session)
    assert (found["backend"], found["programs"]) == ("kmod", [])
    scope = f"/machine.slice/libpod-{kept}.scope"
    (order,), (account,) = found["orders"], found["accounts"]
    assert (order["kind"], order["text"], account["limit"]) == ("cgroup", "class high", GIB)
    assert order["name"] == account["name"]
    assert f"{order['name']}/".startswith(f"{scope}/")
    session.check(f"sudo systemctl is-active libpod-{kept}.scope", ["active"])
    asks = "for size in 300m 300m; do echo $size; done | nvalloc"
    said = session.say(f"{run} --rm --device detshare.io/gpu=batch /srv/rootfs /bin/sh -c '{asks}'")
    assert [each["status"] for each in granted(said)[1:]] == [0, NO_MEMORY]
    session.say(f"sudo podman rm -f -t 0 {kept}")
    session.check("sudo detshare-ctl ps --json | grep -c libpod || echo none", ["0", "none"])


def daemon(session: Session) -> None:
    """The daemon of the image: programs of the machine have from it what they have from a service."""
    busy, hog = start(session)
    session.say(f"{RUN} {MOUNTS}")
    session.say(f"until {INSIDE} ps >/dev/null 2>&1; do sleep 1; done")
    session.check("sudo systemctl is-active detshared", ["inactive"])
    session.check("sudo podman ps --format '{{.Names}} {{.Status}}'", ["detshared Up ..."])
    session.check(f"{INSIDE} set-priority {busy} high", [f"{busy}: set-priority done", "..."])
    session.say(f"{INSIDE} set-memory {hog} 1G")
    found = {each["pid"]: each for each in programs(session, INSIDE)["programs"]}
    high, seen = classes.CLASSES["high"], {"clients": sorted({each["client"] for each in found[busy]["tsgs"]})}
    assert (found[busy]["class"], found[hog]["memory_limit"]) == ("high", GIB)
    assert ordered(session, seen) == (high.slice_us, int(high.level))
    assert (take(session, "600m"), take(session, "600m")) == (0, NO_MEMORY)
    # the machine's own command finds it, for the run directory is the machine's
    assert {each["pid"] for each in programs(session)["programs"]} >= {busy, hog}
    session.check("sudo podman stop --time 60 detshared", ["detshared"])
    session.check("sudo podman inspect --format '{{.State.ExitCode}}' detshared", ["0"])
    assert ordered(session, seen) == (SLICE, LEVEL), "it was not put back as it was found"
    session.say(f"kill {busy} {hog}")
