# SPDX-License-Identifier: Apache-2.0
"""How long a source file may be; one that a tool writes says so in its first lines, and counts not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["LINES", "check"]

LINES: Final = 500
_FOLDERS: Final = ("kmod", "ctl", "runtime", "ebpf", "tools", "tests", "packaging")
_SUFFIXES: Final = (".py", ".c", ".h", ".S", ".html", ".css", ".js", ".sh")


def check(root: Path) -> list[str]:
    """One line for each source of the checkout that is too long. [] is good."""
    found = []
    for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*") if path.suffix in _SUFFIXES):
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > LINES and not any("do not edit" in line for line in lines[:4]):
            found.append(f"{path.relative_to(root)}:{LINES + 1}: {len(lines)} lines; a file has {LINES} at most")
    return found
