# SPDX-License-Identifier: Apache-2.0
"""The image of the daemon: made by Debian 13's buildah from our package, and what runs in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.debian import packages
from tests.debian.roots import Root, packed, skip_without
from tests.unit.builds import ROOT

pytestmark = pytest.mark.thorough

BUILDAH = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
# buildah makes its / private, which has to be a mount for that
INSIDE = "mount --rbind / /mnt; chroot /mnt bash -euc"
MADE = "./build --root base.tar detshare_*_amd64.deb image.tar"
SAID = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}} {{.OCIv1.Config.StopSignal}}"
STEERED = """\
detshared --backend model --run-dir /run/detshare 2>/dev/null &
for try in $(seq 100); do detshare-ctl ps >/dev/null 2>&1 && break; sleep 0.2; done
detshare-ctl set-priority 1001 low; detshare-ctl ps; kill %1; wait %1; echo ended $?
"""


def test_the_image_has_the_daemon_and_the_driver_of_kubernetes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("mmdebstrap", "unshare")
    root = Root("13", tmp_path / "root", ("buildah", "netavark"))
    work = root.folder / "work"
    work.mkdir()
    shutil.copy(ROOT / "packaging/container/build", work)
    shutil.copy(packed("13"), work / "base.tar")
    for deb in packages.debs(tmp_path_factory).glob("**/detshare_*_amd64.deb"):
        shutil.copy(deb, work)
    (work / "steered").write_text(STEERED)
    # what it asks for otherwise is more than every machine allows
    (root.folder / "etc/containers/containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
    )
    script = f"""
        cd /work; {MADE}
        made=$(buildah from oci-archive:image.tar)
        buildah inspect --format "config {SAID}" $made
        buildah run $made -- bash -c "$(cat steered)"
        buildah run $made -- python3 -m detshare.ctl.kubernetes --help"""
    said = root.does(f"{INSIDE} '{script}'", BUILDAH)
    assert "\nimage.tar: detshare:" in said
    assert "\nconfig [/usr/bin/detshared] [--run-dir /run/detshare --wait-for-driver] SIGTERM" in said
    assert any(line.split()[:3] == ["1001", "0", "low"] for line in said.splitlines())
    assert "\nended 0\n" in said
    assert "Example: python3 -m detshare.ctl.kubernetes" in said
