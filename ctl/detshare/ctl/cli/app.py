# SPDX-License-Identifier: Apache-2.0
"""The commands of detshare-ctl. Exit codes: 0 done; 1 not done; 2 it cannot be meant."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import click

from detshare.ctl import oneshot
from detshare.ctl.backends.verbs import LOAD_MODULE, explain
from detshare.ctl.cdi import files
from detshare.ctl.cli import details, tables, verbs
from detshare.ctl.cli.command import command, main
from detshare.ctl.cli.console import Console
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.core import jobs, streams
from detshare.ctl.core.backend import NeedsModule
from detshare.ctl.core.driver import Opener, ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.select import parse
from detshare.ctl.core.verbs import VERBS, check_who, quoted

__all__ = ["main"]


def _print_json(answer: object) -> None:
    click.echo(json.dumps(answer, indent=1))


@command("ps", "sudo detshare-ctl ps")
def ps(place: Place, as_json: bool) -> None:
    """List the programs that hold the GPU."""
    with place.control("list programs", changes=False) as (control, _):
        answer = control.programs()
    if as_json:
        _print_json(answer)
        return
    console = Console(whole=True)
    console.print(tables.proof(answer))
    for line in tables.warnings(answer):
        console.print(line)
    for line in tables.rotations(answer):
        console.print(line)
    if answer["programs"]:
        console.print(tables.programs(answer, console.width, ascii_only=not streams.utf8()))
    else:
        console.print("no program holds a GPU")
    shared = [each for each in answer.get("accounts", ()) if each["kind"] != "pid"]
    if shared:
        console.print()
        console.print(tables.accounts(shared))


@command("show", "sudo detshare-ctl show 4242")
@click.argument("who")
def show(place: Place, as_json: bool, who: str) -> None:
    """Show all that is known of a program."""
    asked = f"show {quoted(who)}"
    try:
        check_who(who)
    except ValueError as error:
        raise explain(error, asked) from error
    with place.control(asked, changes=False) as (control, _):
        answer = control.programs()
    jobs.learn({each["pid"]: each["job"] for each in answer["programs"] if each.get("job")})
    selector = parse(who)
    found = [p for p in answer["programs"] if selector.matches(_opener(p))]
    if not found:
        raise ControlError(asked, "no program that holds a GPU matches", "see which are there: detshare-ctl ps")
    if as_json:
        _print_json({**answer, "programs": found})
        return
    console = Console()
    console.print(tables.proof(answer))
    for number, program in enumerate(found):
        if number:
            console.rule()
        details.show(console, answer, program)


def _opener(program: dict[str, Any]) -> Opener:
    return Opener(
        id=ProcessId(program["pid"], program["start"]),
        parent=0,
        command=program["command"],
        comm="",
        user=program["user"],
        cgroup="",
        container=program["container"],
        control_fds=(),
        device_fds=(),
    )


verbs.add()


@command("list", "sudo detshare-ctl tenant list", group=verbs.tenant)
def tenant_list(place: Place, as_json: bool) -> None:
    """List tenants with their limits and programs."""
    with place.control("list tenants", changes=False) as (control, _):
        answer = control.programs()
    if not answer["tenants"] and answer["backend"] != "kmod":
        raise ControlError("list tenants", str(NeedsModule(answer["backend"], VERBS["tenant-add"].lacks)), LOAD_MODULE)
    if as_json:
        _print_json({"tenants": answer["tenants"], "accounts": answer["accounts"]})
        return
    console = Console()
    for line in tables.warnings(answer):
        console.print(line)
    if answer["tenants"]:
        console.print(tables.tenants(answer))
    else:
        console.print("there is no tenant; make one: detshare-ctl tenant add NAME")


@command("doctor", "sudo detshare-ctl doctor")
def doctor(place: Place, as_json: bool) -> int:
    """Check this machine and say what is missing.

    Backend, driver, rights and daemon, each with the next step. Exits with 1 where a check failed.
    """
    from detshare.ctl.cli import version  # it reads the metadata of packages, which takes `ps` 10 ms

    client = place.client()
    others = [*files.checks()]
    try:
        if client.alive():
            answer = client.doctor()
            others += version.checks(client)
        else:
            answer = oneshot.doctor(place.backend, place.run_dir)
    except ControlError as error:
        answer = oneshot.doctor(place.backend, place.run_dir)
        if not any(check["ok"] is False for check in answer["checks"]):
            raise error
    answer["checks"] += [check.to_json() for check in others]
    if as_json:
        _print_json(answer)
    else:
        console = Console()
        console.width = max(console.width, tables.CHECKS_WIDTH)
        console.print(tables.checks(answer))
    return int(any(check["ok"] is False for check in answer["checks"]))


@command("events", "sudo detshare-ctl events --follow")
@click.option("--follow", "-f", is_flag=True, help="Wait for more; with --json one document per line.")
def events(place: Place, as_json: bool, follow: bool) -> int:
    """Show what the daemon saw and did, and what the kernel module tells.

    Without a daemon --follow shows the kernel module's events alone.
    """
    client = place.client()
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))  # the ordinary end of --follow
    if not client.alive():
        if not follow or oneshot.resolve(place.backend)[0] != "kmod":
            raise gone("read events", place)
        for event in oneshot.kernel_events("follow events"):
            _tell_event(event.to_json(), as_json)
    if as_json and not follow:
        _print_json({"events": list(client.events())})
        return 0
    for item in client.events(follow):
        _tell_event(item, as_json)
    if follow:
        raise ControlError("follow events", "the daemon stopped", "see its log, and start it again: detshared")
    return 0


def _tell_event(item: dict[str, Any], as_json: bool) -> None:
    click.echo(json.dumps(item) if as_json else tables.event(item))


@main.command("help")
@click.argument("command", required=False)
@click.pass_context
def help_(ctx: click.Context, command: str | None) -> None:
    """Show this help or that of a command."""
    assert ctx.parent is not None
    found = main.get_command(ctx.parent, command) if command else main
    if found is None:
        raise click.UsageError(f"there is no command {command!r}; commands are {', '.join(main.commands)}")
    if found is main:
        click.echo(ctx.parent.get_help())
        return
    with click.Context(found, info_name=command, parent=ctx.parent) as inner:
        click.echo(found.get_help(inner))
