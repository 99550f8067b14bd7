# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl version: of this command, of the daemon that runs, of the module that is loaded."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from detshare.ctl.cli.command import command
from detshare.ctl.cli.link import Place
from detshare.ctl.client import Client
from detshare.ctl.core import version
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check

_NONE: Final = "none"
_OTHER: Final = "the daemon is of another build"
_RESTART: Final = "sudo systemctl restart detshared"


def _daemon(client: Client) -> dict[str, Any] | None:
    """What it says it is; None where there is none."""
    try:
        return client.version() if client.alive() else None
    except ControlError as error:
        if error.usage:
            raise
        # a daemon of a build that has no such address answers 404, one that we may not ask nothing: it is there
        return {"version": "unknown", "api": None, "why": str(error)}


def checks(client: Client) -> list[Check]:
    """For doctor: a daemon of another build. One that does not tell is doctor's own line."""
    daemon = _daemon(client)
    if daemon is None or "why" in daemon or daemon["version"] == version.build():
        return []
    text = f"{_OTHER}: {daemon['version']}, this command is {version.build()}"
    return [Check("version", None, text, f"{_RESTART}; programs go on")]


@command("version", "sudo detshare-ctl version")
def show(place: Place, as_json: bool) -> None:
    """Show the versions of this command, the daemon and the module.

    They differ after an upgrade, until the daemon is started anew and the module loaded anew.
    """
    daemon = _daemon(place.client())
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
        click.echo(f"{_OTHER}: {_RESTART}")
