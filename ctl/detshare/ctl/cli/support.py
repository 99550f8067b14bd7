# SPDX-License-Identifier: Apache-2.0
"""The command that gathers what a report of a fault needs."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Final

import click

from detshare.ctl.cli.command import command
from detshare.ctl.cli.link import Place
from detshare.ctl.core import config as configuration
from detshare.ctl.support import report as reports
from detshare.runtime.directory import default_path

_MORE: Final = """\
It holds versions, doctor, configuration, the last look, events, decisions, the newest lines of the daemon's and of the
kernel's log, and a list of the daemon's files. It is sent to nobody; its README.txt says what is left out. Look through
it before you give it away.
"""
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@command("support", "sudo detshare-ctl support --output report.tar.gz", _MORE)
@click.option("--output", type=_FILE, help="The file.  [default: detshare-support-HOST-TIME.tar.gz, here]")
@click.option("--commands", is_flag=True, help="With the command lines of programs; secrets in them are looked for.")
@click.option("--config", "config", type=_FILE, help=f"The daemon's, where it is not {configuration.DEFAULT_PATH}.")
@click.option("--log", type=_FILE, help="The daemon's log, where it is not in the journal.")
def support(
    place: Place, as_json: bool, output: Path | None, commands: bool, config: Path | None, log: Path | None
) -> None:
    """Gather what a report of a fault needs in one .tar.gz, without secrets.

    Nothing is changed. What could not be had, and what was left out, is told.
    """
    name = f"detshare-support-{socket.gethostname()}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    path = output or Path(f"{name}.tar.gz")
    source = reports.Source(place.run_dir, place.backend, config, log)
    folders = [place.run_dir, default_path(place.run_dir), configuration.DEFAULT_PATH.parent]
    made = reports.collect(source, folders, commands=commands)
    reports.write(made, path, name)
    if as_json:
        told = {"path": str(path), "files": sorted(made.files), "missing": made.missing, "left_out": made.left_out}
        click.echo(json.dumps(told, indent=1))
        return
    click.echo(f"{path}: {', '.join(sorted(made.files))}")
    for name, why in sorted(made.missing.items()):
        click.echo(f"could not be had: {name}: {why}")
    for each in made.left_out:
        click.echo(f"left out: {each}")
