# SPDX-License-Identifier: Apache-2.0
"""The commands about the pool of pCtxs."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.table import Table

from detshare.ctl.cli.command import command
from detshare.ctl.cli.console import Console
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.cli.tables import clean, size


@command("pool", "sudo detshare-ctl pool")
def pool(place: Place, as_json: bool) -> None:
    """Show the pCtxs of each GPU, and who is bound to them.

    A pCtx is a set of SMs that programs are bound to. Shared ones come from `tiers`, exclusive ones from
    [[pool.exclusive]] of the daemon's configuration. Needs the daemon.
    """
    client = place.client()
    if not client.alive():
        raise gone("list the pool", place)
    answer = client.pool()
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    console = Console()
    console.print(_table(answer) if answer["pool"] else "no GPU is known yet")
    for each in answer.get("kept", ()):
        console.print(f"PID {each['pid']}: {size(each['bytes'])} of host memory hold copies of its GPU memory")


def _table(answer: dict[str, Any]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (("GPU", "left"), ("PCTX", "left"), ("SMS", "right"), ("SET", "left"), ("BOUND", "left")):
        made.add_column(title, justify=justify)  # type: ignore[arg-type]
    away = {each["pid"]: f" ({clean(each['state'])})" for each in answer.get("parked", ())}
    for member in answer["pool"]:
        bound = ", ".join(f"{pid}{away.get(pid, '')}" for pid in member["bound"]) or "-"
        told = member["note"] if member["note"] and not member["bound"] else bound
        name = f"{member['name']} (exclusive)" if member["exclusive"] else member["name"]
        made.add_row(member["gpu"][:12], name, str(member["sms"] or "-"), member["set"] or "-", told)
    return made
