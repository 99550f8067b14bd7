# SPDX-License-Identifier: Apache-2.0
"""Completion scripts of all commands, laid out as bash, zsh and fish look for them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from detshare.tools.manpages import PROGRAMS, program

__all__ = ["PLACES", "write"]

PLACES: Final = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""below /usr/share"""


def write(folder: Path) -> list[Path]:
    """Writes them below `folder`; their paths."""
    made = []
    for shell, place in PLACES.items():
        for name in PROGRAMS:
            kind = get_completion_class(shell)
            assert kind is not None
            # source() of bash's class asks the bash of this machine for its version; the text itself needs no bash
            found = kind(program(name)[0], {}, name, f"_{name.replace('-', '_')}_COMPLETE".upper())
            path = folder / place.format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((found.source_template % found.source_vars()).lstrip("\n"), encoding="utf-8")
            made.append(path)
    return made


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the completion scripts into FOLDER, laid out as /usr/share is.

    Example: python -m detshare.tools.release.completions build/completions
    """
    for path in write(folder):
        click.echo(path)


if __name__ == "__main__":
    main()
