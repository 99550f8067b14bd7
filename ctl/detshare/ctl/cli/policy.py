# SPDX-License-Identifier: Apache-2.0
"""The commands about policies: policy list|show|set|unset|resume, why, replay."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from detshare.ctl.cli import tables
from detshare.ctl.cli.command import command, main
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy import registry

if TYPE_CHECKING:
    from detshare.ctl.policy.decisions.replay import Difference

F = TypeVar("F", bound=Callable[..., Any])
_EXAMPLE: Final = """\
Example:
  sudo detshare-ctl policy list
  sudo detshare-ctl policy set tpot-first tpot_ms=40
  sudo detshare-ctl policy set ./mine.py
  sudo detshare-ctl policy set fair --gpu 1
  sudo detshare-ctl policy unset --gpu 1
  sudo detshare-ctl policy resume 4242
"""


class Policies(click.Group):
    """Shows how its commands go together."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write(_EXAMPLE)


@main.group("policy", cls=Policies, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """See and change who decides.

    The policy decides on what people left open: what you set by hand wins, until `release` or `policy resume`.
    Each command takes --json.
    """


def _gpu(text: str, required: bool = False) -> Callable[[F], F]:
    return click.option("--gpu", metavar="GPU", required=required, help=text)


def _check_gpu(asked: str, gpu: str | None) -> None:
    if gpu is not None and (not gpu.strip() or len(gpu) > 64 or not gpu.isascii() or not gpu.isprintable()):
        raise ControlError(asked, f"{gpu[:60]!r} is no GPU", "give its number, or its UUID's beginning", usage=True)


def _daemon(place: Place, asked: str) -> Client:
    client = place.client()
    if not client.alive():
        raise gone(asked, place)
    return client


@command("list", "sudo detshare-ctl policy list", group=group)
def list_(place: Place, as_json: bool) -> None:
    """List the policies that there are, with their parameters."""
    client = place.client()
    answer: dict[str, Any] = {"policy": None, "known": [asdict(each) for each in registry.known()]}
    if client.alive():
        answer = client.policy()
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    now = (answer["policy"] or {}).get("name")
    for each in answer["known"]:
        mark = "*" if each["name"] == now else " "
        click.echo(f"{mark} {each['name']}: {tables.clean(each['problem'] or each['rule'])}")
        for name, kind, default in each["params"]:
            click.echo(f"    {name}={default} ({kind})")
    if now and all(each["name"] != now for each in answer["known"]):
        click.echo(f"* {tables.clean(now)}")


@command("show", "sudo detshare-ctl policy show", group=group)
def show(place: Place, as_json: bool) -> None:
    """Show the policy that decides, what it did, and what was refused to it.

    Policies of single GPUs are after that of all others.
    """
    answer = _daemon(place, "policy show").policy()["policy"]
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    _tell(answer)


def _tell(status: dict[str, Any]) -> None:
    _tell_one(status, "")
    for each in status.get("gpus", ()):
        where = f"GPU {each['gpu']}" if each["gpu"] is not None else f"GPU {each['uuid']}, which is not there"
        _tell_one(each, f", {where}")


def _tell_one(status: dict[str, Any], where: str) -> None:
    params = "".join(f" {name}={value}" for name, value in status["params"].items())
    click.echo(tables.clean(f"policy {status['name']}{params}{where}"))
    if status["rule"]:
        click.echo(tables.clean(status["rule"]))
    if status["failed"]:
        click.echo(tables.clean(f"FAILED: {status['failed']}; what it decided stands, nothing new is decided"))
    for remark in status.get("remarks", ()):
        click.echo(tables.clean(f"here: {remark}"))
    counts = status["counts"]
    click.echo(
        f"asked {counts['calls']} times; {counts['actions']} decision(s) done, {counts['refused']} refused, "
        f"{counts['undone']} undone at a switch; {status['standing']} stand(s)"
    )
    if status["latency_p99_ms"] is not None:
        click.echo(
            f"from event to decision: {status['latency_p50_ms']:g} ms, p99 {status['latency_p99_ms']:g} ms; slowest "
            f"hook {status['slowest_ms']:g} ms of {status['limit_ms']:g} ms"
        )
    for refused in status["refused"][-5:]:
        when = time.strftime("%H:%M:%S", time.localtime(refused["when"]))
        click.echo(tables.clean(f"refused {when}: {refused['text']}"))


@command("set", "sudo detshare-ctl policy set tpot-first tpot_ms=40", group=group)
@click.argument("name", metavar="NAME|FILE.py[:CLASS]")
@click.argument("params", metavar="[KEY=VALUE]...", nargs=-1)
@_gpu("For this GPU alone: its number, or the beginning of its UUID.  [default: all that have none of their own]")
def set_(place: Place, as_json: bool, name: str, params: tuple[str, ...], gpu: str | None) -> None:
    """Let another policy decide from now on; nothing is interrupted.

    It stays so over a restart of the daemon, until the daemon's configuration names another one. What the former policy
    had set and the new one does not want is put back; what people set stays. A file is run inside the daemon: only
    root may name one.
    """
    asked = " ".join(["policy set", name, *params, *(["--gpu", gpu] if gpu is not None else [])])
    _check_gpu(asked, gpu)
    given = _params(asked, params)
    if registry.is_file(name):
        path, colon, cls = name.rpartition(":") if ".py:" in name else (name, "", "")
        name = f"{Path(path).resolve()}{colon}{cls}"  # the daemon has a folder of its own
    answer = _daemon(place, asked).policy_set(name, given, gpu or "")
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    _tell(answer)


@command("unset", "sudo detshare-ctl policy unset --gpu 1", group=group)
@_gpu("Its number, or the beginning of its UUID.", required=True)
def unset(place: Place, as_json: bool, gpu: str) -> None:
    """Let the policy of all other GPUs decide for one that has its own.

    It stays so over a restart of the daemon, also where the configuration has a policy for that GPU.
    """
    asked = f"policy unset --gpu {gpu}"
    _check_gpu(asked, gpu)
    answer = _daemon(place, asked).policy_unset(gpu)
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    _tell(answer)


def _params(asked: str, params: tuple[str, ...]) -> dict[str, str]:
    given: dict[str, str] = {}
    for each in params:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise ControlError(asked, f"{each[:60]!r} is no key=value", "see: detshare-ctl policy list", usage=True)
        given[key] = value
    return given


@command("resume", "sudo detshare-ctl policy resume 4242", group=group)
@click.argument("who")
def resume(place: Place, as_json: bool, who: str) -> None:
    """Give programs back to the policy, whatever people set for them.

    WHO may also be a class whose row somebody wrote.
    """
    answer = _daemon(place, f"policy resume {who}").policy_resume(who)
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    whom = ", ".join(map(str, answer["resumed"])) or f"class {answer['class']}"
    click.echo(tables.clean(f"{whom}: the policy decides again"))


@command("deadline", "sudo detshare-ctl policy deadline 4242 20ms", group=group)
@click.argument("who")
@click.argument("goal", metavar="TIME|off")
def deadline(place: Place, as_json: bool, who: str, goal: str) -> None:
    """Say in what time a request of a program is to be done.

    TIME is such as 500us, 20ms or 1.5s. Policies that know of deadlines act where one would be missed (slo-aware does);
    it stands as long as the program lives.
    """
    asked = f"policy deadline {who} {goal[:20]}"
    us = None
    if goal != "off":
        unit = next((unit for unit in ("us", "ms", "s") if goal.endswith(unit)), "")
        try:
            us = float(goal.removesuffix(unit)) * {"us": 1.0, "ms": 1e3, "s": 1e6}[unit]
        except (KeyError, ValueError):
            us = float("nan")
        if not 1 <= us <= 3.6e9:
            raise ControlError(asked, f"{goal[:20]!r} is no time", "give 500us, 20ms, 1.5s, or off", usage=True)
    answer = _daemon(place, asked).policy_deadline(who, us)
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    told = "no deadline any more" if us is None else f"deadline {goal}"
    click.echo(tables.clean(f"{', '.join(map(str, answer['pids']))}: {told}"))


@command("why", "sudo detshare-ctl why 4242 --since 1h")
@click.argument("pid", type=click.IntRange(1, 4_194_304))
@click.option("--since", default="10m", show_default=True, metavar="TIME", help="How far back: 30s, 10m, 2h, 1d.")
def why(place: Place, as_json: bool, pid: int, since: str) -> None:
    """Tell why a program stands as it does: who decided what, by which rule, and what was refused."""
    asked = f"why {pid}"
    answer = _daemon(place, asked).why(pid, _seconds(asked, since))
    if as_json:
        click.echo(json.dumps(answer, indent=1))
        return
    click.echo(tables.clean(f"{pid} {answer['command']}".rstrip()))
    for line in answer["now"]:
        click.echo(tables.clean(f"  {line}"))
    policy = answer["policy"]
    click.echo(tables.clean(f"policy {policy['name']}: {policy['rule']}"))
    if policy["failed"]:
        click.echo(tables.clean(f"  it failed: {policy['failed']}"))
    click.echo(f"in the last {since}: {len(answer['decisions'])} line(s), {answer['refused']} refused")
    for each in answer["decisions"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each["when"]))
        click.echo(tables.clean(f"  {when} {each['text']}"))
        if each.get("active"):
            click.echo(tables.clean(f"           active then: {', '.join(each['active'][:8])}"))


@command("replay", "sudo detshare-ctl replay /run/detshare/decisions --policy strict low=5")
@click.argument("log", metavar="LOG", type=click.Path(exists=True, path_type=Path))
@click.option("--policy", "name", required=True, metavar="NAME|FILE.py[:CLASS]", help="The policy to try.")
@click.argument("params", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="Differences that are shown.")
def replay(place: Place, as_json: bool, log: Path, name: str, params: tuple[str, ...], most: int) -> int:
    """Run a policy over recorded inputs and show what it would have decided differently.

    LOG is the daemon's folder of decisions, or one segment of it. Lines with - were decided then and not by this
    policy, lines with + by this policy and not then. Nothing is changed, no daemon is asked.
    """
    asked = f"replay {log} --policy {name}"
    from detshare.ctl.policy.decisions.replay import Replay  # not at the top: no other command is to wait for it

    made = Replay(registry.load(name, _params(asked, params)), log)
    shown: list[Difference] = []
    count = 0
    try:
        for each in made.differences():
            count += 1
            if count <= most:
                shown.append(each)
                if not as_json:
                    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.when))
                    whom = f" {each.tenant}" if each.tenant else ""
                    click.echo(tables.clean(f"{when} {each.gpu[:12]} {each.hook}{whom}"))
                    for line in each.text():
                        click.echo(tables.clean(f"  {line}"))
    except OSError as error:
        if error.filename is None:
            raise  # of standard output
        raise ControlError(asked, f"the log cannot be read: {error}", "run it as root, or copy the log") from error
    if not made.turns:
        raise ControlError(asked, "the log has no record of a hook", "was there a program on a GPU? see: policy show")
    names = ("turns", "hooks", "recorded", "replayed", "same", "refused", "left_out", "failed")
    counts = {each: getattr(made, each) for each in names}
    if as_json:
        rows = [{**asdict(each)} for each in shown]
        click.echo(json.dumps({**counts, "policy": name, "differing": count, "differences": rows}, indent=1))
    else:
        if count > len(shown):
            click.echo(f"... and {count - len(shown)} more")
        click.echo(
            f"{made.hooks} hooks: {made.recorded} decision(s) then, {made.replayed} by {tables.clean(name)}, "
            f"{made.same} the same; {made.refused} refused to it"
        )
        if made.left_out:
            click.echo(f"the log left out {made.left_out} record(s) in which nothing had been decided")
    if made.failed:
        raise ControlError(asked, f"the policy failed: {made.failed}", "mend it, and try again")
    return 0


def _seconds(asked: str, text: str) -> float:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        value = float(number) * units[unit]
    except ValueError:
        value = -1.0
    if not 0 <= value <= 7 * 86400:
        raise ControlError(asked, f"{text[:20]!r} is no time up to a week", "write 30s, 10m, 2h or 1d", usage=True)
    return value
