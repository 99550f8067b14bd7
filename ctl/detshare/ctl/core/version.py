# SPDX-License-Identifier: Apache-2.0
"""Which build of DetShare this is, and which version of the daemon's API it speaks."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Final

__all__ = ["API", "build", "module"]

API: Final = 1
"""in the addresses of the API, /v1/...: within one number answers gain keys, and lose or change none"""


def build() -> str:
    """The version that is installed, such as "0.1.0"; "(not installed)" for sources that are merely on the path."""
    try:
        return importlib.metadata.version("detshare")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def module(file: Path = Path("/sys/module/detshare/version")) -> str | None:
    """Of the detshare.ko that is loaded; None where none is."""
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
