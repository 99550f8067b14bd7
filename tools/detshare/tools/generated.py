# SPDX-License-Identifier: Apache-2.0
"""The command of a generator: writes files of the checkout that follow from others, or says which are out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

__all__ = ["command"]


def command(
    name: str, source: str, summary: str, render: Callable[[Path], Mapping[Path, str]], bad: type[Exception]
) -> click.Command:
    """``python -m detshare.tools.NAME``. `render`: texts by path in the checkout, made from `source`; or `bad`."""

    @click.command(name, help=summary, epilog=f"Example: python -m detshare.tools.{name} --check")
    @click.option("--check", is_flag=True, help=f"Write nothing; exit 1 if a file is not what {source} gives.")
    @click.option(
        "--root",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=Path(__file__).resolve().parents[3],
        help="The checkout.",
    )
    def main(check: bool, root: Path) -> None:
        try:
            files = render(root)
        except (bad, OSError) as error:
            click.echo(f"{name}: {source} cannot be used: {error}", err=True)
            sys.exit(1)
        stale = [path for path, text in files.items() if _text(root / path) != text]
        names = ", ".join(map(str, stale))
        if not check:
            for path in stale:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(files[path])
            click.echo(f"wrote {names or 'nothing, all is up to date'}")
        elif stale:
            click.echo(f"{name}: {names}: not what {source} gives; run python -m detshare.tools.{name}", err=True)
            sys.exit(1)
        else:
            click.echo(f"{source}: {len(files)} files are up to date")

    return main


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
