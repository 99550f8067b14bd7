# SPDX-License-Identifier: Apache-2.0
"""The command about the daemon's page."""

from __future__ import annotations

import json

import click

from detshare.ctl.cli.command import command
from detshare.ctl.cli.link import Place, gone


@command("page", "sudo detshare-ctl page")
@click.option("--revoke", is_flag=True, help="End every page that was opened so far, and forget all addresses.")
def page(place: Place, as_json: bool, revoke: bool) -> None:
    """Print the address of the daemon's page, for one browser.

    The address can be opened once, within five minutes; the page stays open for twelve hours, with the rights of the
    user who ran this command. Needs the daemon, with page.listen in its configuration.
    """
    client = place.client()
    if not client.alive():
        raise gone("print the page's address", place)
    answer = client.page_revoke() if revoke else client.page()
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    elif revoke:
        click.echo("every page that was open asks for a new address now")
    else:
        click.echo(answer["address"])
        told = "changes what you may change" if answer["changes"] else "read-only: page.changes is not set"
        click.echo(f"open it within {answer['expires_s'] / 60:.0f} minutes, once ({told})", err=True)
