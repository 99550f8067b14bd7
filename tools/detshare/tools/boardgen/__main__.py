# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.boardgen`: write the boards' header and Python layout; --check says what is stale."""

from __future__ import annotations

from pathlib import Path

from detshare.tools.boardgen.header import header
from detshare.tools.boardgen.layout import SOURCE, load
from detshare.tools.boardgen.module import module
from detshare.tools.generated import command


def render(root: Path) -> dict[Path, str]:
    """Both files, by path within the checkout. ValueError."""
    layout = load(root)
    python = Path("runtime/detshare/runtime/board_layout.py")
    return {Path("runtime/shm/board.h"): header(layout), python: module(layout)}


SUMMARY = "Generate runtime/shm/board.h and board_layout.py of detshare.runtime from runtime/board.json."
main = command("boardgen", str(SOURCE), SUMMARY, render, ValueError)

if __name__ == "__main__":
    main()
