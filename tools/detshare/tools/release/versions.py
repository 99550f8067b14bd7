# SPDX-License-Identifier: Apache-2.0
"""The version of a tree: the four places that say it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from detshare.tools.release.errors import ReleaseError

__all__ = ["PLACES", "python", "said", "write"]

PLACES: Final = {
    "pyproject.toml": r'^version = "(.*)"$',
    "dkms.conf": r'^PACKAGE_VERSION="(.*)"$',
    "kmod/main.c": r'^MODULE_VERSION\("(.*)"\);$',
    "CHANGELOG.md": r"^## (\S+) - ",
}
"""file -> where its first match has the version"""
_DEBIAN: Final = re.compile(r"\d+(\.\d+)+(~[a-z0-9.]+)?")


def said(root: Path) -> dict[str, str]:
    """What each place says. ReleaseError where one says nothing."""
    found = {}
    for name, pattern in PLACES.items():
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise ReleaseError("read the version", f"{name} has no line {pattern}", "write it there")
        found[name] = match[1]
    return found


def write(root: Path, version: str) -> None:
    """Make all places of a staged tree say another one. ReleaseError."""
    if not _DEBIAN.fullmatch(version):
        stopped = "a version is numbers with dots, and perhaps ~word for one that comes before it"
        raise ReleaseError(f"call it {version}", stopped, "such as 0.2.0 or 0.2.0~rc1", usage=True)
    for name, pattern in PLACES.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        match = re.search(pattern, text, re.MULTILINE)
        assert match is not None, name
        value = python(version) if name == "pyproject.toml" else version
        path.write_text(text[: match.start(1)] + value + text[match.end(1) :], encoding="utf-8")


def python(version: str) -> str:
    """As PEP 440 has it: what comes before 0.2.0 is 0.2.0.dev0."""
    base, _, before = version.partition("~")
    number = re.sub(r"\D", "", before) or "0"
    return base if not before else f"{base}{'rc' if before.startswith('rc') else '.dev'}{number}"
