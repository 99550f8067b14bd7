# SPDX-License-Identifier: Apache-2.0
"""A tree to build from: what git knows of the checkout and what pip brings, with the same modes anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from detshare.tools import spdx
from detshare.tools.release import changes, vendored, versions
from detshare.tools.release.changes import Entry
from detshare.tools.release.errors import ReleaseError

__all__ = ["stage"]

_SHIPPED: Final = ("ctl", "ebpf", "kmod", "packaging", "runtime", "tools", "docs/use", "LICENSES")
_FILES: Final = (
    "CHANGELOG.md",
    "Kbuild",
    "MANIFEST.in",
    "README.md",
    "dkms.conf",
    "docs/glossary.md",
    "pyproject.toml",
    "setup.py",
)


def stage(root: Path, into: Path, wheels: Path, version: str | None = None) -> Entry:
    """Fill `into`, which must not be there; the entry of CHANGELOG.md that the tree is. ReleaseError."""
    asked = f"stage {root}"
    said = versions.said(root)
    if len(set(said.values())) > 1:
        told = ", ".join(f"{name} says {value}" for name, value in said.items())
        raise ReleaseError(asked, told, "make them say one version")
    try:
        names = spdx.sources(root)
    except RuntimeError as error:
        raise ReleaseError(asked, str(error), "run it in a git checkout") from error
    for name in map(str, names):
        if name in _FILES or name.startswith(tuple(f"{each}/" for each in _SHIPPED)):
            _copy(root / name, into / name)
    if version is not None:
        versions.write(into, version)
    vendored.bring(root / "packaging" / "vendored.txt", into / "vendored", wheels)
    (into / "packaging" / "debian").rename(into / "debian")
    entries = changes.read((into / "CHANGELOG.md").read_text(encoding="utf-8"))
    (into / "debian" / "changelog").write_text(changes.debian(entries), encoding="utf-8")
    _settle(into, entries[0].epoch)
    return entries[0]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _settle(folder: Path, epoch: int) -> None:
    for path in sorted(_all(folder), reverse=True):
        path.chmod(0o755 if path.is_dir() or (os.access(path, os.X_OK) and path.stat().st_mode & 0o100) else 0o644)
        os.utime(path, (epoch, epoch))


def _all(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")
