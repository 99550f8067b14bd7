# SPDX-License-Identifier: Apache-2.0
"""``detshare bench field``: the command lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from detshare.ctl.core.options import Seconds
from detshare.tools.bench.conduct import conduct
from detshare.tools.bench.field import overview as overviews
from detshare.tools.bench.field import report as reports
from detshare.tools.bench.field.cells import REQUESTS, Pace, plan
from detshare.tools.bench.field.mig import Mig
from detshare.tools.bench.field.peers import peer
from detshare.tools.bench.field.policies import policed
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.run import Asked, needed_s, run, seconds
from detshare.tools.bench.field.suites import SUITES
from detshare.tools.bench.field.systems import System, shipped
from detshare.tools.bench.mix.store import CellsError, load
from detshare.tools.bench.session import Options

__all__ = ["field"]

DEFAULT_BUDGET = 3600.0
_SUITE = click.option("--suite", type=click.Choice(tuple(SUITES)), default="field-tally", show_default=True)
_SYSTEM = click.option("--system", "names", multiple=True, metavar="NAME", help="Only this way; may be given again.")
_PEER = click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=FOLDER[:COMMAND]",
    help="A way in a folder: HAMi-core, XSched; any other by a COMMAND there that runs a program, whose words follow.",
)
_BUILD = click.option(
    "--peer-build",
    "builds",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Run this in the peer's folder first, to build it there.",
)
_CELLS = click.option("--cells", "patterns", multiple=True, metavar="PATTERN", help="Only cells whose name has this.")
_RESUME = click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A SUITE-cells.jsonl of an earlier run, whose cells count as measured.",
)
_REQUESTS = click.option("--requests", type=click.IntRange(20, 1_000_000), default=REQUESTS, show_default=True)
_MOST = click.option("--most-s", type=Seconds(1, 3600), default=12.0, show_default=True, help="Of a cell.")


def _asked(
    suite: str,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    builds: tuple[str, ...],
    patterns: tuple[str, ...],
    resume: Path | None,
    requests: int,
    most: float,
) -> Asked:
    default, temporal, *others = shipped()
    policies = policed() if SUITES[suite].serves else ()  # beside those that share their programs
    systems: list[System] = [default, temporal, *policies, *others, Mig()]
    try:
        systems += [peer(text, builds) for text in peers]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--peer") from error
    for text in builds:
        if text.partition("=")[0] not in [each.partition("=")[0] for each in peers]:
            raise click.BadParameter(f"{text!r}: there is no --peer of that name", param_hint="--peer-build")
    known = [each.name for each in systems]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of: {', '.join(known)}", param_hint="--system")
    try:
        resumed = tuple(load(resume)) if resume is not None else ()
    except (CellsError, OSError) as error:
        raise click.BadParameter(str(error), param_hint="--resume") from error
    some = tuple(each for each in systems if not names or each.name in names)
    pace = Pace(requests=requests, most=most)
    found = Asked(SUITES[suite], some, patterns, resumed, pace)
    if not plan(found.suite, found.systems, patterns, [each.cell for each in resumed]):
        why = "no cell that is not measured yet; see: detshare bench field plan"
        raise click.BadParameter(why, param_hint="--cells")
    return found


@click.group()
def field() -> None:
    """Published workloads under other ways to share a GPU and under ours.

    \b
    Example:
      detshare bench field plan --suite field-tally
      sudo detshare bench field run --suite field-tally --budget-s 580
      detshare bench field report docs/results/raw/field-tally-cells.jsonl --out field.html
      detshare bench field overview docs/results
    """


@field.command("plan", epilog="Example: detshare bench field plan --suite field-tally --system MPS --json")
@_SUITE
@_SYSTEM
@_PEER
@_BUILD
@_CELLS
@_RESUME
@_REQUESTS
@_MOST
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def plan_command(
    suite: str,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    builds: tuple[str, ...],
    patterns: tuple[str, ...],
    resume: Path | None,
    requests: int,
    most_s: float,
    as_json: bool,
) -> None:
    """Print the cells that are left, how long they take, and where their programs differ from their source."""
    asked = _asked(suite, names, peers, builds, patterns, resume, requests, most_s)
    cells = plan(asked.suite, asked.systems, patterns, [each.cell for each in asked.resumed])
    times = [round(seconds(cell, asked, asked.resumed), 1) for cell in cells]
    total = round(needed_s(cells, asked, asked.resumed))
    used = dict.fromkeys(name for cell in cells for name in cell.programs)
    if as_json:
        about = {name: {"stands": PROGRAMS[name].stands, "differs": PROGRAMS[name].differs} for name in used}
        listed = [{"cell": cell.name, "seconds": time} for cell, time in zip(cells, times, strict=True)]
        head = {"suite": suite, "source": asked.suite.source, "seconds": total}
        click.echo(json.dumps({**head, "cells": listed, "programs": about}))
        return
    click.echo(asked.suite.source)
    for probe in asked.suite.probes:
        click.echo(f"  {probe.name}: {probe.about}")
    for name in used:
        click.echo(f"  {name}: {PROGRAMS[name].stands}: {PROGRAMS[name].differs or 'as there'}")
    for cell, time in zip(cells, times, strict=True):
        click.echo(f"{time:6.1f} s  {cell.name}")
    click.echo(f"{len(cells)} cells, about {total} s")


@field.command("run", epilog="Example: sudo detshare bench field run --suite field-tally --budget-s 580 --resume FILE")
@_SUITE
@_SYSTEM
@_PEER
@_BUILD
@_CELLS
@_RESUME
@_REQUESTS
@_MOST
@click.option("--seed", type=int, default=1, show_default=True, help="Of the arrivals.")
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="Of the daemon's socket.")
@click.option(
    "--budget-s",
    type=Seconds(30, 360_000),
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Seconds for all of it; what does not fit is left for --resume.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
def run_command(
    suite: str,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    builds: tuple[str, ...],
    patterns: tuple[str, ...],
    resume: Path | None,
    requests: int,
    most_s: float,
    **more: Any,
) -> None:
    """Measure a suite; writes SUITE.json and raw/SUITE-cells.jsonl, a line for each cell as soon as it is measured."""
    asked = _asked(suite, names, peers, builds, patterns, resume, requests, most_s)
    words = f"--suite {suite} --requests {requests} --most-s {most_s:g} --budget-s {more['budget_s']:g}"
    words += "".join(f" --system {name!r}" for name in names) + "".join(f" --peer {each!r}" for each in peers)
    words += "".join(f" --peer-build {each!r}" for each in builds)
    words += "".join(f" --cells {pattern!r}" for pattern in patterns) + (" --resume FILE" if resume else "")
    options = Options(
        suite, most_s, 1, more["out"], False, more["run_dir"], more["budget_s"], more["seed"], True, words, "field run"
    )
    conduct(options, lambda session: run(session, asked, options.out / "raw" / f"{suite}-cells.jsonl"))


@field.command("report", epilog="Example: detshare bench field report docs/results/raw/field-tally-cells.jsonl")
@click.argument("cells", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--suite", type=click.Choice(tuple(SUITES)), default="field-tally", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("field.html"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print better, equal, worse as JSON; write nothing.")
def report_command(cells: Path, suite: str, out: Path, as_json: bool) -> None:
    """One page of HTML from a file of cells: who beats whom, by how much, and where ours loses first."""
    try:
        some = load(cells)
    except (CellsError, OSError) as error:
        raise click.ClickException(f"read {cells}: {error}; next: run 'detshare bench field run' again") from error
    if as_json:
        click.echo(json.dumps(reports.table(some)))
        return
    try:
        source = os.path.relpath(cells, out.parent)
        out.write_text(reports.page(some, SUITES[suite], source), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"write {out}: {error.strerror}; next: name another file with --out") from error
    click.echo(f"{out}: {len(some)} cells")


@field.command("overview", epilog="Example: detshare bench field overview docs/results --picture mix-latency.svg")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path("docs/results"))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Instead of field.html in the folder.")
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="An SVG to show too.")
def overview_command(folder: Path, out: Path | None, picture: Path | None) -> None:
    """One page of HTML over all suites, from raw/SUITE-cells.jsonl in a folder of results."""
    out = out or folder / "field.html"
    try:
        some = overviews.parts(folder)
    except (CellsError, OSError) as error:
        raise click.ClickException(f"read {folder}: {error}; next: run 'detshare bench field run' again") from error
    measured = sum(bool(part.cells) for part in some)
    if not measured:
        raise click.ClickException(f"read {folder}: it has no raw/SUITE-cells.jsonl; next: name the results' folder")
    try:
        out.write_text(overviews.page(some, picture), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"write {out}: {error.strerror}; next: name another file with --out") from error
    click.echo(f"{out}: {measured} of {len(some)} suites, {sum(len(part.cells) for part in some)} cells")
