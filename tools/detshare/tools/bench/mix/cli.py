# SPDX-License-Identifier: Apache-2.0
"""``detshare bench mix`` and its kin: the command lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from detshare.ctl.core.options import Finite, Seconds
from detshare.tools.bench.conduct import conduct
from detshare.tools.bench.mix import gang, gang_pause, policies_gpu, random_mix, saturated
from detshare.tools.bench.mix import run as mixes
from detshare.tools.bench.mix.cells import chosen, plan
from detshare.tools.bench.mix.smoke import smoke
from detshare.tools.bench.mix.store import CellsError, load
from detshare.tools.bench.session import Options, Session

__all__ = ["COMMANDS", "mix"]

F = TypeVar("F", bound=Callable[..., Any])
BUDGET = 540.0


def _shared(budget: float) -> Callable[[F], F]:
    """Options of every command here."""

    def add(command: F) -> F:
        for option in (
            click.option("--seed", type=int, default=1, show_default=True, help="Of every random choice."),
            click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), help="Of the daemon's socket."),
            click.option(
                "--budget-s",
                type=Seconds(30, 36000),
                default=budget,
                show_default=True,
                help="Seconds for all of it; what does not fit is left out, and said.",
            ),
            click.option(
                "--out",
                type=click.Path(path_type=Path, file_okay=False),
                default=Path("docs/results"),
                show_default=True,
                help="Folder of the results.",
            ),
        ):
            command = option(command)
        return command

    return add


def _options(name: str, words: str, seconds: float, quick: bool, more: dict[str, Any]) -> Options:
    budget, seed = float(more["budget_s"]), int(more["seed"])
    words = f"{words} --budget-s {budget:g} --seed {seed}".strip()
    return Options(name, seconds, 1, more["out"], quick, more["run_dir"], budget, seed, True, words)


@click.command("mix", epilog="Example: sudo detshare bench mix --quick")
@click.option("--seconds", type=Seconds(2, 600), help="Of each cell (default 21, with --quick 6).")
@click.option("--period-ms", type=Finite(1, 1000), default=20.0, show_default=True, help="Of the requests.")
@click.option("--cells", "patterns", multiple=True, metavar="PATTERN", help="Only cells whose name has or matches it.")
@click.option("--quick", is_flag=True, help="The cells that tell most, without MPS, 6 s each.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A mix-cells.jsonl of an earlier run, whose cells count as measured.",
)
@click.option("--list", "listed", is_flag=True, help="Print the cells and how long they take, and end.")
@click.option("--smoke", "smokes", is_flag=True, help="Run each workload alone for 3 s, a line for each, and end.")
@_shared(BUDGET)
def mix(
    seconds: float | None,
    period_ms: float,
    patterns: tuple[str, ...],
    quick: bool,
    resume: Path | None,
    listed: bool,
    smokes: bool,
    **more: Any,
) -> None:
    """A server beside one to four backgrounds, under DetShare, default slicing and MPS.

    Writes mix.json and raw/mix-cells.jsonl, a line for each cell as soon as it is measured; a later run goes on with
    --resume. All of it takes some 20 minutes; --cells and --seconds choose parts.
    """
    try:
        resumed = tuple(load(resume)) if resume is not None else ()
    except (CellsError, OSError) as error:
        raise click.BadParameter(str(error), param_hint="--resume") from error
    asked = mixes.Asked(seconds or (6.0 if quick else 21.0), period_ms, quick, patterns, resumed)
    cells = chosen(plan(asked.available, quick), patterns, [each.cell for each in resumed])
    if not cells:
        raise click.BadParameter("no cell that is not measured yet; see them all: --list", param_hint="--cells")
    if listed:
        for cell in cells:
            click.echo(f"{mixes.length(cell, asked):5.0f} s  {cell.name}")
        click.echo(f"{len(cells)} cells, about {mixes.needed_s(cells, asked):.0f} s")
        return
    words = f"--seconds {asked.seconds:g} --period-ms {period_ms:g}" + (" --quick" if quick else "")
    words += "".join(f" --cells {pattern!r}" for pattern in patterns) + (" --resume FILE" if resume else "")
    options = _options("mix", words, asked.seconds, quick, more)
    if smokes:
        with Session(options) as session:
            raise SystemExit(1 if smoke(session, 3.0, patterns, click.echo) else 0)
    conduct(options, lambda session: mixes.run(session, asked, options.out / "raw" / "mix-cells.jsonl"))


@click.command("mix-saturated", epilog="Example: sudo detshare bench mix-saturated --quick")
@click.option("--seconds", type=Seconds(2, 600), help="Of each case (default 10, with --quick 6).")
@click.option("--quick", is_flag=True, help="One background, two floors.")
@_shared(BUDGET)
def mix_saturated(seconds: float | None, quick: bool, **more: Any) -> None:
    """A server that leaves no useful gaps, back to back and every 1.2 times its own time, with floors of 0 to 10 %.

    Writes mix-saturated.json. Takes about 6 minutes; with --quick about 2.
    """
    length = seconds or (6.0 if quick else 10.0)
    words = f"--seconds {length:g}" + (" --quick" if quick else "")
    conduct(_options("mix-saturated", words, length, quick, more), lambda session: saturated.run(session, quick))


@click.command("mix-random", epilog="Example: sudo detshare bench mix-random --minutes 2 --budget-s 240")
@click.option("--minutes", type=Finite(0.1, 600), default=10.0, show_default=True, help="Of random acts.")
@_shared(900.0)
def mix_random(minutes: float, **more: Any) -> None:
    """Random classes, weights, pauses, kills of programs and of the daemon, over eight programs: bits and progress.

    Writes mix-random.json. Takes the minutes and about two more; a smaller --budget-s makes the minutes fewer.
    """
    words = f"--minutes {minutes:g}"
    conduct(_options("mix-random", words, 60 * minutes, False, more), lambda session: random_mix.run(session, minutes))


@click.command("mix-gang", epilog="Example: sudo detshare bench mix-gang")
@click.option("--seconds", type=Seconds(2, 600), default=20.0, show_default=True, help="Of each case.")
@_shared(300.0)
def mix_gang(seconds: float, **more: Any) -> None:
    """Two training jobs of two ranks each on two GPUs beside a server on the first; then one job is killed in its turn.

    Needs two GPUs. Writes mix-gang.json. Takes about 3 minutes.
    """
    conduct(_options("mix-gang", f"--seconds {seconds:g}", seconds, False, more), gang.run)


@click.command("gang", epilog="Example: sudo detshare bench gang --lane spatial --hold-s 20")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=200, show_default=True, help="Pauses.")
@click.option("--hold-s", type=Seconds(1, 3600), default=60.0, show_default=True, help="Of the last one.")
@click.option(
    "--lane", type=click.Choice(("plain", "spatial")), default="plain", show_default=True, help="Of all ranks."
)
@click.option("--untold", is_flag=True, help="No launcher tells the ranks of which job they are.")
@_shared(300.0)
def gang_pauses(rounds: int, hold_s: float, lane: str, untold: bool, **more: Any) -> None:
    """A training job of two ranks on two GPUs, paused and let on as one at random moments, beside another one.

    In the spatial lane it has to stop between two collectives. Ranks that nobody told of are to be found by the memory
    that they share. Needs two GPUs. Writes gang.json, gang-spatial.json or gang-untold.json. Takes about 4 minutes.
    """
    words = f"--rounds {rounds} --hold-s {hold_s:g} --lane {lane}{' --untold' if untold else ''}"
    name = f"gang{'' if lane == 'plain' else f'-{lane}'}{'-untold' if untold else ''}"
    options = replace(_options(name, words, hold_s, False, more), called="gang")
    conduct(options, lambda session: gang_pause.run(session, rounds, hold_s, lane, not untold))


@click.command("policies-gpu", epilog="Example: sudo detshare bench policies-gpu --policy slo-aware")
@click.option("--seconds", type=Seconds(2, 600), default=8.0, show_default=True, help="Of each scheme.")
@click.option(
    "--policy",
    "names",
    multiple=True,
    type=click.Choice([case.policy for case in policies_gpu.CASES]),
    help="Only this one; may be given again.",
)
@_shared(640.0)
def policies_on_gpu(seconds: float, names: tuple[str, ...], **more: Any) -> None:
    """Each policy that DetShare brings on a mix where it makes a difference, beside `static` and default slicing.

    Writes policies-gpu.json. Takes about 10 minutes; with --seconds 7 less.
    """
    words = f"--seconds {seconds:g}" + "".join(f" --policy {name}" for name in names)
    options = _options("policies-gpu", words, seconds, False, more)
    conduct(options, lambda session: policies_gpu.run(session, names))


COMMANDS = (mix, mix_saturated, mix_random, mix_gang, gang_pauses, policies_on_gpu)
