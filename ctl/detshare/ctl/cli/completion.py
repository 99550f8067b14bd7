# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl completion: the script that lets a shell complete commands, options and choices."""

from __future__ import annotations

import json
from typing import Final

import click
from click.shell_completion import get_completion_class

from detshare.ctl.cli.command import command, main
from detshare.ctl.cli.link import Place

PROGRAM: Final = "detshare-ctl"
VARIABLE: Final = "_DETSHARE_CTL_COMPLETE"
"""by which click knows that a shell asks"""
SHELLS: Final = ("bash", "zsh", "fish")
_WHERE: Final = """\
To have it in each new shell:
  bash   detshare-ctl completion bash > ~/.local/share/bash-completion/completions/detshare-ctl
  zsh    detshare-ctl completion zsh > ~/.zfunc/_detshare-ctl     (with fpath+=~/.zfunc before compinit)
  fish   detshare-ctl completion fish > ~/.config/fish/completions/detshare-ctl.fish
For all users: /usr/share/bash-completion/completions, /usr/share/zsh/vendor-completions,
/usr/share/fish/vendor_completions.d
"""


def script(shell: str) -> str:
    """The script for one of SHELLS."""
    made = get_completion_class(shell)
    assert made is not None
    # source() of bash's class asks the bash of this machine for its version; the text itself needs no bash
    found = made(main, {}, PROGRAM, VARIABLE)
    return found.source_template % found.source_vars()


@command("completion", "sudo detshare-ctl completion bash", _WHERE)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(place: Place, as_json: bool, shell: str) -> None:
    """Print the completion script for a shell."""
    text = script(shell)
    click.echo(json.dumps({"shell": shell, "script": text}) if as_json else text.rstrip("\n"))
