# SPDX-License-Identifier: Apache-2.0
"""What all commands of detshare-ctl share: their group, their help, and how an error becomes words and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from detshare.ctl import oneshot
from detshare.ctl.cli import tables
from detshare.ctl.cli.link import Place
from detshare.ctl.core import classes, options, streams
from detshare.ctl.core.errors import ControlError

WHO: Final = """\
WHO is one of
  a PID                        4242
  a job                        job:4242: all ranks of the job of PID 4242
  a container id               12 hexadecimal digits or more
  a part of the command line   serve.py, or with * and ?: 'python*train*'
"""
ACCOUNT: Final = """\
ACCOUNT is one of
  a PID                        4242
  a tenant's name              red         (see: detshare-ctl tenant --help)
  a cgroup                     /system.slice/train.service
  a container id               12 hexadecimal digits or more: its cgroup
  a part of the command line   train.py: each process by itself
"""
HELD: Final = """\
With detshare.ko WHO may also be
  a tenant's name              red         (see: detshare-ctl tenant --help)
  a cgroup                     /system.slice/train.service
A container id means its cgroup then: with all processes, those to come too.
"""
TENANTS: Final = """\
Example:
  sudo detshare-ctl tenant add red
  sudo detshare-ctl set-memory red 20G
  sudo detshare-ctl tenant attach red 4242
"""
FIRST: Final = """\
First steps:
  sudo detshare-ctl ps
  sudo detshare-ctl set-priority 4242 high
  sudo detshare-ctl release 4242
Without a GPU, on simulated programs:
  detshared --backend model --run-dir /tmp/detshare &
  detshare-ctl --run-dir /tmp/detshare ps
"""


class Group(streams.Tells, click.Group):
    """Lists its commands in the order in which they are needed, and first steps below."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(FIRST)


class Tenants(click.Group):
    """Shows how its commands go together."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(TENANTS)


class Examples(click.Command):
    """Keeps the lines of an example as they are; tells what WHO may be where it is asked for."""

    def __init__(self, *args: Any, example: str = "", more: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example
        self.more = more

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if as_json:
                asked = ctx.command_path.partition(" ")[2]
                following = f"see: {ctx.command_path} --help"
                click.echo(json.dumps(ControlError(asked, error.format_message(), following, usage=True).to_json()))
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        who = WHO if any(param.name == "who" for param in self.params) else ""
        for text in (self.more, who, f"Example:\n  {self.example}\n"):
            if text:
                formatter.write_paragraph()
                formatter.write(text)


def class_lines() -> str:
    """What each class sets, from the rule itself."""
    lines = ["CLASS is one of"]
    for name, setting in classes.CLASSES.items():
        slice_us = "as the driver set it" if setting.slice_us is None else tables.duration(setting.slice_us)
        lines.append(f"  {name:<8} slice {slice_us}, level {setting.level.name.lower()}")
    return "\n".join(lines) + "\n"


@click.group(
    "detshare-ctl", cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@options.run_dir("Folder of the daemon's socket.")
@click.option(
    "--backend",
    type=click.Choice(oneshot.BACKENDS),
    default=oneshot.AUTO,
    show_default=True,
    help="Without a daemon: kmod acts through detshare.ko, root through the programs' own descriptors, auto through "
    "the first of these that is there; model acts on simulated programs.",
)
@click.pass_context
def main(ctx: click.Context, run_dir: Path, backend: str) -> None:
    """See and steer the GPU programs of this machine.

    Talks to the daemon, detshared, where it runs; else most commands act once by themselves (as root), and what
    they set stands until `release`.
    """
    streams.any_encoding()
    ctx.obj = Place(run_dir, backend)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def command(
    name: str, example: str, more: str = "", group: click.Group | None = None
) -> Callable[[Callable[..., int | None]], click.Command]:
    """A command with --json, whose errors are told in words and exit codes. What the function returns is the code."""

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @wraps(function)
        def run(as_json: bool, **values: Any) -> None:
            place = click.get_current_context().find_object(Place)
            assert place is not None
            try:
                with streams.answering():
                    code = function(place, as_json=as_json, **values)
            except ControlError as error:
                if as_json and error.asked != streams.ASKED:
                    click.echo(json.dumps(error.to_json()))
                click.echo(f"detshare-ctl: {error}", err=True)
                sys.exit(2 if error.usage else 1)
            sys.exit(code or 0)

        flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
        return (group or main).command(name, cls=Examples, example=example, more=more)(flag(run))

    return decorate
