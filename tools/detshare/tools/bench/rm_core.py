# SPDX-License-Identifier: Apache-2.0
"""``detshare bench rm-core``: what one decision of kmod/rm costs in user space, from 10 to 100 000 living objects."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from detshare.tools import results

__all__ = ["rm_core"]

NAME: Final = "rm-core"
SIZES: Final = (10, 100, 1000, 10_000, 100_000)
MOST_NS: Final = 200
"""a decision may cost this at any number of objects"""
FLAT: Final = 2
"""and at the most objects this many times what it costs at the fewest"""
FLAGS: Final = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


def _sources() -> list[Path]:
    """The core and the program; ClickException outside a checkout."""
    root = Path(__file__).resolve().parents[4]
    sources = [root / "tests" / "rmcore" / "bench.c", *sorted((root / "kmod" / "rm").glob("*.c"))]
    if len(sources) == 1 or not sources[0].exists():
        raise click.ClickException(f"bench {NAME} compiles kmod/rm, which is not in {root}; run it from a checkout")
    return sources


def _build(folder: Path) -> Path:
    """The compiled program; ClickException with the compiler's words."""
    if shutil.which("gcc") is None:
        raise click.ClickException(f"bench {NAME} needs gcc; as root: apt-get install gcc libc6-dev")
    program = folder / "bench"
    command = ["gcc", *FLAGS, "-o", str(program), *map(str, _sources())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"bench {NAME}: the core does not compile:\n{done.stderr}")
    return program


def _measure(pairs: int, repeats: int) -> list[dict[str, Any]]:
    """One dictionary per repeat and number of objects: repeat, objects, decision_ns, control_ns."""
    with tempfile.TemporaryDirectory(prefix="detshare-rm-core-") as folder:
        command = [str(_build(Path(folder))), str(pairs), str(repeats), *map(str, SIZES)]
        # huge pages where the machine has them: the kernel's memory is mapped by such
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise click.ClickException(f"bench {NAME} failed (exit {done.returncode}): {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(lines: list[dict[str, Any]]) -> tuple[results.Row, ...]:
    """The medians over the repeats, judged."""
    decision = {size: [line["decision_ns"] for line in lines if line["objects"] == size] for size in SIZES}
    control = {size: [line["control_ns"] for line in lines if line["objects"] == size] for size in SIZES}
    median = {size: statistics.median(values) for size, values in decision.items()}
    made = []
    for size in SIZES:
        made.append(results.Row(f"decision at {size} objects", median[size], "ns", target=f"<= {MOST_NS}"))
        tail = statistics.quantiles(decision[size], n=10)[-1] if len(decision[size]) > 1 else median[size]
        made.append(results.Row(f"decision at {size} objects, 90th percentile of the repeats", tail, "ns"))
    fewest, most = SIZES[0], SIZES[-1]
    flat = f"<= {FLAT} x baseline"
    made.append(results.Row(f"decision at {most} objects against {fewest}", median[most], "ns", median[fewest], flat))
    made += [results.Row(f"control at {size} objects", statistics.median(control[size]), "ns") for size in SIZES]
    return tuple(made)


@click.command(NAME, epilog=f"Example: detshare bench {NAME}")
@click.option("--pairs", type=click.IntRange(1000, 100_000_000), default=30_000, show_default=True, help="Per repeat.")
@click.option("--repeats", type=click.IntRange(1, 1000), default=31, show_default=True, help="Medians are over these.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def rm_core(pairs: int, repeats: int, out: Path, as_json: bool) -> None:
    """CPU time of one decision of the kernel module's core, compiled for user space; needs no GPU and no root.

    A decision is: decode, find, charge, settle, and insert or free. Other work on the machine takes the caches away,
    which shows at 100 000 objects; as root it runs as a real-time task for its two seconds, and suffers less.
    """
    lines = _measure(pairs, repeats)
    raw = out / "raw" / f"{NAME}.jsonl.gz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(raw, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    command = f"detshare bench {NAME} --pairs {pairs} --repeats {repeats}"
    # what else ran: the working set of 100 000 objects is larger than a core's own caches
    load = results.Row("host: load average of the last minute", os.getloadavg()[0], "runnable tasks")
    found = (*rows(lines), load)
    result = results.Result(NAME, "unit", command, results.commit(), results.machine(), results.now(), found)
    path = results.write(result, out)
    if as_json:
        click.echo(
            json.dumps([{"what": row.what, "value": row.value, "unit": row.unit, "ok": row.ok} for row in found])
        )
    else:
        for row in found:
            mark = {True: "pass", False: "FAIL", None: ""}[row.ok]
            click.echo(f"{row.what:56} {row.value:8.1f} {row.unit}  {row.target or '':16} {mark}")
        click.echo(f"wrote {path}")
    if any(row.ok is False for row in found):
        raise SystemExit(1)
