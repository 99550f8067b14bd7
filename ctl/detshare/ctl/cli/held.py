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
    """List classes, buckets, holds and what stands for cgroups and tenants."""
    with place.control("list classes", changes=False) as (control, _):
        answer = control.programs()
    if not answer["classes"] and answer["backend"] != "kmod":
        raise ControlError("list classes", str(NeedsModule(answer["backend"], VERBS["set-class"].lacks)), LOAD_MODULE)
    if as_json:
        click.echo(json.dumps({name: answer[name] for name in ("classes", "orders", "buckets", "holds")}, indent=1))
        return
    console = Console()
    for table in tables.standing(answer):
        console.print(table)
