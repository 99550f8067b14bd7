# SPDX-License-Identifier: Apache-2.0
"""The release command: `make release`, `make deb`."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from detshare.tools.release import debian, python
from detshare.tools.release.errors import ReleaseError
from detshare.tools.release.stage import stage

_ROOT: Final = Path(__file__).resolve().parents[4]
KINDS: Final = ("deb", "wheel", "sdist")


def make(
    root: Path, out: Path, kinds: tuple[str, ...], version: str | None, check: bool, console: Console
) -> list[Path]:
    """What was asked for, in `out`, and SHA256SUMS. ReleaseError."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="detshare-release-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        with console.status("staging the tree"):
            entry = stage(root, work / "detshare", root / "build" / "vendored", version)
        made: list[Path] = []
        for kind in kinds:
            with console.status(f"building the {kind}"):
                if kind == "deb":
                    found = debian.build(work / "detshare", entry.epoch, out / "build.log")
                    if check and (said := debian.lint(next(each for each in found if each.suffix == ".changes"))):
                        raise ReleaseError(
                            "check the Debian packages", f"lintian says\n{said}", "correct packaging/debian"
                        )
                    made += [each for each in found if each.suffix != ".changes"]
                else:
                    # a build leaves things in its tree
                    tree = work / kind
                    shutil.copytree(work / "detshare", tree)
                    made.append((python.wheel if kind == "wheel" else python.sdist)(tree, work / "python", entry.epoch))
        kept = [Path(shutil.copy2(each, out / each.name)) for each in made]
    sums = "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(kept))
    (out / "SHA256SUMS").write_text(sums)
    return [*kept, out / "SHA256SUMS"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=_ROOT / "build" / "release",
              help="Folder for what is made.  [default: build/release]")  # fmt: skip
@click.option(
    "--root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=_ROOT, help="The checkout."
)
@click.option(
    "--version", help="Call it so, instead of what the tree says: a build between two releases, or for a test."
)
@click.option("--lint/--no-lint", default=True, show_default=True, help="Fail on errors and warnings of lintian.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def main(kinds: tuple[str, ...], out: Path, root: Path, version: str | None, lint: bool, as_json: bool) -> None:
    """Build what users get, from the files of a checkout, changed ones too: Debian packages and their source, a wheel,
    a source archive, and SHA256SUMS of them. The same tree gives the same bytes. KINDS: deb, wheel, sdist; all
    without one.

    Example: python -m detshare.tools.release deb --out /tmp/release
    """
    console = Console(stderr=True)
    try:
        made = make(root, out.absolute(), kinds or KINDS, version, lint, console)
    except ReleaseError as error:
        click.echo(f"release: {error}", err=True)
        sys.exit(2 if error.usage else 1)
    if as_json:
        click.echo(json.dumps({"made": [str(each) for each in made]}, indent=1))
    else:
        for each in made:
            click.echo(each)


if __name__ == "__main__":
    main()
