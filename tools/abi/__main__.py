# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.abi`: write ctl/rm/tables.py, or with --check say whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detshare.tools.abi.generator import TARGET, BadData, tables


@click.command(epilog="Example: python -m detshare.tools.abi --check")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the file differs from what the data gives.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[2],
    help="The checkout.",
)
def main(check: bool, root: Path) -> None:
    """Generate the ABI tables of the control plane from tools/abi/data."""
    try:
        text = tables()
    except BadData as error:
        click.echo(f"abi: the data cannot be used: {error}", err=True)
        sys.exit(1)
    target = root / TARGET
    if not check:
        target.write_text(text)
        click.echo(f"wrote {TARGET}")
    elif not target.exists() or target.read_text() != text:
        click.echo(f"abi: {TARGET} is not what tools/abi/data gives; run python -m detshare.tools.abi", err=True)
        sys.exit(1)
    else:
        click.echo(f"{TARGET} is up to date")


if __name__ == "__main__":
    main()
