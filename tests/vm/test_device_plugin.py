# SPDX-License-Identifier: Apache-2.0
"""The device-plugin API in a guest with containerd, runc and our package in Debian 13. Real runtime, kubelet double."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.debian import guest, packages
from tests.debian.roots import Root, skip_without
from tests.unit.builds import ROOT, once
from tests.vm.conftest import Completed
from tests.vm.guest.ctl_device_plugin import OFFERED
from tests.vm.test_containerd import ENGINE, image
from tests.vm.test_containers import install
from tests.vm.test_kmod import clients

__all__ = ["clients"]  # a fixture

MANIFEST = ROOT / "packaging/kubernetes/device-plugin/daemonset.yaml"


@pytest.fixture(scope="session")
def node(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the runtime, the image for it, and the package, whose hook runs there."""
    skip_without("mmdebstrap", "unshare", "mke2fs")
    debs = packages.debs(tmp_path_factory)

    def build(folder: Path) -> Path:
        root = Root("13", folder / "root", ENGINE)
        install(root, debs)
        (root.folder / "srv/pod.tar").write_bytes(image(clients))
        made = guest.disk(root, folder / "disk")
        shutil.rmtree(root.folder)
        return made

    return once(tmp_path_factory, "device-plugin", build)


def test_the_manifest_offers_the_same() -> None:
    assert f"args: [{', '.join(OFFERED)}]\n" in MANIFEST.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_containers_of_the_device_plugin_api(
    guest_pytest: Callable[..., Completed],
    clients: Path,
    node: Path,
    record_property: Callable[[str, object], None],
) -> None:
    done = guest_pytest(
        "tests/vm/guest/ctl_device_plugin.py",
        driver="sim",
        load=True,
        timeout=1800,
        disk=node,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    record_property("tests in the guest that pass (real runtime, kubelet double)", int(passed[1]))
