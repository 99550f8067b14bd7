# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.abi`: write the ABI tables of ctl/ and kmod/, or with --check say what is out of date."""

from __future__ import annotations

from pathlib import Path

from detshare.tools.abi.ctables import ctables
from detshare.tools.abi.generator import TARGET, BadData, tables
from detshare.tools.generated import command


def render(_root: Path) -> dict[Path, str]:
    """Every table, by path within the checkout; the data is this package's own. BadData."""
    return {Path(target): text for target, text in {TARGET: tables(), **ctables()}.items()}


SUMMARY = "Generate the ABI tables of the control plane and of the kernel module's core from their data."
main = command("abi", "tools/detshare/tools/abi/data", SUMMARY, render, BadData)

if __name__ == "__main__":
    main()
