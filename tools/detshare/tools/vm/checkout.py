# SPDX-License-Identifier: Apache-2.0
"""The checkout that this package lies in."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
MODULE = TOP
NVSIM = TOP / "tests" / "nvsim"
NVFWD = TOP / "tests" / "nvfwd"
FAKEGPU = TOP / "tests" / "fakegpu"


def packages() -> list[Path]:
    """Folders of Python that guests import from."""
    return [TOP / name for name in ("ctl", "tools", "runtime", "ebpf", "tests") if (TOP / name).is_dir()]
