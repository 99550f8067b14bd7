# SPDX-License-Identifier: Apache-2.0
"""The image of the daemon, made in a root of Debian 13 by its buildah from the package of this tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.debian import packages
from tests.debian.roots import Root, packed
from tests.unit.builds import ROOT, once

BUILDAH = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
MADE = "./build --root base.tar detshare_*_amd64.deb image.tar"
# buildah makes its / private, which has to be a mount for that
_INSIDE = "mount --rbind / /mnt; chroot /mnt bash -euc"


class Builder:
    """A root with buildah, and what MADE wants in /work."""

    def __init__(self, folder: Path, debs: Path) -> None:
        self._root = Root("13", folder, ("buildah", "netavark"))
        self.work = self._root.folder / "work"
        self.work.mkdir()
        shutil.copy(ROOT / "packaging/container/build", self.work)
        shutil.copy(packed("13"), self.work / "base.tar")
        for deb in debs.glob("**/detshare_*_amd64.deb"):
            shutil.copy(deb, self.work)
        # what it asks for otherwise is more than every machine allows
        (self._root.folder / "etc/containers/containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        )

    def does(self, script: str) -> str:
        """What lines for bash say, without the character '. AssertionError where they fail."""
        return self._root.does(f"{_INSIDE} 'cd /work; {script}'", BUILDAH)


def archive(factory: pytest.TempPathFactory) -> Path:
    """The OCI archive, once for a run of the tests."""
    debs = packages.debs(factory)

    def make(folder: Path) -> Path:
        builder = Builder(folder / "root", debs)
        builder.does(MADE)
        made = folder / "image.tar"
        shutil.move(builder.work / "image.tar", made)
        shutil.rmtree(folder / "root")
        return made

    return once(factory, "image", make)
