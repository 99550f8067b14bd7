# SPDX-License-Identifier: Apache-2.0
"""The commands that change something, made from the verbs' definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from detshare.ctl.backends.verbs import explain
from detshare.ctl.cli import act
from detshare.ctl.cli.command import ACCOUNT, HELD, Tenants, class_lines, command, main
from detshare.ctl.cli.link import Place, gone
from detshare.ctl.core import classes, kinds, options
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.verb import Arg, Kind, Typed, Verb, Whom
from detshare.ctl.core.verbs import VERBS, describe

__all__ = ["add", "tenant"]

_WHOM: Final[Mapping[Whom, str]] = {
    Whom.PROGRAM: "who",
    Whom.HELD: "who",
    Whom.ACCOUNT: "account",
    Whom.TENANT: "name",
    Whom.CLASS: "class",
    Whom.OURS: "class",
}
"""how the argument is called; without one the verb is for all"""
_MORE: Final[Mapping[Whom, str]] = {Whom.HELD: HELD, Whom.ACCOUNT: ACCOUNT}
_WAIT: Final = click.option(
    "--wait",
    type=options.Seconds(0, 86400),
    metavar="SECONDS",
    help="Without a daemon: try again until the program has a GPU context.",
)


@click.group("tenant", cls=Tenants, context_settings={"help_option_names": ["-h", "--help"]})
def tenant() -> None:
    """Let programs share a memory limit under a name.

    Each command takes --json.
    """


def _type(kind: Kind) -> click.ParamType[Any] | None:
    match kind:
        case kinds.Sms() | kinds.Rate():
            return click.STRING  # words, too: see Typed
        case kinds.Permille():
            return options.Finite(0, 100)
        case kinds.Whole():
            return click.IntRange(0 if kind.zero else kind.allowed[0], kind.allowed[-1])
        case kinds.Number():
            return options.Finite(0, kind.most)
        case kinds.Level():
            return click.Choice(kind.names)
    return None


def _key(name: str) -> str:
    return "klass" if name == "class" else name


def _parameter(arg: Arg) -> Callable[[Any], Any]:
    if not arg.option:
        return click.argument(_key(arg.name), metavar=arg.metavar, type=_type(arg.kind))
    how: dict[str, Any] = {"type": _type(arg.kind), "metavar": arg.metavar or None}
    if isinstance(arg.kind, kinds.Flag):
        how = {"is_flag": True}
    return click.option(f"--{arg.option}", arg.name, help=arg.help, **how)


def _whom(verb: Verb) -> Callable[[Any], Any]:
    name = _WHOM[verb.whom]
    ours = click.Choice(list(classes.CLASSES)) if verb.whom is Whom.OURS else None
    return click.argument(_key(name), metavar=name.upper(), type=ours)


def _given(verb: Verb, typed: Mapping[str, Any], asked: str) -> dict[str, object]:
    """The arguments in JSON. ControlError where a text cannot be meant."""
    made = dict(typed)
    for arg in verb.args:
        value = typed.get(arg.name)
        try:
            if isinstance(arg.kind, Typed) and isinstance(value, str | float):
                made[arg.name] = arg.kind.typed(str(value))
        except BadRequest as error:
            raise explain(error, asked) from error
    return {name: value for name, value in made.items() if value is not None}


def _add(verb: Verb, *more: Callable[[Any], Any], run: Callable[..., int | None] | None = None) -> None:
    """Make the command of a verb; `run` does it where its words say more than the verb."""

    def change(place: Place, as_json: bool, wait: float | None = None, **values: Any) -> int:
        who = "*" if verb.whom is Whom.ALL else values[_key(_WHOM[verb.whom])]
        typed = {arg.name: values[_key(arg.name)] for arg in verb.args}
        typed = {name: value for name, value in typed.items() if value is not None and value is not False}
        asked = describe(verb.name, who, typed)
        given = _given(verb, typed, asked)
        if verb.daemon and verb.unless not in given and not place.client().alive():
            raise gone(asked, place)
        return act.change(place, as_json, verb.name, who, given, wait, asked=asked)

    function = run or change
    parameters = [_parameter(arg) for arg in verb.args]
    if run is None and verb.whom is not Whom.ALL:
        parameters.insert(len(parameters) if verb.last else 0, _whom(verb))
    if verb.waits:
        parameters.append(_WAIT)
    for each in reversed([*parameters, *more]):
        function = each(function)
    function.__doc__ = verb.help
    group, _, name = verb.words.rpartition(" ")
    lines = class_lines() if any(arg.metavar == "CLASS" for arg in verb.args) else _MORE.get(verb.whom, "")
    example = f"sudo detshare-ctl {verb.words} {verb.example}"
    if group:
        main.add_command(tenant)
    command(name, example, lines, tenant if group else main)(function)


def _pause(place: Place, as_json: bool, who: str, foreground: bool) -> int:
    if foreground:
        return act.hold(place, as_json, who)
    if not place.client().alive():
        missing = gone(f"pause {who}", place)
        following = f"{missing.next_step}; or hold it here: detshare-ctl pause {who} --foreground"
        raise ControlError(missing.asked, missing.stopped + " (nobody would resume the program)", following)
    return act.change(place, as_json, "pause", who, {})


def _release(place: Place, as_json: bool, who: str | None, everyone: bool) -> int:
    if (who is None) is not everyone:
        raise ControlError("release", "it needs either WHO or --all", "detshare-ctl release --help", usage=True)
    if who is None:
        return act.change(place, as_json, "release", "*", {}, none="nothing is set, so nothing is released")
    return act.change(place, as_json, "release", who, {})


_FOREGROUND: Final = click.option(
    "--foreground", is_flag=True, help="Hold it until Ctrl-C or SIGTERM, then resume; needs no daemon."
)
_EVERYONE: Final = click.option("--all", "everyone", is_flag=True, help="Release every program.")


def add() -> None:
    """Add them to detshare-ctl, in the order of their definitions."""
    for verb in VERBS.values():
        match verb.name:
            case "pause":
                _add(verb, click.argument("who"), _FOREGROUND, run=_pause)
            case "release":
                _add(verb, click.argument("who", required=False), _EVERYONE, run=_release)
            case _:
                _add(verb)
