# SPDX-License-Identifier: Apache-2.0
"""Doing a changing verb for the terminal, and telling what came of it."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from detshare.ctl.backends.verbs import explain
from detshare.ctl.cli import tables
from detshare.ctl.cli.console import Console
from detshare.ctl.cli.link import Control, Place
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import UNMANAGED
from detshare.ctl.core.verbs import VERBS, check_who, describe
from detshare.ctl.oneshot import start_command

POLL_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.25
"""period in which a pause that is held here is renewed for contexts made meanwhile"""
_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})

Json = dict[str, Any]


def change(
    place: Place,
    as_json: bool,
    verb: str,
    who: str,
    args: Mapping[str, object],
    wait: float | None = None,
    none: str = "",
    asked: str = "",
) -> int:
    """Do it and print the answer. `none`: what is said, with exit code 0, where nobody has anything set.

    `asked`: the request as it was typed, where the arguments in JSON no longer tell.
    """
    asked = asked or describe(verb, who, args)
    _check(asked, who)
    with place.control(asked, changes=True) as (control, daemon), _as_typed(verb, asked):
        answer = control.verb(verb, who, **args)
        if not daemon and wait:
            answer = _wait(control, verb, who, args, answer, wait)
    pending = not daemon and VERBS[verb].waits and _without_context(answer)
    if pending:
        stopped = "it has no context on a GPU yet"
        if wait:
            stopped += f", nor had it after {wait:g} s"
        stopped += f"; kept in {place.run_dir}, a daemon that is started while it lives will apply it"
        again = f"{start_command(place.backend, place.run_dir)}, or wait here: detshare-ctl {asked} --wait 60"
        _fail(as_json, answer, ControlError(asked, stopped, again))
        return 1
    code = tell(as_json, asked, answer, none)
    if not code and not daemon and place.backend == "model":
        start = start_command("model", place.run_dir)
        click.echo(f"the model ended with this command; for one that goes on: {start}", err=True)
    return code


@contextlib.contextmanager
def _as_typed(verb: str, asked: str) -> Iterator[None]:
    """An error of the verb calls it as it was typed: a daemon, or a backend, has the arguments in JSON only."""
    try:
        yield
    except ControlError as error:
        if error.asked.startswith((verb, VERBS[verb].words)):
            error.asked = asked
        raise


def _check(asked: str, who: str) -> None:
    try:
        check_who(who)
    except BadRequest as error:
        raise explain(error, asked) from error


def tell(as_json: bool, asked: str, answer: Json, none: str = "") -> int:
    """Print what a verb did; 0, or 1 where nothing was changed. `none` is as for `change`."""
    if none and not answer["changed"] and all(skip["reason"] == UNMANAGED for skip in answer["skipped"]):
        click.echo(json.dumps(answer, indent=1) if as_json else none)
        return 0
    named = [skip for skip in answer["skipped"] if skip["pid"] and str(skip["pid"]) not in asked.split()]
    reasons = [f"{skip['pid']}: {skip['reason']}" if skip in named else skip["reason"] for skip in answer["skipped"]]
    if not answer["changed"]:
        # where a reason names `detshare-ctl ps` as the next step, that is said once
        told = (tables.clean(reason).partition("; `detshare-ctl ps`")[0] for reason in reasons)
        stopped = "; ".join(told) or "nothing was to be changed"
        _fail(as_json, answer, ControlError(asked, stopped, "see which programs there are: detshare-ctl ps"))
        return 1
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    else:
        console = Console()
        for line in tables.outcome(answer):
            console.print(line, soft_wrap=True)
    for reason in reasons:
        click.echo(f"left alone: {tables.clean(reason)}", err=True)
    return 0


def _fail(as_json: bool, answer: Json, error: ControlError) -> None:
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    click.echo(f"detshare-ctl: {error}", err=True)


def _without_context(answer: Json) -> bool:
    """Whether it would apply to something, only later, and not by itself."""
    return bool(answer["changed"]) and not any(change["tsgs"] or change.get("stands") for change in answer["changed"])


def _wait(control: Control, verb: str, who: str, args: Mapping[str, object], answer: Json, seconds: float) -> Json:
    """Try again until a program has a context. A program that is refused for another reason ends it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        nobody = not answer["changed"] and all(skip["pid"] == 0 for skip in answer["skipped"])
        if not nobody and not _without_context(answer):
            break
        time.sleep(POLL_SECONDS)
        answer = control.verb(verb, who, **args)
    return answer


def hold(place: Place, as_json: bool, who: str) -> int:
    """Pause, stay until a signal or until the program ends, then resume."""
    asked = f"{describe('pause', who, {})} --foreground"
    _check(asked, who)
    # from here on signals wait for sigtimedwait below: none may end us between pausing and resuming
    with place.control(asked, changes=True, guarded=True) as (control, _):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            answer = control.verb("pause", who)
            code = tell(as_json, asked, answer)
            if code:
                return code
            pids = {change["pid"] for change in answer["changed"]}
            click.echo("held until Ctrl-C or SIGTERM", err=True)
            while signal.sigtimedwait(_SIGNALS, LOOK_SECONDS) is None:
                pids &= {program["pid"] for program in control.programs()["programs"]}
                if not pids:
                    click.echo("the program ended", err=True)
                    return 0
            failed = [problem for pid in sorted(pids) for problem in _resume(control, pid)]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if failed:
        raise ControlError(f"resume {who}", "; ".join(failed), f"detshare-ctl resume {who}, or: detshare-ctl doctor")
    click.echo("resumed", err=True)
    return 0


def _resume(control: Control, pid: int) -> list[str]:
    answer = control.verb("resume", str(pid))
    alive = {program["pid"] for program in control.programs()["programs"] if program["state"] == "paused"}
    return [f"{skip['pid']}: {skip['reason']}" for skip in answer["skipped"]] if pid in alive else []
