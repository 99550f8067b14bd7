# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl version: of this command, of the daemon that runs, of the module that is loaded."""

from __future__ import annotations

import json
from typing import Final

import click

from detshare.ctl.cli.command import command
from detshare.ctl.cli.link import Place
from detshare.ctl.core import version
from detshare.ctl.core.errors import ControlError

_NONE: Final = "none"


@command("version", "sudo detshare-ctl version")
def show(place: Place, as_json: bool) -> None:
    """Show the versions of this command, the daemon and the module.

    They differ after an upgrade, until the daemon is started anew and the module loaded anew.
    """
    client = place.client()
    daemon = None
    try:
        if client.alive():
            daemon = client.version()
    except ControlError as error:
        if error.usage:
            raise
        # a daemon of a build that has no such address answers 404, one that we may not ask nothing: it is there
        daemon = {"version": "unknown", "api": None, "why": str(error)}
    answer = {"command": {"version": version.build(), "api": version.API}, "daemon": daemon, "module": version.module()}
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    click.echo(f"command  {version.build()} (API {version.API})")
    if daemon is None:
        click.echo(f"daemon   {_NONE}")
    else:
        click.echo(f"daemon   {daemon['version']} (API {daemon['api'] or 'unknown'})")
    click.echo(f"module   {version.module() or _NONE}")
    if daemon is not None and daemon["version"] != version.build():
        click.echo("the daemon is of another build: sudo systemctl restart detshared")
