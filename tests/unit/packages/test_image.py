# SPDX-License-Identifier: Apache-2.0
"""The image of the daemon: made by Debian 13's buildah from our package, and what runs in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.debian import images, packages
from tests.debian.roots import skip_without

pytestmark = pytest.mark.thorough

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
    builder = images.Builder(tmp_path / "root", packages.debs(tmp_path_factory))
    (builder.work / "steered").write_text(STEERED)
    said = builder.does(f"""{images.MADE}
        made=$(buildah from oci-archive:image.tar)
        buildah inspect --format "config {SAID}" $made
        buildah run $made -- bash -c "$(cat steered)"
        buildah run $made -- python3 -m detshare.ctl.kubernetes --help""")
    assert "\nimage.tar: detshare:" in said
    assert "\nconfig [/usr/bin/detshared] [--run-dir /run/detshare --wait-for-driver] SIGTERM" in said
    assert any(line.split()[:3] == ["1001", "0", "low"] for line in said.splitlines())
    assert "\nended 0\n" in said
    assert "Example: python3 -m detshare.ctl.kubernetes" in said
