# SPDX-License-Identifier: Apache-2.0
"""Running an experiment on this machine's GPU to its end, or to where it breaks off, and writing what it measured."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import click

from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.steer import SteerError

__all__ = ["conduct"]


def _terminated(number: int, _frame: object) -> None:
    """Leave by an exception, so that no workload and no daemon outlives the experiment."""
    raise SystemExit(128 + number)


def conduct(options: Options, experiment: Callable[[Session], None]) -> None:
    """Run the experiment and write what it measured; ClickException (exit code 1) where it cannot."""
    if os.geteuid():
        raise click.ClickException(f"bench {options.name} steers programs of this machine; run it as root")
    if not Path("/dev/nvidiactl").exists():
        raise click.ClickException(
            f"bench {options.name} needs an NVIDIA GPU with its driver loaded, and there is no /dev/nvidiactl here; "
            "next: run it on a machine with one, or see DetShare at work on a model: make demo"
        )
    signal.signal(signal.SIGTERM, _terminated)
    kept = "nothing was written"
    try:
        with Session(options) as session:
            try:
                experiment(session)
            except (ProgramError, SteerError, SystemExit):
                if session.rows:  # GPU time is dear: what was measured so far is kept
                    kept = f"the rows so far are in {session.write('-cut-off')}"
                raise
            path = session.write()
    except (ProgramError, SteerError) as error:
        raise click.ClickException(f"bench {options.name} stopped, {kept}: {error}") from error
    except SystemExit:
        click.echo(f"bench {options.name} was ended, {kept}", err=True)
        raise
    judged = [row.ok for row in session.rows if row.ok is not None]
    click.echo(f"{path}: {sum(judged)} of {len(judged)} targets met, {len(session.rows)} rows, {session.elapsed:.0f} s")
    for row in session.rows:
        if row.ok is False:
            against = "" if row.baseline is None else f", baseline {row.baseline:g}"
            click.echo(f"  not met: {row.what}: {row.value:g} {row.unit}, target {row.target}{against}")
