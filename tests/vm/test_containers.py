# SPDX-License-Identifier: Apache-2.0
"""podman and crun of Debian 13 in a guest, with DetShare's package, detshare.ko and the simulated driver.

A container asks for a device of ours by name; its cgroup is a tenant from before its program starts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.cdi.spec import INSIDE
from detshare.ctl.core import classes
from detshare.tools.vm import initramfs
from tests.debian import guest, packages
from tests.debian.roots import Root, skip_without
from tests.unit.builds import once
from tests.vm.conftest import TOP, Completed, Step, results
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

pytestmark = pytest.mark.thorough

ENGINE = ("conmon", "crun", "kmod", "podman")
SCRIPT = TOP / "tests/vm/guest/containers.sh"
NO_MEMORY = 0x51
MIB = 1 << 20


def install(root: Root, debs: Path) -> None:
    """The daemon's package, with what it depends on."""
    folder = root.folder / "tmp/debs"
    shutil.copytree(debs, folder)
    root.does("apt-get update --quiet")
    root.does("cd /tmp/debs && apt-get install --yes --no-install-recommends ./detshare_*.deb")
    shutil.rmtree(folder)


def fill(rootfs: Path, clients: Path) -> None:
    """What a container sees: a shell, and programs for the simulated driver; all of them static."""
    (rootfs / "bin").mkdir(parents=True)
    (rootfs / "tmp").mkdir()
    shutil.copy(initramfs.busybox(), rootfs / "bin/busybox")
    for name in ("sh", "sleep", "printf", "true"):
        (rootfs / "bin" / name).symlink_to("busybox")
    for name in ("nvalloc", "nvlatency"):
        shutil.copy(clients / name, rootfs / "bin" / name)


def fill_linked(rootfs: Path, root: Path) -> None:
    """One whose shell is linked against glibc: what is preloaded is loaded there."""
    folder = "usr/lib/x86_64-linux-gnu"
    for name in ("usr/bin/cat", "usr/bin/sh", f"{folder}/libc.so.6", f"{folder}/ld-linux-x86-64.so.2"):
        (rootfs / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, rootfs / name)
    (rootfs / "bin").symlink_to("usr/bin")
    (rootfs / "lib64").symlink_to(folder)


@pytest.fixture(scope="session")
def disk(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image of a root with engine, package and containers' files."""
    skip_without("mmdebstrap", "unshare", "mke2fs")
    debs = packages.debs(tmp_path_factory)

    def build(folder: Path) -> Path:
        root = Root("13", folder / "root", ENGINE)
        install(root, debs)
        fill(root.folder / "srv/rootfs", clients)
        fill_linked(root.folder / "srv/glibc", root.folder)
        image = guest.disk(root, folder / "disk")
        shutil.rmtree(root.folder)
        return image

    return once(tmp_path_factory, "containers", build)


@pytest.fixture
def seen(disk: Path, vm_once: Callable[..., Completed]) -> dict[str, Step]:
    """Each step of the script, which one guest plays for all tests."""
    words = ["vm-root", "bash", f"/host{SCRIPT}"]
    done = vm_once("containers-steps", words, driver="sim", load=True, disk=disk, timeout=1200)
    assert done.returncode == 0, done.stderr
    return results(done.stdout)


def granted(text: str) -> list[dict[str, Any]]:
    """Lines of nvalloc."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def good(seen: dict[str, Step], *names: str) -> None:
    for name in names:
        assert seen[name].status == 0, f"{name}: {seen[name].text}"


def test_it_is_podman_and_crun_of_debian_13(seen: dict[str, Step]) -> None:
    good(seen, "versions", "begin")
    assert seen["versions"].text.startswith("podman version 5.")
    assert "crun version 1." in seen["versions"].text


def test_a_specification_is_written_that_the_engine_takes(seen: dict[str, Step]) -> None:
    good(seen, "generate", "check", "limit")
    assert json.loads(seen["file"].text)["cdiVersion"] == "0.3.0"
    assert seen["check"].text.strip() == "/etc/cdi/detshare.io-gpu.json: nothing is wrong"
    assert seen["unknown"].status != 0, "a device that is in no specification"


def test_its_limit_holds_and_is_what_its_program_is_told_that_there_is(seen: dict[str, Step]) -> None:
    good(seen, "limit")
    _, first, second, info = granted(seen["limit"].text)
    assert (first["status"], second["status"]) == (0, NO_MEMORY)
    assert first["held"] == second["held"] == 300 * MIB
    assert info["total"] <= 512 * MIB


def test_its_library_is_in_its_programs_and_finds_the_daemon(seen: dict[str, Step]) -> None:
    good(seen, "library")
    assert f" {INSIDE}\n" in seen["library"].text
    assert seen["library"].text.strip().endswith(f"memory {256 * MIB}")


def test_its_cgroup_is_a_tenant_before_a_program_in_it_opens_a_gpu(seen: dict[str, Step]) -> None:
    good(seen, "late", "stands")
    before = json.loads(seen["stands"].text)
    assert before["backend"] == "kmod"
    assert before["programs"] == []
    (order,) = before["orders"]
    (account,) = before["accounts"]
    assert (order["kind"], order["text"]) == ("cgroup", "class high")
    assert (account["kind"], account["limit"], account["used"]) == ("cgroup", 1024 * MIB, 0)
    assert account["name"] == order["name"]
    assert "libpod-" in order["name"]


def test_its_first_context_has_its_class_while_the_daemon_stands_still(seen: dict[str, Step]) -> None:
    good(seen, "born", "runs")
    header, *lines = (line.split() for line in seen["born"].text.splitlines())
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    high = classes.CLASSES["high"]
    assert (str(high.slice_us), str(int(high.level))) in {(row["slice_us"], row["level"]) for row in rows}
    (program,) = json.loads(seen["runs"].text)["programs"]
    assert (program["class"], program["memory_limit"]) == ("high", 1024 * MIB)


def test_nothing_of_it_is_left(seen: dict[str, Step]) -> None:
    good(seen, "ended", "stop")


def test_without_a_daemon_the_hook_asks_the_module(seen: dict[str, Step]) -> None:
    good(seen, "alone")
    _, first, second, _ = granted(seen["alone"].text)
    assert (first["status"], second["status"]) == (0, NO_MEMORY)


def test_where_nobody_can_hold_a_limit_it_does_not_start_if_that_was_asked(seen: dict[str, Step]) -> None:
    good(seen, "unload")
    assert seen["closed"].status != 0
    assert granted(seen["closed"].text) == []


def test_where_nobody_can_hold_a_limit_it_starts_otherwise(seen: dict[str, Step]) -> None:
    good(seen, "open_up", "open")
    assert [each["status"] for each in granted(seen["open"].text)[1:3]] == [0, 0]
