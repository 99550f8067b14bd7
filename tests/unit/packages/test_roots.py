# SPDX-License-Identifier: Apache-2.0
"""The packages in fresh roots of Debian 12 and 13: installed, upgraded over the version before, removed, purged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from detshare.tools import spdx
from detshare.tools.release import versions
from tests import patience
from tests.debian import packages
from tests.debian.roots import SUITES, Root, skip_without
from tests.unit.builds import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.rest]
VERSION = versions.said(ROOT)["dkms.conf"]
CONFIG = "etc/detshare/detshare.toml"
COMMANDS = ("detshare", "detshare-ctl", "detshare-sim", "detshare-top", "detshare-trace", "detshared")
# dkms brings a compiler: what the module's package does is shown with it in a guest (tests/vm/test_packages.py)
INSTALL = "cd /tmp/debs && apt-get install --yes --no-install-recommends ./detshare_*.deb ./detshare-bench_*.deb"


@pytest.mark.parametrize("release", SUITES)
def test_a_root_gets_them_keeps_its_settings_and_is_left_clean(
    release: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("mmdebstrap", "unshare")
    new, old = packages.debs(tmp_path_factory), packages.older(tmp_path_factory)
    root = Root(release, tmp_path / "root")
    root.does("apt-get update --quiet")
    # what they need first, so that what they themselves leave can be told
    shutil.copytree(old, root.folder / "tmp/debs")
    root.does(INSTALL)
    root.does("dpkg --purge detshare-bench detshare")
    before = root.files()

    root.does(INSTALL)
    assert packages.BEFORE in root.does("detshare-ctl version")
    edited = (root.folder / CONFIG).read_text().replace('log_level = "info"', 'log_level = "debug"')
    (root.folder / CONFIG).write_text(edited)
    shutil.rmtree(root.folder / "tmp/debs")
    shutil.copytree(new, root.folder / "tmp/debs")
    # its defaults changed too: without the option dpkg asks, and nobody answers here
    assert root.run(INSTALL).returncode == 100
    root.does(f"{INSTALL} -o Dpkg::Options::=--force-confold")
    assert root.does("dpkg --audit") == ""
    assert VERSION in root.does("detshare-ctl version")
    assert (root.folder / CONFIG).read_text() == edited
    assert "[park]" in (root.folder / f"{CONFIG}.dpkg-dist").read_text()
    settings = json.loads(root.does("detshare-ctl config show --json"))
    assert settings["daemon"]["log_level"] == "debug"
    assert settings["park"]["arena"] == "50%"
    is_whole(root)
    assert steered(root) == {"1000": "high", "1001": "-", "1002": "-"}

    root.does("apt-get remove --yes detshare detshare-bench")
    assert (root.folder / CONFIG).is_file()
    assert not (root.folder / "usr/bin/detshared").exists()
    root.does("apt-get purge --yes detshare detshare-bench")
    assert root.files() - before == set()
    assert root.run("getent group detshare").returncode == 2


@pytest.mark.parametrize("release", SUITES)
def test_a_root_gets_them_from_nothing(release: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    skip_without("mmdebstrap", "unshare")
    new = packages.debs(tmp_path_factory)
    root = Root(release, tmp_path / "root")
    root.does("apt-get update --quiet")
    shutil.copytree(new, root.folder / "tmp/debs")
    root.does(INSTALL)
    is_whole(root)
    assert steered(root) == {"1000": "high", "1001": "-", "1002": "-"}


def is_whole(root: Root) -> None:
    """Commands, pages, unit, folders, group and private packages are there, and of this version."""
    for command in COMMANDS:
        root.does(f"{command} --help >/dev/null && test -s /usr/share/bash-completion/completions/{command}")
        root.does(f"ls /usr/share/man/man[18]/{command}.[18].gz")
    root.does("systemd-analyze verify --man=no detshared.service")
    assert root.run("systemctl is-enabled detshared").stdout.strip() == "enabled"
    assert root.does("stat -c '%a %U' /etc/detshare/detshare.toml /run/detshare").split() == [
        "644",
        "root",
        "711",
        "root",
    ]
    assert "detshare" in root.does("getent group detshare")
    root.does("detshare-ctl config check && detshare bench --help >/dev/null && detshare demo --help >/dev/null")
    # what Debian has not in the version that serves comes from us, to us alone
    assert "/private/" in root.does(
        "python3 -c 'import detshare.ctl.netlink.link, pyroute2, pynvml; print(pyroute2.__file__, pynvml.__file__)'"
    )
    assert root.run("python3 -c 'import detshare; detshare.Client; import pyroute2'").returncode == 1


def steered(root: Root) -> dict[str, str]:
    """PID -> class, after a daemon of the package on the model was asked to put the first program in front."""
    said = root.does(
        "detshared --backend model --run-dir /tmp/run --log-level error & export DETSHARE_RUN_DIR=/tmp/run\n"
        "until detshare-ctl policy show >/dev/null 2>&1; do kill -0 $! || exit 1; sleep 0.2; done\n"
        "detshare-ctl set-priority 1000 high >&2 && detshare-ctl ps && kill $! && wait $!"
    )
    lines = (line.split() for line in said.splitlines())
    return {words[0]: words[2] for words in lines if len(words) > 5 and words[0] in ("1000", "1001", "1002")}


def test_the_module_has_all_that_its_build_reads(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kbuild reads kmod/ alone. That DKMS builds it is shown in a machine."""
    deb = next(packages.debs(tmp_path_factory).glob("detshare-dkms_*.deb"))
    patience.run(["dpkg-deb", "-x", deb, tmp_path], check=True)
    source = tmp_path / f"usr/src/detshare-{VERSION}"
    found = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    tracked = {str(path) for path in spdx.sources(ROOT) if path.parts[0] == "kmod"}
    assert found == {"Kbuild", "dkms.conf", *tracked}
    assert f'PACKAGE_VERSION="{VERSION}"' in (source / "dkms.conf").read_text()
