# SPDX-License-Identifier: Apache-2.0
"""``detshare bench gates``: gates in streams on the host's word and on the resident control kernel's, under MPS."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from detshare.ctl.core.options import Seconds
from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity, create, monotonic_ns
from detshare.tools import results

__all__ = ["gates", "rows"]

NAME: Final = "gates"
SOURCES: Final = ("host", "rck", "beside")
WORKLOAD: Final = Path(__file__).resolve().parent / "workloads" / "gates.py"
_WORDS: Final = {"host": "host word", "rck": "RCK's word", "beside": "host word while the RCK runs"}


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def rows(lines: list[dict[str, Any]]) -> tuple[results.Row, ...]:
    """Reactions and costs; the host's word is the baseline of the other."""
    found: list[results.Row] = []
    reactions: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in lines:
        if line["what"] == "reaction":
            reactions.setdefault((line["source"], line["every_us"]), []).append(line)
    for (source, every), some in reactions.items():
        for key, text in (("hold_us", "hold to the last kernel's start"), ("release_us", "release to run")):
            for share, name in ((0.5, "p50"), (0.99, "p99")):
                values = [line[key] for line in some]
                host = [line[key] for line in reactions.get(("host", every), ())]
                base = _percentile(host, share) if source != "host" and host else None
                what = f"{_WORDS[source]}, gate every {every} us: {text}, {name}"
                found.append(results.Row(what, _percentile(values, share), "us", base))
    costs = {
        (line["source"], line["kernel_us"], line["launches_per_gate"]): line["us"]
        for line in lines
        if line["what"] == "cost"
    }
    for (source, kernel, every), value in costs.items():
        kind = f"kernels of {kernel} us" if kernel else "empty launches"
        each = f"a gate each {every}" if every else "no gates"
        base = costs[source, kernel, 0] if every else None
        found.append(results.Row(f"{_WORDS[source]}: {kind}, {each}", value, "us/launch", base))
    return tuple(found)


@contextlib.contextmanager
def _mps(folder: Path) -> Iterator[dict[str, str]]:
    """An MPS control daemon of our own; the environment of its clients."""
    environment = dict(os.environ)
    for name in ("PIPE", "LOG"):
        (folder / name).mkdir()
        environment[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder / name)
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        raise click.ClickException(f"bench {NAME}: MPS cannot be started: {error}") from error
    try:
        yield environment
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            quit_ = ["nvidia-cuda-mps-control"]
            subprocess.run(quit_, input=b"quit\n", env=environment, timeout=20, check=False, capture_output=True)


@contextlib.contextmanager
def _helper(board: Path, activity: Activity, environment: dict[str, str]) -> Iterator[None]:
    """The resident control kernel, running."""
    command = [sys.executable, "-m", "detshare.runtime.rck", "--board", str(board)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        end = time.monotonic() + 20
        while not (activity.get("rck_generation") and activity.get("rck_beat") + layout.RCK_STALE_NS > monotonic_ns()):
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                raise click.ClickException(f"bench {NAME}: no resident control kernel: {process.stderr.read().strip()}")
            time.sleep(0.01)
        yield
    finally:
        # never SIGKILL first: it would take every client of this MPS server along
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def _uuid(environment: dict[str, str]) -> bytes:
    """Of the first GPU; asked in a process of its own, so that this one is no client of MPS."""
    code = (
        "import ctypes, sys; from detshare.runtime.rck import Cuda; c = Cuda(); c.call('cuInit', 0);"
        "u = (ctypes.c_char * 16)(); c.call('cuDeviceGetUuid', u, 0); sys.stdout.write(u.raw.hex())"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"bench {NAME} needs a GPU: {done.stderr.strip().splitlines()[-1:]}")
    return bytes.fromhex(done.stdout)


def _part(board: Path, source: str, seconds: float, environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [sys.executable, str(WORKLOAD), str(board), source, str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise click.ClickException(f"bench {NAME}: {source}: {done.stderr.strip()[-1000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


@click.command(NAME, epilog=f"Example: detshare bench {NAME}")
@click.option("--seconds", type=Seconds(0.1, 60), default=1.5, show_default=True, help="Per gate interval.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
def gates(seconds: float, out: Path) -> None:
    """How fast a held stream stops and goes on, and what gates cost, by the word they wait on; under MPS, 40 s."""
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="detshare-gates-", dir="/dev/shm") as name, _mps(Path(name)) as environment:
        paths = [word for word in sys.path if word]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        board = Path(name) / "gpu.activity"
        activity = Activity(create(board))
        activity.init_for(_uuid(environment))
        lines += _part(board, "host", seconds, environment)
        with _helper(board, activity, environment):
            for source in SOURCES[1:]:
                lines += _part(board, source, seconds, environment)
    file = out / "raw" / f"{NAME}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in lines))
    command = f"detshare bench {NAME} --seconds {seconds:g}"
    found = rows(lines)
    path = results.write(
        results.Result(NAME, "gpu", command, results.commit(), results.machine(), results.now(), found), out
    )
    for row in found:
        base = f"{row.baseline:10.2f}" if row.baseline is not None else ""
        click.echo(f"{row.what:72} {row.value:10.2f} {row.unit:10} {base}")
    click.echo(f"wrote {path}")


if __name__ == "__main__":
    gates()
