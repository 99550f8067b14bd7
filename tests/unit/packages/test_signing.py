# SPDX-License-Identifier: Apache-2.0
"""DKMS builds the module in fresh roots of Debian 12 and 13, and signs it by the machine's key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from detshare.tools.release import versions
from tests.debian import guest, packages, signing
from tests.debian.roots import SUITES, Root, skip_without
from tests.unit.builds import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.thorough]
VERSION = versions.said(ROOT)["dkms.conf"]
MODULE = "/lib/modules/*/updates/dkms/detshare.ko*"
INSTALL = "cd /tmp/debs && apt-get install --yes --no-install-recommends ./detshare-dkms_*.deb"
CHECK = f"{signing.CHECK} {MODULE}"


@pytest.mark.parametrize("release", SUITES)
def test_it_is_signed_by_the_key_that_was_there_and_else_by_one_that_is_made(
    release: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("mmdebstrap", "unshare")
    debs = packages.debs(tmp_path_factory)
    root = Root(release, tmp_path / "root", guest.SYSTEM)
    root.does("apt-get update --quiet")
    # what the check runs in; python3 is none of detshare-dkms's
    root.does("apt-get install --yes --no-install-recommends linux-headers-amd64 python3")
    assert root.run("command -v openssl").returncode == 1  # the package brings it
    shutil.copytree(debs, root.folder / "tmp/debs")
    signing.own_key(root)
    signing.give_check(root)
    own = signing.sums(root)

    root.does(INSTALL)
    assert f"detshare/{VERSION}" in root.does("dkms status")
    assert signing.sums(root) == own
    assert root.does(f"modinfo --field signer {MODULE}").strip() == signing.OWNER
    assert "successful" in root.does(CHECK)

    root.does("apt-get purge --yes detshare-dkms")
    assert root.run(f"ls {MODULE}").returncode != 0
    assert signing.sums(root) == own  # the machine's, not the package's
    shutil.copy(root.folder / signing.CERTIFICATE, root.folder / "srv/owner")
    for name in own:
        (root.folder / name).unlink()
    root.does(INSTALL)
    assert root.does(f"modinfo --field signer {MODULE}").strip() == "DKMS module signing key"
    assert "successful" in root.does(CHECK)
    assert root.run(f"{CHECK} /srv/owner").returncode != 0
