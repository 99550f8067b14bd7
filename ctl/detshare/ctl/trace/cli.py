# SPDX-License-Identifier: Apache-2.0
"""``detshare-trace``: the command line. Exit codes: 2 it cannot be meant, 1 it was not done."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from detshare.ctl.abi.versions import UnknownBranch, for_version
from detshare.ctl.core import procfs, streams
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.options import Seconds
from detshare.ebpf import checks, show
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.rarely import rarely

__all__ = ["cli", "main"]

F = TypeVar("F", bound=Callable[..., Any])
STEP_S = 0.2


def common(function: F) -> F:
    """--pid, --duration, --json."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Lines of JSON, for programs."),
        click.option("--duration", type=Seconds(min=0.01), help="Seconds; else until interrupted."),
        click.option("--pid", type=click.IntRange(min=1), help="Of this process only."),
    ):
        function = option(function)
    return function


LIBCUDA = click.option(
    "--libcuda",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A libcuda.so.1 to watch besides those that are found; may be given again.",
)


class Ended(Exception):
    """SIGTERM or SIGINT."""


class Watching:
    """The time of watching. SIGTERM and SIGINT end its waits, never work that is under way, and then the block well."""

    def __init__(self) -> None:
        self._ended = self._waits = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Watching:
        self._before = {each: signal.signal(each, self._end) for each in (signal.SIGTERM, signal.SIGINT)}
        click.echo("watching; Ctrl-C ends", err=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        return kind is Ended

    def _end(self, number: int, frame: object) -> None:
        self._ended = True
        if self._waits:
            raise Ended

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Around whatever only waits."""
        self._waits = True
        try:
            if self._ended:
                raise Ended
            yield
        finally:
            self._waits = False


def _alive(pid: int | None) -> bool:
    return pid is None or os.path.exists(f"/proc/{pid}")


def _watchable(pid: int | None) -> None:
    """EbpfError where there is no such process, or where its number here is not the one that the kernel knows it by."""
    if pid is None:
        return
    if not _alive(pid):
        raise EbpfError(f"watch PID {pid}", "there is no such process", "see ps")
    if foreign := checks.foreign_pids():
        raise EbpfError(f"watch PID {pid}", foreign, "run in the host's pid namespace (docker: --pid=host)")


def _notes(tracer: Any, pid: int | None) -> list[str]:
    """Why a view is partial."""
    ended = "" if _alive(pid) else f"PID {pid} has ended"
    return list(dict.fromkeys([*tracer.notes(), *filter(None, [ended, checks.foreign_pids()])]))


def _steps(
    watching: Watching,
    seconds: float | None,
    pid: int | None,
    step: float,
    rest: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Until the time is over or the process has ended, each at most `step` seconds after the one before."""
    until = None if seconds is None else time.monotonic() + seconds
    while _alive(pid):
        left = step if until is None else min(step, until - time.monotonic())
        if left <= 0:
            return
        with watching.wait():
            rest(left)
        yield


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Watch what programs do to their GPU, from outside: they are not changed, restarted or asked. Needs root.

    \b
    Example:
      detshare-trace launches --duration 10
    """
    streams.any_encoding()


@cli.command(epilog="Example: detshare-trace objects --pid 4711 --duration 5")
@common
@click.option("--count", is_flag=True, help="Only the numbers, at the end.")
def objects(pid: int | None, duration: float | None, as_json: bool, count: bool) -> None:
    """RM objects of every process: births and deaths as they happen."""
    from detshare.ebpf.objects import RING_BYTES, ObjectTracer

    version = procfs.driver_version()
    if version is None:
        raise EbpfError("watch RM objects", "no NVIDIA driver is loaded here", "load it first")
    try:
        abi = for_version(version)
    except UnknownBranch as error:
        advice = "see docs/develop/development.md, Adding a driver branch"
        raise EbpfError("watch RM objects", str(error), advice) from error
    names = {number: name for name, number in abi.classes.items()}
    _watchable(pid)
    tracer = ObjectTracer(abi)
    births: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    if not as_json and not count:
        click.echo(f"{'TIME':>12} {'PID':>7}   {'KIND':8}{'CLIENT':>10} {'HANDLE':>10} {'PARENT':>10} CLASS")

    def tell(most: int = 4096) -> None:
        for each in tracer.poll(0, most):
            if pid not in (None, each.pid):
                continue
            name = names.get(each.number, f"{each.number:#x}") if each.kind != "process" else ""
            (births if each.born else deaths)[name or each.kind] += 1
            if count:
                continue
            if as_json:
                show.line({**asdict(each), "class": name})
                continue
            sign = "+" if each.born else "-"
            handles = f"{each.client:#10x} {each.handle:#10x} {each.parent:#10x}" if each.client else " " * 32
            click.echo(f"{each.when / 1e9:12.6f} {each.pid:7d} {sign} {each.kind:8}{handles} {name}".rstrip())

    until = None if duration is None else time.monotonic() + duration
    with Watching() as watching:
        while (until is None or time.monotonic() < until) and _alive(pid):
            with watching.wait():
                tracer.wait(STEP_S)
            tell()
    tell(RING_BYTES)
    notes = _notes(tracer, pid)
    if as_json:
        show.line({"born": dict(births), "died": dict(deaths), "events": tracer.taken, "partial": notes})
    else:
        if count:
            rows = [[name, births[name], deaths[name]] for name in sorted(births | deaths)]
            show.table(["CLASS", "BORN", "DIED"], rows, left=1)
        show.partial(notes)
    tracer.close()


@cli.command(epilog="Example: detshare-trace launches --interval 1")
@common
@click.option("--interval", type=Seconds(min=0.1), help="Print the sums so far this often; else at the end.")
@click.option("--shapes", type=click.IntRange(0, 1000), default=5, show_default=True, help="Grids and blocks to list.")
@LIBCUDA
def launches(
    pid: int | None,
    duration: float | None,
    as_json: bool,
    interval: float | None,
    shapes: int,
    libcuda: tuple[str, ...],
) -> None:
    """Launches, graphs, copies, fills and waits, by process and stream."""
    from detshare.ebpf.launches import NAMES, LaunchTracer

    _watchable(pid)
    tracer = LaunchTracer(only=pid, libcuda=libcuda)
    look = rarely(tracer.look)

    def tell() -> None:
        counts, shaped = tracer.counts(), tracer.shapes()[:shapes]
        if as_json:
            show.line(
                {
                    "counts": [{**asdict(each), "kind": NAMES[each.kind]} for each in counts],
                    "shapes": [asdict(each) for each in shaped],
                    "libraries": tracer.probes.paths,
                    "partial": _notes(tracer, pid),
                }
            )
            return
        rows = [
            [
                *(each.pid, show.stream(each.stream), NAMES[each.kind], each.calls, show.amount(each.bytes)),
                *((show.duration(each.ns), show.duration(each.most_ns)) if each.ns else ("-", "-")),
            ]
            for each in counts
        ]
        show.table(["PID", "STREAM", "KIND", "CALLS", "BYTES", "TIME", "LONGEST"], rows)
        for each in shaped:
            grid, block = ("x".join(map(str, sizes)) for sizes in (each.grid, each.block))
            click.echo(f"  PID {each.pid} function {each.function:#x} grid {grid} block {block}: {each.calls}")

    with Watching() as watching:
        for _ in _steps(watching, duration, pid, min(interval or 1.0, 1.0)):
            look()
            if interval is not None:
                tell()
    tell()
    show.partial([] if as_json else _notes(tracer, pid))
    tracer.close()


@cli.command(epilog="Example: detshare-trace dirty --pid 4711 --interval 1")
@common
@click.option("--interval", type=Seconds(min=0.1), default=1.0, show_default=True, help="Length of an epoch, seconds.")
@click.option("--strict", is_flag=True, help="A kernel of which there is only machine code may write anywhere.")
@LIBCUDA
def dirty(
    pid: int | None, duration: float | None, as_json: bool, interval: float, strict: bool, libcuda: tuple[str, ...]
) -> None:
    """Which share of its GPU memory each program may have written, by epochs. Never too little."""
    from detshare.ctl.rm.nvml import architectures
    from detshare.ebpf.dirty import DirtyTracer
    from detshare.ebpf.epochs import Epoch

    _watchable(pid)
    tracer = DirtyTracer(only=pid, libcuda=libcuda, devices=architectures(), strict=strict)
    look = rarely(tracer.look)

    def tell(epoch: Epoch) -> None:
        why = [*epoch.reasons, *(f"partial: {each}" for each in epoch.partial)]
        if as_json:
            show.line({**epoch.to_json(), "partial": [*epoch.partial, *_notes(tracer, pid)]})
            return
        text = show.clean("; ".join(why))
        click.echo(
            f"{epoch.pid:7d} {epoch.number:6d} {show.amount(epoch.total):>7} {show.amount(epoch.bytes):>7} "
            f"{epoch.share:5.0%} {len(epoch.dirty):4d}/{len(epoch.allocations):<4d} {text}".rstrip()
        )

    if not as_json:
        click.echo(f"{'PID':>7} {'EPOCH':>6} {'MEMORY':>7} {'DIRTY':>7} SHARE ALLOCATIONS")
    ends = time.monotonic() + interval
    with Watching() as watching:
        for _ in _steps(watching, duration, pid, min(0.05, interval), tracer.wait):
            tracer.poll()
            if time.monotonic() < ends:
                continue
            ends += interval
            look()
            tracer.cut()
            for each in [pid] if pid is not None else tracer.programs():
                tell(tracer.epoch(each))
            tracer.settle()
        if pid is not None and not _alive(pid):  # what it did since the last cut
            tracer.poll()
            tracer.cut()
            tell(tracer.epoch(pid))
    show.partial([] if as_json else _notes(tracer, pid))
    tracer.close()


def _number(message: str) -> int:
    """Of a message of the module's netlink family."""
    from detshare.ctl.netlink import genl  # brings pyroute2, most of a second

    return int(getattr(genl, message))


@cli.command(epilog="Example: detshare-trace latency --duration 10")
@common
def latency(pid: int | None, duration: float | None, as_json: bool) -> None:
    """Histograms of ioctls, faults on doorbells, gates and pauses, at the end."""
    from detshare.ebpf.latency import NAMES as KINDS
    from detshare.ebpf.latency import LatencyTracer

    _watchable(pid)
    tracer = LatencyTracer(_number)
    with Watching() as watching:
        for _ in _steps(watching, duration, pid, 1.0):
            pass
    found = [each for each in tracer.histograms() if pid in (None, each.pid)]
    if as_json:
        for each in found:
            show.line({**asdict(each), "kind": KINDS[each.kind]})
        show.line({"partial": _notes(tracer, pid)})
    else:
        for each in found:
            detail = f" {each.detail:#x}" if each.kind.name == "IOCTL" else ""
            mean, longest = show.duration(each.sum / each.count), show.duration(each.most)
            click.echo(f"PID {each.pid} {KINDS[each.kind]}{detail}: {each.count}, mean {mean}, longest {longest}")
            show.histogram(each.buckets)
        show.partial(_notes(tracer, pid))
    tracer.close()


FILE = click.Path(path_type=Path, dir_okay=False)


@cli.command(epilog="Example: detshare-trace timeline --seconds 5 --out run.jsonl.gz --svg run.svg --chrome run.json")
@click.option("--seconds", type=Seconds(min=0.05, max=600), help="How long to record.  [default: 5]")
@click.option("--gpu", type=click.IntRange(min=0), help="This GPU only; else all.")
@click.option("--backend", type=click.Choice(["auto", "model"]), help="model: a simulated GPU.  [default: auto]")
@click.option("--from", "source", type=FILE, help="Draw this recording instead of making one.")
@click.option("--out", type=FILE, help="Write the recording here (JSON lines, gzip).")
@click.option("--svg", type=FILE, help="Draw it here.")
@click.option("--chrome", type=FILE, help="Write it here for chrome://tracing and Perfetto; gzip where it ends in .gz.")
@click.option("--begin", type=Seconds(min=0), default=0.0, help="Draw from this second on.")
@click.option("--length", type=Seconds(min=1e-6), help="Draw so many seconds; else all.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON, for programs.")
def timeline(
    seconds: float | None,
    gpu: int | None,
    backend: str | None,
    source: Path | None,
    out: Path | None,
    svg: Path | None,
    chrome: Path | None,
    begin: float,
    length: float | None,
    as_json: bool,
) -> None:
    """Who had the GPU when, by its own log of context switches: recorded, summed up and drawn."""
    if source is not None and (seconds, gpu, backend, out) != (None, None, None, None):
        raise click.UsageError("--from takes a recording that is there: not with --seconds, --gpu, --backend or --out")
    from detshare.ctl.trace import timeline as lines

    def pauses(watching: Watching, length_s: float) -> Iterator[None]:
        with suppress(Ended):  # what was recorded until then is a recording
            yield from _steps(watching, length_s, None, lines.READ_S)

    if source is not None:
        whole = lines.opened(source)
    else:
        length_s = 5.0 if seconds is None else seconds
        with Watching() as watching:
            whole = lines.recorded(backend or "auto", gpu, length_s, lambda: pauses(watching, length_s), as_json)
    shown = lines.part(whole, begin, length)
    lines.tell(shown, lines.write(whole, out, svg, chrome, begin, shown), as_json)


@cli.command(epilog="Example: detshare-trace doctor")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(as_json: bool) -> None:
    """What can be watched on this machine, and what to do about the rest. Exit code 1: nothing can be loaded."""
    found = checks.checks()
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
    else:
        for each in found:
            mark = {True: "ok", False: "no", None: "--"}[each.ok]
            click.echo(f"{mark} {each.name}: {each.text}" + (f"; {each.advice}" if each.advice else ""))
    if found[0].ok is not True:
        sys.exit(1)


def main() -> None:
    """The console script."""
    streams.hold()
    try:
        with streams.answering():
            cli.main(standalone_mode=True)
    except EbpfError as error:
        told = ControlError(error.asked, error.why, error.advice)
        if "--json" in sys.argv:
            click.echo(json.dumps(told.to_json()))
        click.echo(f"detshare-trace: {told}", err=True)
        sys.exit(1)
    except ControlError as error:
        click.echo(f"detshare-trace: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
