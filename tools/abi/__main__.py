# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.abi`: write the ABI tables of ctl/ and kmod/, or with --check say what is out of date."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detshare.tools.abi.ctables import ctables
from detshare.tools.abi.generator import TARGET, BadData, tables


@click.command(epilog="Example: python -m detshare.tools.abi --check")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file differs from what the data gives.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[2],
    help="The checkout.",
)
def main(check: bool, root: Path) -> None:
    """Generate the ABI tables of the control plane and of the kernel module's core from tools/abi/data."""
    try:
        texts = {TARGET: tables(), **ctables()}
    except BadData as error:
        click.echo(f"abi: the data cannot be used: {error}", err=True)
        sys.exit(1)
    stale = 0
    for target, text in texts.items():
        file = root / target
        if not check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            click.echo(f"wrote {target}")
        elif not file.exists() or file.read_text() != text:
            click.echo(f"abi: {target} is not what tools/abi/data gives; run python -m detshare.tools.abi", err=True)
            stale += 1
        else:
            click.echo(f"{target} is up to date")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
