# SPDX-License-Identifier: Apache-2.0
"""``detshare bench forwarded``: judges what packed guests saw of detshare.ko on a real GPU (`nvfwd/claims`).

A result for each of what the guests tried, as far as there are figures.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from detshare.tools import results
from detshare.tools.bench.forward.folder import Line, machine, read
from detshare.tools.bench.forward.judges import gate, memory, of, programs, storm, undone
from detshare.tools.bench.forward.turns import hostile, sched
from detshare.tools.results import Row

__all__ = ["RESULTS", "forwarded", "rows"]

PROOF: Final = "gpu, forwarded"
RESULTS: Final[dict[str, tuple[Callable[[list[Line]], Iterator[Row]], tuple[str, ...], tuple[str, ...]]]] = {
    "forwarded-programs": (programs, ("programs-alone", "programs"), ("refused",)),
    "forwarded-memory": (memory, ("kinds", "limit"), ("host",)),
    "forwarded-gate": (gate, ("gate", "pause", "steer"), ()),
    "forwarded-sched": (sched, ("mix", "buckets"), ()),
    "forwarded-storm": (storm, ("storm", "unload"), ("helper", "after")),
    "forwarded-hostile": (hostile, ("hostile", "hostile-unfiltered"), ()),
}
"""who judges, of which steps, with what else of the raw output"""


def rows(name: str, lines: list[Line]) -> list[Row]:
    """Of one result; none where no step of it said anything."""
    judge, steps, _ = RESULTS[name]
    return [*judge(lines), *undone(lines, *steps)] if of(lines, *steps) else []


def _write(name: str, lines: list[Line], made: list[Row], folder: Path, out: Path) -> Path:
    _, steps, more = RESULTS[name]
    raw = out / "raw" / f"{name}.jsonl.gz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(raw, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in of(lines, "begin", *steps, *more))
    commit = (folder / "commit").read_text().strip()
    command = "detshare bench forwarded FOLDER, of nvfwd/claims FOLDER CHECKOUT"
    return results.write(results.Result(name, PROOF, command, commit, machine(folder), results.now(), tuple(made)), out)


@click.command("forwarded", epilog="Example: detshare bench forwarded first-claims")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each result, for programs.")
def forwarded(folder: Path, out: Path, as_json: bool) -> None:
    """What detshare.ko does on a real GPU, from the raw output of `nvfwd/claims` (FOLDER, see detshare-vm pack).

    Writes forwarded-programs.json, -memory, -gate, -sched, -storm and -hostile, those that were tried. Exit code 1
    where a target is missed.
    """
    failed = False
    try:
        lines = read(folder)
        by_name = {name: rows(name, lines) for name in RESULTS}
        written = {name: _write(name, lines, made, folder, out) for name, made in by_name.items() if made}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise click.ClickException(
            f"bench forwarded {folder}: {type(error).__name__}: {error}; name a folder that nvfwd/claims wrote"
        ) from error
    for name, path in written.items():
        made = by_name[name]
        missed = [row.what for row in made if row.ok is False]
        failed = failed or bool(missed)
        if as_json:
            click.echo(json.dumps({"wrote": str(path), "rows": len(made), "missed": missed}))
            continue
        for row in made:
            judged = "" if row.ok is None else "pass" if row.ok else "FAIL"
            click.echo(f"{row.what:90} {row.value:12.6g} {row.unit:12} {judged}")
        click.echo(f"wrote {path}")
    raise SystemExit(1 if failed else 0)
