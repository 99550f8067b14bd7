# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.genl`: write the C files made from kmod/detshare.yaml, or with --check compare them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detshare.tools.genl.generator import BadSpec, render


@click.command(epilog="Example: python -m detshare.tools.genl --check")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is out of date.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[2],
    help="The checkout.",
)
def main(check: bool, root: Path) -> None:
    """Generate constants and netlink policies of detshare.ko from kmod/detshare.yaml."""
    try:
        files = render(root)
    except (BadSpec, OSError) as error:
        click.echo(f"genl: the specification cannot be used: {error}", err=True)
        sys.exit(1)
    stale = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    if not check:
        for path in stale:
            (root / path).write_text(files[path])
        click.echo(f"wrote {', '.join(map(str, stale)) or 'nothing, all is up to date'}")
    elif stale:
        names = ", ".join(map(str, stale))
        click.echo(f"genl: {names} differ from kmod/detshare.yaml; run python -m detshare.tools.genl", err=True)
        sys.exit(1)
    else:
        click.echo("kmod/detshare.yaml: C files are up to date")


if __name__ == "__main__":
    main()
