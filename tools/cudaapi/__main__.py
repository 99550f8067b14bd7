# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.cudaapi`: write runtime/gen/ from runtime/api.json, or with --check compare."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from detshare.tools.cudaapi.api import API, BadApi
from detshare.tools.cudaapi.generator import render


@click.command(epilog="Example: python -m detshare.tools.cudaapi --check")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file is out of date.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(__file__).resolve().parents[2],
    help="The checkout.",
)
def main(check: bool, root: Path) -> None:
    """Generate the C files of libdetshare.so that follow from the list of the driver's entry points."""
    try:
        files = render(root)
    except (BadApi, OSError) as error:
        click.echo(f"cudaapi: the list of entry points cannot be used: {error}", err=True)
        sys.exit(1)
    stale = [path for path, text in files.items() if not (root / path).exists() or (root / path).read_text() != text]
    if not check:
        for path in stale:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(files[path])
        click.echo(f"wrote {', '.join(map(str, stale)) or 'nothing, all is up to date'}")
    elif stale:
        names = ", ".join(map(str, stale))
        click.echo(f"cudaapi: {names} differ from {API}; run python -m detshare.tools.cudaapi", err=True)
        sys.exit(1)
    else:
        click.echo(f"{API}: C files are up to date")


if __name__ == "__main__":
    main()
