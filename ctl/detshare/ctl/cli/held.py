# SPDX-License-Identifier: Apache-2.0
"""The commands for what only the kernel module holds: buckets, ceilings, rows of classes."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from detshare.ctl.backends.verbs import LEVELS, LOAD_MODULE, MOST_GPUS
from detshare.ctl.cli import act, tables
from detshare.ctl.cli.command import HELD, command
from detshare.ctl.cli.link import Place
from detshare.ctl.core import classes
from detshare.ctl.core.backend import NeedsModule
from detshare.ctl.core.errors import ControlError


@command("set-bucket", "sudo detshare-ctl set-bucket /train.slice 25%", HELD)
@click.argument("who")
@click.argument("rate", metavar="RATE")
@click.option("--burst", "burst_us", type=click.IntRange(1), metavar="US", help="Most at once.  [default: RATE/10]")
def set_bucket(place: Place, as_json: bool, who: str, rate: str, burst_us: int | None) -> int:
    """Limit GPU time by a token bucket; the kernel holds it.

    RATE is a share of each second such as 25%, a number of microseconds in each second, or off. While the bucket is
    empty launches wait and running work is paused. Needs detshare.ko.
    """
    rate_us = _rate(rate, f"set-bucket {who} {rate[:20]}")
    return act.change(place, as_json, "set-bucket", who, args={"rate_us": rate_us, "burst_us": burst_us})


def _rate(text: str, asked: str) -> int | None:
    if text == "off":
        return None
    number, scale = (text[:-1], 10_000.0) if text.endswith("%") else (text, 1.0)
    try:
        value = float(number) * scale
    except ValueError:
        value = float("nan")
    if not 1 <= value <= classes.RATES_US[-1]:
        stopped = f"{text[:20]!r} is no rate"
        raise ControlError(asked, stopped, "give a share such as 25%, microseconds in each second, or off", usage=True)
    return round(value)


@command("set-ceiling", "sudo detshare-ctl set-ceiling 4242 40", HELD)
@click.argument("who")
@click.argument("percent", metavar="PCT", type=click.IntRange(1, 100))
def set_ceiling(place: Place, as_json: bool, who: str, percent: int) -> int:
    """Confine compute work to a share of the TPCs.

    100 gives all back. Needs detshare.ko, and a driver that takes it: see doctor.
    """
    return act.change(place, as_json, "set-ceiling", who, args={"percent": percent})


@command("set-class", "sudo detshare-ctl set-class low --floor 5")
@click.argument("klass", metavar="CLASS")
@click.option("--weight", type=click.IntRange(1, 1000), metavar="N", help="Of programs without one of their own.")
@click.option("--slice", "slice_us", type=click.IntRange(0, 60_000_000), metavar="US", help="0: as the program has it.")
@click.option("--level", type=click.Choice(LEVELS), help="Level on the runlist.")
@click.option("--floor", type=click.FloatRange(0, 100), metavar="PCT", help="Time that it has at least.")
@click.option(
    "--turn",
    "turn_us",
    type=click.IntRange(0, 1_000_000),
    metavar="US",
    help="One program at a time, 5000 or more; 0: all at once.",
)
@click.option("--gpu", type=click.IntRange(0, MOST_GPUS - 1), help="Only on this GPU.  [default: on each]")
@click.option("--reset", is_flag=True, help="As by default; a class that is not one of ours is forgotten.")
def set_class(place: Place, as_json: bool, klass: str, **row: Any) -> int:
    """Change what a class means, or make one.

    Programs of classes with a turn run one at a time; a higher class on the GPU, or whose turn comes first, leaves them
    their floor. What is not given stays as it is. Without detshare.ko a class has its floor alone to be set; with it
    the module keeps the row until it is unloaded.
    """
    floor = row.pop("floor")
    args = {**row, "reset": row["reset"] or None, "floor_permille": None if floor is None else round(10 * floor)}
    return act.change(place, as_json, "set-class", klass, args=args)


@command("classes", "sudo detshare-ctl classes")
def list_classes(place: Place, as_json: bool) -> None:
    """List classes, buckets, holds and what stands for cgroups and tenants."""
    with place.control("list classes", changes=False) as (control, _):
        answer = control.programs()
    if as_json:
        click.echo(json.dumps({name: answer[name] for name in ("classes", "orders", "buckets", "holds")}, indent=1))
        return
    console = Console(highlight=False)
    if not answer["classes"]:
        lacking = NeedsModule(answer["backend"], "no rows of classes")
        raise ControlError("list classes", str(lacking), LOAD_MODULE)
    for table in tables.standing(answer):
        console.print(table)
