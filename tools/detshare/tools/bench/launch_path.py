# SPDX-License-Identifier: Apache-2.0
"""``detshare bench launch-path``: what libdetshare.so adds to a launch while nothing changes.

Without a GPU a program calls cuLaunchKernel of the stand-in libcuda, whose own body is replaced by one that returns,
with and without the library in LD_PRELOAD. So the whole path is in the figure: stream, board, tier, estimate, counts.
With ``--gpu`` the machine's own driver launches an empty kernel, by its own function and by the library's in turns.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from detshare.tools import results

__all__ = ["Case", "build", "launch_path", "measure"]

NAME: Final = "launch-path"
MOST_NS: Final = 40
_NOTHING: Final = '__attribute__((visibility("default"))) int cuLaunchKernel(void) { return 0; }\n'


# What a gate itself costs is the driver's: `detshare bench gates` has it from a GPU.
@dataclass(frozen=True, slots=True)
class Case:
    """`functions` different (function, grid) in turn; `gate_us` as in a policy, 0 for none; further words."""

    what: str
    functions: int
    gate_us: int
    stream: tuple[str, ...] = ("own",)


CASES: Final = (
    Case("one kernel, no gates", 1, 0),
    Case("50 kernels, no gates", 50, 0),
    Case("1000 kernels, no gates", 1000, 0),
    Case("50 kernels in the default stream", 50, 0, ("legacy",)),
    Case("50 kernels in the thread's default stream", 50, 0, ("per-thread",)),
    Case("the same where a second context exists", 50, 0, ("legacy", "other")),
    Case("50 kernels, gates wanted and hardly ever due", 50, 4_000_000),
)


def _run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"bench {NAME}: {command[0]} failed:\n{(done.stderr or done.stdout)[-2000:]}")


def build(folder: Path) -> None:
    """The library, the program and its libcuda.so.1 in `folder`; ClickException with the compiler's words."""
    root = Path(__file__).resolve().parents[4]
    tests, gates = root / "tests", root / "tests" / "unit" / "runtime" / "gates"
    if not (gates / "launch_cost.c").exists():
        raise click.ClickException(f"bench {NAME} compiles tests and runtime of a checkout, {root} is none")
    for tool in ("gcc", "make", "objcopy"):
        if shutil.which(tool) is None:
            raise click.ClickException(f"bench {NAME} needs {tool}; as root: apt-get install gcc make binutils")
    _run("make", "-C", root / "runtime", f"OUT={folder}", f"BUILD={folder}/obj", "-j2")
    _run("make", "-C", tests / "fakecuda", f"OUT={folder}/fake", "-j2")
    launch = folder / "fake" / "launch.o"
    _run("objcopy", "--weaken-symbol=cuLaunchKernel", launch)
    (folder / "nothing.c").write_text(_NOTHING)
    library = folder / "libcuda.so.1"
    objects = sorted((folder / "fake").glob("*.o"))
    shared = ("-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1")
    _run("gcc", "-O2", *shared, "-o", library, folder / "nothing.c", *objects, "-ldl")
    clients, runtime = tests / "unit" / "runtime" / "clients", root / "runtime"
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread")
    includes = [f"-I{each}" for each in (runtime / "base", runtime / "shm", clients)]
    for program in ("launch_cost", "launch_pair"):
        _run("gcc", *flags, *includes, "-o", folder / program, gates / f"{program}.c", clients / "daemon.c", library)


def _said(folder: Path, what: str, command: list[str], stand_in: bool, with_library: bool) -> list[str]:
    """The lines of a program of `folder`; ClickException where it or the library says anything on stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DETSHARE_", "LD_PRELOAD"))}
    environment |= {"DETSHARE_LOG": "info", "TMPDIR": str(folder)}
    if stand_in:
        environment["LD_LIBRARY_PATH"] = str(folder)
    if with_library:
        environment["LD_PRELOAD"] = str(folder / "libdetshare.so")
    program = [str(folder / command[0]), *command[1:]]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or done.stderr.strip():
        raise click.ClickException(f"bench {NAME}: {what}: exit {done.returncode}: {done.stderr.strip()[-1000:]}")
    return done.stdout.splitlines()


def pairs(folder: Path, stream: str, stand_in: bool = False) -> tuple[float, float, float]:
    """ns per launch by the driver, by the library, and the median of what neighbouring series differ by."""
    (line,) = _said(folder, stream, ["launch_pair", stream], stand_in, True)
    driver, library, added = map(float, line.split())
    return driver, library, added


def _one(folder: Path, case: Case, launches: int, with_library: bool) -> tuple[list[float], int]:
    """ns per launch of each round, and the launches that the library counted."""
    command = ["launch_cost", str(launches), str(case.functions), str(case.gate_us), *case.stream]
    *rounds, counts = _said(folder, case.what, command, True, with_library)
    counted = int(counts.split()[0])
    expected = launches * len(rounds) + 1 if with_library else 0
    if counted != expected:
        raise click.ClickException(f"bench {NAME}: {case.what}: {counted} launches were counted, not {expected}")
    return [float(line) for line in rounds], counted


def measure(folder: Path, case: Case, launches: int, turns: int) -> tuple[float, float, list[dict[str, object]]]:
    """The best round without and with the library, turns alternated, and every round as raw data.

    The best: other work on the machine only ever adds.
    """
    raw: list[dict[str, object]] = []
    best = {False: float("inf"), True: float("inf")}
    for turn in range(turns):
        for with_library in (False, True):
            rounds, _ = _one(folder, case, launches, with_library)
            best[with_library] = min(best[with_library], *rounds)
            raw.append({"case": case.what, "turn": turn, "library": with_library, "ns": rounds})
    return best[False], best[True], raw


_STREAMS: Final = {
    "own": "a stream of the program",
    "legacy": "the default stream",
    "per-thread": "the thread's default stream",
}


def _of_gpu(folder: Path, turns: int) -> tuple[list[results.Row], list[dict[str, object]]]:
    rows: list[results.Row] = []
    raw: list[dict[str, object]] = []
    for stream, what in _STREAMS.items():
        turned = [pairs(folder, stream) for _ in range(turns)]
        raw += [{"stream": stream, "driver": d, "library": ours, "added": a} for d, ours, a in turned]
        added = statistics.median(added for _, _, added in turned)
        rows.append(results.Row(f"added per launch: {what}", added, "ns", target=f"<= {MOST_NS}"))
        bare = statistics.median(driver for driver, _, _ in turned)
        rows.append(results.Row(f"an empty launch by the driver: {what}", bare, "ns"))
    return rows, raw


def _of_stand_in(folder: Path, launches: int, turns: int) -> tuple[list[results.Row], list[dict[str, object]]]:
    rows: list[results.Row] = []
    raw: list[dict[str, object]] = []
    for case in CASES:
        bare, managed, lines = measure(folder, case, launches, turns)
        raw += lines
        rows.append(results.Row(f"added per launch: {case.what}", managed - bare, "ns", target=f"<= {MOST_NS}"))
        rows.append(results.Row(f"a launch that does nothing: {case.what}", bare, "ns"))
    return rows, raw


@click.command(NAME, epilog=f"Example: detshare bench {NAME}")
@click.option("--launches", type=click.IntRange(1000, 10**8), default=200_000, show_default=True, help="Per round.")
@click.option("--turns", type=click.IntRange(1, 100), default=5, show_default=True, help="Of with and without.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--gpu", is_flag=True, help="With this machine's GPU and driver instead of the stand-in.")
def launch_path(launches: int, turns: int, out: Path, gpu: bool) -> None:
    """CPU time that libdetshare.so adds to a kernel launch while nothing changes; needs no root."""
    name = f"{NAME}-gpu" if gpu else NAME
    with tempfile.TemporaryDirectory(prefix="detshare-launch-path-") as made:
        build(Path(made))
        rows, raw = _of_gpu(Path(made), turns) if gpu else _of_stand_in(Path(made), launches, turns)
    rows.append(results.Row("host: load average of the last minute", os.getloadavg()[0], "runnable tasks"))
    file = out / "raw" / f"{name}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in raw))
    options = "--gpu" if gpu else f"--launches {launches}"
    command = f"detshare bench {NAME} {options} --turns {turns}"
    level = "gpu" if gpu else "unit"
    result = results.Result(name, level, command, results.commit(), results.machine(), results.now(), tuple(rows))
    path = results.write(result, out)
    for row in rows:
        mark = {True: "pass", False: "FAIL", None: ""}[row.ok]
        click.echo(f"{row.what:56} {row.value:8.1f} {row.unit}  {row.target or '':12} {mark}")
    click.echo(f"wrote {path}")
    if any(row.ok is False for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    launch_path()
