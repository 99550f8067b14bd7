# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.layers`: each edge of the sources that goes up; exit 1 if there is one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from detshare.tools.layers import imports, kmod, lengths, runtime

CHECKS: Final[tuple[Callable[[Path], list[str]], ...]] = (imports.check, kmod.check, runtime.check, lengths.check)
"""Each names what is wrong in a checkout, a line for each."""


@click.command("layers", epilog="Example: python -m detshare.tools.layers")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[4],
    help="The checkout.",
)
def main(root: Path) -> None:
    """Say which file of the sources uses one that lies above it."""
    messages = [message for check in CHECKS for message in check(root)]
    for message in messages:
        click.echo(message, err=True)
    click.echo(f"layers: {len(messages)} problems")
    sys.exit(1 if messages else 0)


if __name__ == "__main__":
    main()
