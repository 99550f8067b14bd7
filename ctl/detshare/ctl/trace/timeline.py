# SPDX-License-Identifier: Apache-2.0
"""What `detshare-trace timeline` does: record the GPUs' context-switch logs, or read a recording, and draw it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from detshare.ctl.core.driver import Driver, DriverError, Gpu
from detshare.ctl.gputime import chrome, drawing, lanes, recording
from detshare.ctl.gputime.recording import GpuRecord, NoRecording, Recording
from detshare.ebpf import show
from detshare.ebpf.errors import EbpfError

READ_S = 0.05
"""between two readings of the logs"""
_ASKED = "record who has the GPU"


def driver(backend: str) -> Driver:
    """The driver whose logs are read. EbpfError without root."""
    if backend == "model":
        from detshare.ctl.backends.model.live import LiveModel

        return LiveModel()
    if os.geteuid() != 0:
        why = f"that needs root (you are uid {os.geteuid()}): the log tells of all programs"
        raise EbpfError(_ASKED, why, "run it with sudo; to see it at work without: --backend model")
    from detshare.ctl.rm.kernel import KernelDriver

    return KernelDriver()


def recorded(
    backend: str, number: int | None, seconds: float, pauses: Callable[[], Iterable[None]], quiet: bool
) -> Recording:
    """A recording of `seconds`, of one GPU or all; `pauses` begins the waits in between."""
    try:
        made = driver(backend)
        gpus = made.gpus()
        chosen = [gpu for gpu in gpus if number in (None, gpu.minor)]
        if not chosen:
            there = ", ".join(str(gpu.minor) for gpu in gpus) or "none"
            raise EbpfError(_ASKED, f"there is no GPU {number}", f"GPUs here: {there}")
        return _with_progress(made, chosen, seconds, pauses, quiet)
    except (DriverError, OSError) as error:
        raise EbpfError(_ASKED, str(error), "see detshare-ctl doctor") from error


def _with_progress(
    made: Driver, gpus: list[Gpu], seconds: float, pauses: Callable[[], Iterable[None]], quiet: bool
) -> Recording:
    columns = (TextColumn("recording"), BarColumn(), TextColumn("{task.fields[runs]} runs"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("", total=seconds, runs=0)

        def tell(runs: int) -> None:
            progress.update(task, completed=min(progress.tasks[0].elapsed or 0.0, seconds), runs=runs)

        return recording.record(made, gpus, pauses(), tell)


def opened(path: Path) -> Recording:
    """A recording from a file. EbpfError where it cannot be had."""
    try:
        return recording.read(path)
    except OSError as error:
        raise EbpfError("read a recording", str(error), "give the file that --out wrote") from error
    except NoRecording as error:
        raise EbpfError("read a recording", str(error), "give the file that --out wrote") from error


def part(whole: Recording, begin_s: float, length_s: float | None) -> Recording:
    """`length_s` seconds of a recording from `begin_s` on. EbpfError where nothing of it is there."""
    longest = max((gpu.seconds for gpu in whole.gpus), default=0.0)
    if begin_s and begin_s >= longest:
        raise EbpfError("draw a part of a recording", f"it is {longest:.3f} s long", "give a smaller --begin")
    return replace(whole, gpus=tuple(gpu.window(begin_s, length_s) for gpu in whole.gpus))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EbpfError(f"write {path}", str(error), "give a file in a folder that you may write to") from error


def write(whole: Recording, out: Path | None, svg: Path | None, trace: Path | None, begin_s: float, shown: Recording
          ) -> list[Path]:  # fmt: skip
    """The recording into `out`, the part that is `shown` into the others; which files were written."""
    if out is not None:
        with _writing(out):
            recording.write(out, whole)
    if svg is not None:
        with _writing(svg):
            # of the whole, for it takes its part by itself
            longest = max((gpu.seconds for gpu in shown.gpus), default=0.0)
            svg.write_text(drawing.svg(whole, begin_s, longest), encoding="utf-8")
    if trace is not None:
        with _writing(trace):
            text = json.dumps(chrome.trace(shown))
            if trace.suffix == ".gz":
                trace.write_bytes(gzip.compress(text.encode()))
            else:
                trace.write_text(text, encoding="utf-8")
    return [path for path in (out, svg, trace) if path is not None]


def summary(shown: Recording) -> list[dict[str, Any]]:
    """What each program had of each GPU, for --json."""
    return [
        {
            "gpu": gpu.uuid, "minor": gpu.minor, "seconds": gpu.seconds, "dropped": gpu.dropped,
            "programs": [
                {"pid": lane.pid, "command": shown.name(lane.pid or 0), **_numbers(lane)} for lane in lanes.lanes(gpu)
            ],
            "switches": _numbers(lanes.switches(gpu)),
        }
        for gpu in shown.gpus
    ]  # fmt: skip


def _numbers(lane: lanes.Lane) -> dict[str, float]:
    return {"share": lane.share, "runs": len(lane.runs), "runs_s": lane.runs_s, "run_us": lane.run_us}


def _row(gpu: GpuRecord, pid: str, lane: lanes.Lane, command: str) -> list[object]:
    shares = (f"{lane.share:.1%}", f"{lane.runs_s:.1f}", show.duration(lane.run_us * 1e3))
    return [gpu.minor, pid, *shares, command]


def tell(shown: Recording, files: Iterable[Path], as_json: bool) -> None:
    """What was recorded: a table for people, one line of JSON for programs."""
    notes = [f"GPU {gpu.minor}: {gpu.dropped} record(s) were lost" for gpu in shown.gpus if gpu.dropped]
    if as_json:
        about = {"driver": shown.driver, "proof": shown.proof, "when": shown.when}
        show.line({**about, "gpus": summary(shown), "files": [str(file) for file in files], "partial": notes})
        return
    rows: list[list[object]] = []
    for gpu in shown.gpus:
        for lane in lanes.lanes(gpu):
            rows.append(_row(gpu, str(lane.pid), lane, show.clean(shown.name(lane.pid or 0))[:60] or "-"))
        rows.append(_row(gpu, "-", lanes.switches(gpu), "(switches)"))
    if shown.proof != "gpu":
        click.echo(f"proof level {shown.proof}")
    show.table(["GPU", "PID", "SHARE", "RUNS/S", "MEDIAN", "COMMAND"], rows, last_left=True)
    for file in files:
        click.echo(f"wrote {file}")
    show.partial(notes)
