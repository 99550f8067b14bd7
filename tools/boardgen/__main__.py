# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.boardgen`: write the boards' header and Python layout; --check says what is stale."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detshare.tools.boardgen.header import header
from detshare.tools.boardgen.layout import SOURCE, BadBoard, load
from detshare.tools.boardgen.module import module


@click.command(epilog="Example: python -m detshare.tools.boardgen --check")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file differs from what board.json gives.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[2],
    help="The checkout.",
)
def main(check: bool, root: Path) -> None:
    """Generate runtime/board.h and runtime/board_layout.py from runtime/board.json."""
    try:
        layout = load(root)
    except (BadBoard, OSError, ValueError) as error:
        click.echo(f"boardgen: {SOURCE} cannot be used: {error}", err=True)
        sys.exit(1)
    stale = 0
    for target, text in {"runtime/board.h": header(layout), "runtime/board_layout.py": module(layout)}.items():
        file = root / target
        if not check:
            file.write_text(text)
            click.echo(f"wrote {target}")
        elif not file.exists() or file.read_text() != text:
            click.echo(f"boardgen: {target} is stale; run python -m detshare.tools.boardgen", err=True)
            stale += 1
        else:
            click.echo(f"{target} is up to date")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
