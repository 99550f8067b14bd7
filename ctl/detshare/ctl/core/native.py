# SPDX-License-Identifier: Apache-2.0
"""Where the C of a part lies that has Python as well (runtime, ebpf), and what is built from it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder"]


def folder(module: str, name: str) -> Path:
    """Of the part to which that module (its __file__) belongs: beside the module where a wheel has brought the file
    `name` there, else PART of a checkout's PART/detshare/PART.
    """
    package = Path(module).resolve().parent
    return package if (package / name).exists() else package.parents[1]
