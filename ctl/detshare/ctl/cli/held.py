# SPDX-License-Identifier: Apache-2.0
"""The command for what the kernel module holds: classes, buckets, holds, orders."""

from __future__ import annotations

import json

import click

from detshare.ctl.backends.verbs import LOAD_MODULE
from detshare.ctl.cli import tables
from detshare.ctl.cli.command import command
from detshare.ctl.cli.console import Console
from detshare.ctl.cli.link import Place
from detshare.ctl.core.backend import NeedsModule
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.verbs import VERBS


@command("classes", "sudo detshare-ctl classes")
def list_classes(place: Place, as_json: bool) -> None:
    """List classes, buckets, holds and what stands for cgroups and tenants.

    Without detshare.ko: the floors of the classes.
    """
    with place.control("list classes", changes=False) as (control, _):
        answer = control.programs()
    floors = answer.get("floors")
    if not (answer["classes"] or floors) and answer["backend"] != "kmod":
        raise ControlError("list classes", str(NeedsModule(answer["backend"], VERBS["set-class"].lacks)), LOAD_MODULE)
    if as_json:
        names = ("classes", "orders", "buckets", "holds", *(("floors",) if floors else ()))
        click.echo(json.dumps({name: answer[name] for name in names}, indent=1))
        return
    console = Console()
    for table in tables.standing(answer):
        console.print(table)
