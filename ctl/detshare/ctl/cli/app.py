# SPDX-License-Identifier: Apache-2.0
"""The commands of detshare-ctl. Exit codes: 0 done; 1 not done; 2 it cannot be meant."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import click
from rich.console import Console

from detshare.ctl import oneshot
from detshare.ctl.backends.verbs import LEVELS, LOAD_MODULE, LONGEST_WAIT, MOST_GPUS, check_who, explain
from detshare.ctl.cli import act, details, tables
from detshare.ctl.cli.command import ACCOUNT, HELD, Tenants, class_lines, command, main
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.core import classes, options
from detshare.ctl.core.backend import NeedsModule
from detshare.ctl.core.driver import Holder, ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.select import parse

__all__ = ["main"]

_who = click.argument("who")


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
    console = Console(highlight=False)
    console.print(tables.proof(answer))
    for line in tables.warnings(answer):
        console.print(line)
    for line in tables.rotations(answer):
        console.print(line)
    if answer["programs"]:
        console.print(tables.programs(answer, console.width))
    else:
        console.print("no program holds a GPU")
    shared = [each for each in answer.get("accounts", ()) if each["kind"] != "pid"]
    if shared:
        console.print()
        console.print(tables.accounts(shared))


@command("show", "sudo detshare-ctl show 4242")
@_who
def show(place: Place, as_json: bool, who: str) -> None:
    """Show all that is known of a program."""
    asked = f"show {who}"
    try:
        selector = parse(check_who(who))
    except ValueError as error:
        raise explain(error, asked) from error
    with place.control(asked, changes=False) as (control, _):
        answer = control.programs()
    found = [p for p in answer["programs"] if selector.matches(_holder(p))]
    if not found:
        raise ControlError(asked, "no program that holds a GPU matches", "see which are there: detshare-ctl ps")
    if as_json:
        _print_json({**answer, "programs": found})
        return
    console = Console(highlight=False)
    console.print(tables.proof(answer))
    for number, program in enumerate(found):
        if number:
            console.rule()
        details.show(console, answer, program)


def _holder(program: dict[str, Any]) -> Holder:
    return Holder(
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


_wait = click.option(
    "--wait",
    type=options.Seconds(0, 86400),
    metavar="SECONDS",
    help="Without a daemon: try again until the program has a GPU context.",
)


_weights = click.IntRange(classes.WEIGHTS[0], classes.WEIGHTS[-1])
_floors = click.FloatRange(0, 100 * classes.MOST_FLOOR)


@command("set-priority", "sudo detshare-ctl set-priority 4242 low --weight 3 --floor 5", class_lines())
@_who
@click.argument("klass", metavar="CLASS")
@click.option("--weight", type=_weights, metavar="N", help="Part of the turns.")
@click.option("--floor", type=_floors, metavar="PCT", help="Time that it has at least.")
@click.option("--tenant", metavar="NAME", help="Have turns together with the others of that name.")
@_wait
def set_priority(
    place: Place, as_json: bool, who: str, klass: str, weight: int | None, floor: float | None, tenant: str | None,
    wait: float | None,
) -> int:  # fmt: skip
    """Set the class: high, normal, low, idle, or one made by set-class.

    The program goes on running. With detshare.ko WHO may be a cgroup or a tenant: whoever belongs to it, now or later,
    has the class. For a process that has no GPU context yet the daemon applies it when it makes one.
    """
    asked = {"class": klass, "weight": weight, "floor": floor, "tenant": tenant}
    return act.change(place, as_json, "set-priority", who, wait, {k: v for k, v in asked.items() if v is not None})


@command("set-weight", "sudo detshare-ctl set-weight 'python train.py*' 3")
@_who
@click.argument("weight", metavar="N", type=_weights)
@_wait
def set_weight(place: Place, as_json: bool, who: str, weight: int, wait: float | None) -> int:
    """Share GPU time in proportion to weights.

    Programs with weights 3 and 1 that both always have work get three quarters and one quarter of the GPU.
    """
    return act.change(place, as_json, "set-weight", who, wait, {"weight": weight})


@command("set-slice", "sudo detshare-ctl set-slice 4242 2000 --level high")
@_who
@click.argument("slice_us", metavar="US", type=click.IntRange(classes.SLICES_US[0], classes.SLICES_US[-1]))
@click.option("--level", type=click.Choice(LEVELS), help="Level on the runlist.  [default: medium]")
@_wait
def set_slice(place: Place, as_json: bool, who: str, slice_us: int, level: str | None, wait: float | None) -> int:
    """Set the time slice itself, in microseconds.

    It is the longest turn on the GPU of each of the program's compute channel groups while others wait.
    """
    return act.change(place, as_json, "set-slice", who, wait, {"slice_us": slice_us, "level": level})


@command("set-sm", "sudo detshare-ctl set-sm 4242 25")
@_who
@click.argument("percent", metavar="PCT", type=click.IntRange(1, 100))
@click.option(
    "--timeout",
    type=options.Seconds(0, LONGEST_WAIT),
    metavar="SECONDS",
    help="How long to wait for the program.  [default: 5]",
)
def set_sm(place: Place, as_json: bool, who: str, percent: int, timeout: float | None) -> int:
    """Confine a program of the spatial lane to a share of the SMs.

    It takes the largest set of SMs that is no more than PCT percent; 100 gives all back. The command returns when
    nothing that was launched before runs on other SMs any more. Needs the daemon.
    """
    _needs_daemon(place, f"set-sm {who} {percent}")
    return act.change(place, as_json, "set-sm", who, args={"percent": percent, "timeout": timeout})


@command("hold", "sudo detshare-ctl hold /train.slice --lease 60", HELD)
@_who
@click.option(
    "--lease",
    type=click.IntRange(classes.LEASES_S[0], classes.LEASES_S[-1]),
    metavar="SECONDS",
    help="Let go by itself after that.  [default: held as long as the daemon lives]",
)
def hold(place: Place, as_json: bool, who: str, lease: int | None) -> int:
    """Let no new work of a program begin.

    Its launches wait at the doorbell; what is on the GPU already goes on (`pause` stops that too). A program of the
    spatial lane stops at its next kernel boundary. Until `resume` or `release`; if the daemon ends, it goes on after
    ten seconds at most. With --lease no daemon is needed, but detshare.ko.
    """
    if lease is None:
        _needs_daemon(place, f"hold {who}")
    return act.change(place, as_json, "hold", who, args={"lease": lease})


@command("reserve", "sudo detshare-ctl reserve 32")
@click.argument("sms", metavar="SMS")
def reserve(place: Place, as_json: bool, sms: str) -> int:
    """Keep the first SMS SMs of each GPU for class high.

    Everybody else in the spatial lane gets the rest, at all times. SMS is a multiple of what the GPU cuts its SMs by
    (8 on Hopper), or off.
    """
    asked = f"reserve {sms[:20]}"
    if sms != "off" and not (sms.isdecimal() and sms.isascii() and len(sms) < 6):
        raise ControlError(asked, f"{sms[:20]!r} is no number of SMs", "detshare-ctl reserve 32, or: off", usage=True)
    _needs_daemon(place, asked)
    return act.change(place, as_json, "set-reserve", "*", args={"sms": None if sms == "off" else int(sms)})


@command("set-reflex", "sudo detshare-ctl set-reflex low --busy rest:32")
@click.argument("klass", metavar="CLASS", type=click.Choice(list(classes.CLASSES)))
@click.option("--idle", metavar="SET", help="SMs while no higher class is active.")
@click.option("--busy", metavar="SET", help="SMs while one is, or hold: stop at the next kernel boundary.")
@click.option("--linger", "linger_us", type=click.IntRange(0, 10**6), metavar="US", help="Active that long after work.")
@click.option("--floor", "floor_permille", type=click.IntRange(0, 1000), metavar="N", help="Run N/1000 while held.")
def set_reflex(
    place: Place,
    as_json: bool,
    klass: str,
    idle: str | None,
    busy: str | None,
    linger_us: int | None,
    floor_permille: int | None,
) -> int:
    """Set what a class means in the spatial lane.

    SET is full, first:32 or rest:32. What is not given is as by default.
    """
    _needs_daemon(place, f"set-reflex {klass}")
    args = {"idle": idle, "busy": busy, "linger_us": linger_us, "floor_permille": floor_permille}
    return act.change(place, as_json, "set-reflex", klass, args=args)


@command("set-busy", "sudo detshare-ctl set-busy 4242 16")
@_who
@click.argument("sms", metavar="SMS|hold|default")
def set_busy(place: Place, as_json: bool, who: str, sms: str) -> int:
    """Set what a program of the spatial lane has while a higher class is active.

    SMS is a number of SMs: it gets the largest set of at most so many. hold: it stops at its next kernel boundary.
    default: as its class says (set-reflex).
    """
    asked = f"set-busy {who} {sms[:20]}"
    if sms not in ("hold", "default") and not (sms.isdecimal() and sms.isascii() and 0 < len(sms) < 5):
        raise ControlError(asked, f"{sms[:20]!r} is no number of SMs", "give 16, hold or default", usage=True)
    _needs_daemon(place, asked)
    number = {"hold": 0, "default": None}.get(sms, int(sms) if sms.isdecimal() else None)
    return act.change(place, as_json, "set-busy", who, args={"sms": number})


def _needs_daemon(place: Place, asked: str) -> None:
    if not place.client().alive():
        raise gone(asked, place)


@command("set-memory", "sudo detshare-ctl set-memory 4242 8G", ACCOUNT)
@click.argument("account", metavar="ACCOUNT")
@click.argument("limit", metavar="SIZE")
@click.option("--gpu", type=click.IntRange(0, MOST_GPUS - 1), help="Only this GPU.  [default: each GPU by itself]")
def set_memory(place: Place, as_json: bool, account: str, limit: str, gpu: int | None) -> int:
    """Limit GPU memory; the kernel holds it.

    SIZE is 512M, 8G, a number of bytes, or max for no limit. A request beyond the limit gets the driver's own answer
    for a full GPU. Needs detshare.ko.
    """
    return act.change(place, as_json, "set-memory", account, args={"limit": limit, "gpu": gpu})


@main.group("tenant", cls=Tenants, context_settings={"help_option_names": ["-h", "--help"]})
def tenant() -> None:
    """Let programs share a memory limit under a name.

    Each command takes --json.
    """


_name = click.argument("name")


@command("add", "sudo detshare-ctl tenant add red", group=tenant)
@_name
def tenant_add(place: Place, as_json: bool, name: str) -> int:
    """Make a tenant."""
    return act.change(place, as_json, "tenant-add", name)


@command("attach", "sudo detshare-ctl tenant attach red 4242", group=tenant)
@_name
@_who
def tenant_attach(place: Place, as_json: bool, name: str, who: str) -> int:
    """Put a program, and the children that it makes later, under a tenant."""
    return act.change(place, as_json, "tenant-attach", who, args={"tenant": name})


@command("list", "sudo detshare-ctl tenant list", group=tenant)
def tenant_list(place: Place, as_json: bool) -> None:
    """List tenants with their limits and programs."""
    with place.control("list tenants", changes=False) as (control, _):
        answer = control.programs()
    if as_json:
        _print_json({"tenants": answer["tenants"], "accounts": answer["accounts"]})
        return
    console = Console(highlight=False)
    for line in tables.warnings(answer):
        console.print(line)
    if answer["tenants"]:
        console.print(tables.tenants(answer))
    elif answer["backend"] == "kmod":
        console.print("there is no tenant; make one: detshare-ctl tenant add NAME")
    else:
        raise ControlError("list tenants", str(NeedsModule(answer["backend"])), LOAD_MODULE)


@command("del", "sudo detshare-ctl tenant del red", group=tenant)
@_name
def tenant_del(place: Place, as_json: bool, name: str) -> int:
    """Forget a tenant and its limits; its programs go on without them."""
    return act.change(place, as_json, "tenant-del", name)


@command("pause", "sudo detshare-ctl pause 4242")
@_who
@click.option("--foreground", is_flag=True, help="Hold it until Ctrl-C or SIGTERM, then resume; needs no daemon.")
def pause(place: Place, as_json: bool, who: str, foreground: bool) -> int:
    """Take a program off the GPU until `resume`.

    Whatever it runs, an endless kernel too; it loses nothing. If the daemon ends, the program runs again.
    """
    if foreground:
        return act.hold(place, as_json, who)
    if not place.client().alive():
        missing = gone(f"pause {who}", place)
        following = f"{missing.next_step}; or hold it here: detshare-ctl pause {who} --foreground"
        raise ControlError(missing.asked, missing.stopped + " (nobody would resume the program)", following)
    return act.change(place, as_json, "pause", who)


@command("resume", "sudo detshare-ctl resume 4242")
@_who
def resume(place: Place, as_json: bool, who: str) -> int:
    """Let a paused program run on."""
    return act.change(place, as_json, "resume", who)


@command("preempt", "sudo detshare-ctl preempt 4242")
@_who
def preempt(place: Place, as_json: bool, who: str) -> int:
    """Take a program off the GPU once.

    What it runs is saved and goes on at its next turn.
    """
    return act.change(place, as_json, "preempt", who)


@command("release", "sudo detshare-ctl release --all")
@click.argument("who", required=False)
@click.option("--all", "everyone", is_flag=True, help="Release every program.")
def release(place: Place, as_json: bool, who: str | None, everyone: bool) -> int:
    """Put a program back as it was found.

    Its slices and levels are as before DetShare, and nothing is remembered for it.
    """
    if (who is None) is not everyone:
        raise ControlError("release", "it needs either WHO or --all", "detshare-ctl release --help", usage=True)
    return act.change(place, as_json, "release", "*" if who is None else who)


@command("doctor", "sudo detshare-ctl doctor")
def doctor(place: Place, as_json: bool) -> int:
    """Check this machine and say what is missing.

    Backend, driver, rights and daemon, each with the next step. Exits with 1 where a check failed.
    """
    client = place.client()
    try:
        answer = client.doctor() if client.alive() else oneshot.doctor(place.backend, place.run_dir)
    except ControlError as error:
        answer = oneshot.doctor(place.backend, place.run_dir)
        if not any(check["ok"] is False for check in answer["checks"]):
            raise error
    if as_json:
        _print_json(answer)
    else:
        Console(highlight=False).print(tables.checks(answer))
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
    sys.stdout.flush()


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
