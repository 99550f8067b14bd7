# SPDX-License-Identifier: Apache-2.0
"""detshare-top: the command. The screen is detshare.ctl.top."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from detshare.ctl.cli.console import Console
from detshare.ctl.core import options, streams
from detshare.ctl.core.errors import ControlError
from detshare.ctl.top.draw import Painter, can_show_blocks
from detshare.ctl.top.keys import View
from detshare.ctl.top.rows import SORTS
from detshare.ctl.top.source import Machine, Source, SourceError

__all__ = ["alone", "main"]


def alone(run_dir: Path) -> dict[str, Any]:
    """A look of our own, where no daemon answers."""
    # it brings the driver tables and NVML with it, which a screen on the daemon does not need
    from detshare.ctl.oneshot import AUTO, OneShot

    with OneShot.open(AUTO, run_dir, "list programs without a daemon", lock=False) as shot:
        return shot.programs()


def _fail(error: ControlError | SourceError, as_json: bool = False) -> None:
    if as_json and isinstance(error.__cause__, ControlError):
        click.echo(json.dumps(error.__cause__.to_json()))
    click.echo(f"detshare-top: {error}", err=True)
    sys.exit(1)


def _answer(lines: Iterable[str]) -> None:
    try:
        with streams.answering():
            click.echo("\n".join(lines))
    except ControlError as error:
        _fail(error)


def _once(source: Source, view: View) -> None:
    try:
        snapshot = source.look()
    except SourceError as error:
        _fail(error)
        return
    console = Console()
    lines = Painter(console.width, None, can_show_blocks(console)).frame(snapshot, view)
    if console.is_terminal:
        console.print(*lines, sep="\n", soft_wrap=True)
    else:  # without styles there is nothing for rich to do, and it takes its time
        _answer(line.plain.rstrip() for line in lines)
    if not source.can_act:
        click.echo(
            "no daemon answers: this was one read-only look (start detshared to change anything)", err=True
        )


@click.command("detshare-top", cls=streams.Tells, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--run-dir",
    type=options.RUN_DIR,
    help="Folder of the daemon's socket.  [default: DETSHARE_RUN_DIR or /run/detshare]",
)
@click.option(
    "--interval",
    type=options.Seconds(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option(
    "--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True, help="Order at the start."
)
@click.option("--filter", "text", default="", help="Show only programs with this text.")
@click.option("--once", is_flag=True, help="Print one frame and exit; also where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one snapshot as JSON and exit.")
def main(run_dir: Path | None, interval: float, sort: str, text: str, once: bool, as_json: bool) -> None:
    """Watch the GPU programs of this machine, and steer them with keys (? shows them).

    Changes go through detshared; where none runs, what is shown is read-only.

    Example: sudo detshare-top --sort memory
    """
    streams.any_encoding()
    source, view = Machine(run_dir, alone, ticker=not (once or as_json)), View(sort=sort, filter=text)
    if as_json:
        try:
            snapshot = source.look()
        except SourceError as error:
            _fail(error, as_json)
            return
        _answer([json.dumps(snapshot)])
    elif once:
        _once(source, view)
    elif sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty():
        from detshare.ctl.top.app import run  # the live screen alone needs it, and --once is to be fast

        sys.exit(run(source, interval, Console(), sys.stdin.fileno(), view))
    else:
        raise click.UsageError("a live screen needs a terminal; for a script or a pipe: --once (or --json)")


if __name__ == "__main__":
    main(prog_name="detshare-top")
