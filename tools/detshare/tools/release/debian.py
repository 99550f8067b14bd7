# SPDX-License-Identifier: Apache-2.0
"""Debian packages of a staged tree, by dpkg-buildpackage, and what lintian says of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from detshare.tools.release.errors import ReleaseError

__all__ = ["build", "lint", "missing"]

_ASKED: Final = "build the Debian packages"


def missing(tree: Path) -> list[str]:
    """What of the tree's build dependencies is not installed; ["dpkg-dev"] where dpkg itself cannot say."""
    if shutil.which("dpkg-checkbuilddeps") is None or shutil.which("dpkg-buildpackage") is None:
        return ["dpkg-dev", "debhelper"]
    done = subprocess.run(["dpkg-checkbuilddeps"], cwd=tree, capture_output=True, text=True, check=False, env=_plain())
    if done.returncode == 0:
        return []
    told = done.stderr.partition("dependencies: ")[2]
    names = re.sub(r"\([^)]*\)", "", told).split()
    provided = {"debhelper-compat": "debhelper", "dh-sequence-dkms": "dh-dkms", "dh-sequence-python3": "dh-python"}
    return sorted({provided.get(each, each) for each in names})


def build(tree: Path, epoch: int, log: Path) -> list[Path]:
    """The packages and their source, beside the tree; `log`: where the build's words go. ReleaseError."""
    if lacking := missing(tree):
        stopped = f"not installed: {', '.join(lacking)}"
        raise ReleaseError(_ASKED, stopped, f"as root: apt-get install --no-install-recommends {' '.join(lacking)}")
    environment = {**_plain(), "SOURCE_DATE_EPOCH": str(epoch), "DEB_BUILD_OPTIONS": "noautodbgsym nocheck parallel=2"}
    with log.open("w") as out:
        command = ["dpkg-buildpackage", "--no-sign", "--build=full", "--buildinfo-option=--always-include-path"]
        done = subprocess.run(
            command, cwd=tree, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, env=environment
        )
    if done.returncode:
        last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-30:]
        raise ReleaseError(_ASKED, "\n".join(["it ended with", *last]), f"read {log}")
    return sorted(path for path in tree.parent.iterdir() if path.suffix in {".deb", ".dsc", ".xz", ".changes"})


def lint(what: Path) -> str:
    """What lintian says of a .deb, a .dsc or a .changes file; empty where it is clean. ReleaseError without lintian."""
    if shutil.which("lintian") is None:
        raise ReleaseError("check the Debian packages", "lintian is not installed", "as root: apt-get install lintian")
    command = ["lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error,warning", str(what)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_plain())
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()


def _plain() -> dict[str, str]:
    """An environment that says nothing of who builds, and when, where and in which tongue."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    # a checkout's .venv on the path would build with its Python instead of the distribution's
    kept["PATH"] = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC", "DEB_BUILD_TIMESTAMP": "0"}
