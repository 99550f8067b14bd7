# SPDX-License-Identifier: Apache-2.0
"""``detshare bench beside CHECKOUT EXPERIMENT``: the same experiment by another checkout and by this one, in turns.

Each runs its own code whole: its product, its experiment, its stand-ins. Rows that both have in a unit of time are
compared: the value is this checkout's median over the turns, the baseline the other's, and the bound what the other one
had in its own worst turn.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from detshare.tools import results

__all__ = ["beside", "rows"]

HERE: Final = Path(__file__).resolve().parents[4]
TIMES: Final = frozenset({"ns", "us", "ms", "s"})
Turn = dict[str, results.Row]
"""row's text -> row, of all results that one run wrote"""


def rows(ours: list[Turn], theirs: list[Turn]) -> list[results.Row]:
    """The rows of time that every turn of both has, judged by the other one's worst turn."""
    shared = [what for what in ours[0] if all(what in turn for turn in (*ours, *theirs))]
    made = []
    for what in shared:
        unit = ours[0][what].unit
        if unit in TIMES and all(turn[what].unit == unit for turn in (*ours, *theirs)):
            before = [turn[what].value for turn in theirs]
            value = statistics.median(turn[what].value for turn in ours)
            made.append(results.Row(what, value, unit, statistics.median(before), f"<= {max(before):.6g}"))
    return made


def _program(checkout: Path) -> Path:
    """A checkout's own command; ClickException where it was not set up."""
    program = checkout / ".venv" / "bin" / "detshare"
    if not program.is_file():
        raise click.ClickException(f"bench beside: {program} is not there; run `make setup` in {checkout} first")
    return program


def _turn(checkout: Path, experiment: str, words: Iterable[str]) -> tuple[Turn, set[str]]:
    """One run's rows and its results' proof levels; ClickException with its last words where it wrote none."""
    with tempfile.TemporaryDirectory(prefix="detshare-beside-") as out:
        command = [str(_program(checkout)), "bench", experiment, *words, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout)
        written = sorted(Path(out).glob("*.json"))
        if not written:
            said = (done.stderr or done.stdout).strip()[-1000:]
            raise click.ClickException(f"bench beside: {shlex.join(command)} wrote no result:\n{said}")
        # not read as this checkout's results are: the other one's may lack what is asked of them today
        read = [json.loads(file.read_text(encoding="utf-8")) for file in written]
    found = [row for result in read for row in result["rows"]]
    turn = {row["what"]: results.Row(row["what"], row["value"], row["unit"]) for row in found}
    return turn, {result["proof"] for result in read}


def _commit(checkout: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=checkout)
    return done.stdout.strip() or "unknown"


@click.command(epilog="Example: detshare bench beside ../before interception --turns 5 -- --rounds 2 --on 550")
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True))
@click.argument("experiment")
@click.argument("words", nargs=-1)
@click.option("--turns", type=click.IntRange(2, 100), default=5, show_default=True, help="Of either.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def beside(checkout: Path, experiment: str, words: tuple[str, ...], turns: int, out: Path, as_json: bool) -> None:
    """Compare another checkout's EXPERIMENT with this one's, in turns; WORDS go to both.

    CHECKOUT is set up (`make setup` there) and has an experiment of this name. The result is EXPERIMENT-beside.
    """
    found: dict[Path, list[Turn]] = {checkout: [], HERE: []}
    levels: set[str] = set()
    with Console(stderr=True).status("") as status:
        for turn in range(turns):
            # who goes first changes: whatever drifts in the machine meets both alike
            for which in (checkout, HERE) if turn % 2 == 0 else (HERE, checkout):
                status.update(f"turn {turn + 1} of {turns}: {experiment} of {_commit(which)}")
                taken, proofs = _turn(which, experiment, words)
                found[which].append(taken)
                levels |= proofs
    judged = rows(found[HERE], found[checkout])
    if not judged:
        raise click.ClickException(f"bench beside: {experiment} has no row of time in both {checkout} and {HERE}")
    judged.append(results.Row("host: load average of the last minute", os.getloadavg()[0], "runnable tasks"))
    name = f"{experiment}-beside"
    _keep(out / "raw" / f"{name}.jsonl.gz", found)
    command = f"detshare bench beside CHECKOUT {experiment} --turns {turns} -- {shlex.join(words)}".rstrip(" -")
    weakest = max(levels, key=list(results.PROOFS).index)
    text = f"{command}; CHECKOUT is {_commit(checkout)}"
    made = results.Result(name, weakest, text, results.commit(), results.machine(), results.now(), tuple(judged))
    path = results.write(made, out)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) | {"ok": row.ok} for row in judged]))
    else:
        for row in judged:
            mark = {True: "pass", False: "FAIL", None: ""}[row.ok]
            before = "" if row.baseline is None else f"{row.baseline:.1f}"
            click.echo(f"{row.what:70} {row.value:10.1f} {before:>10} {row.unit}  {row.target or '':16} {mark}")
        click.echo(f"wrote {path}")
    if any(row.ok is False for row in judged):
        raise SystemExit(1)


def _keep(file: Path, found: Mapping[Path, list[Turn]]) -> None:
    """All turns, as raw data."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        for which, taken in found.items():
            for number, turn in enumerate(taken):
                values = {what: row.value for what, row in turn.items()}
                stream.write(json.dumps({"commit": _commit(which), "turn": number, "rows": values}) + "\n")
