# SPDX-License-Identifier: Apache-2.0
"""The command, and what it measures of the daemon from outside."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from detshare.ctl.client import Client, ClientError
from detshare.ctl.core.options import Seconds
from detshare.tools import results
from detshare.tools.bench.scale.sender import USERSOCK
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.report import Report

__all__ = ["scale"]

NAME: Final = "scale"
RATE: Final = 100_000
ROUNDS: Final = 15
_SO_RCVBUFFORCE: Final = 33
_TICK: Final = os.sysconf("SC_CLK_TCK")


class _Daemon:
    """The process under test."""

    def __init__(self, run_dir: Path, programs: int) -> None:
        self.run_dir = run_dir
        receiver = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, USERSOCK)
        receiver.bind((0, 0))
        with contextlib.suppress(PermissionError):  # without CAP_NET_ADMIN its buffer is smaller
            receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 4 << 20)  # as the daemon's own
        self.port = receiver.getsockname()[0]
        words = [sys.executable, "-P", "-m", "detshare.tools.bench.scale.daemon"]
        words += [str(run_dir), str(programs), str(receiver.fileno())]
        environment = {**os.environ, "DETSHARE_BOARD_DIR": str(run_dir / "boards")}
        self.process = subprocess.Popen(words, pass_fds=[receiver.fileno()], env=environment, cwd="/")
        receiver.close()

    def wait(self, seconds: float = 120.0) -> None:
        """Until it answers."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(ClientError):
                Client(self.run_dir).programs()
                return
            time.sleep(0.1)
        raise click.ClickException(f"bench {NAME}: no daemon answered in {self.run_dir}; see the lines above")

    def cpu(self) -> float:
        """Seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def memory(self) -> int:
        """The most bytes that it had in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def _daemon(programs: int) -> Iterator[_Daemon]:
    with tempfile.TemporaryDirectory(prefix="ds-") as name:
        made = _Daemon(Path(name), programs)
        try:
            made.wait()
            yield made
        finally:
            made.end()


def _used(daemon: _Daemon, seconds: float) -> tuple[float, float]:
    """Share of a core, and seconds that passed."""
    cpu, begun = daemon.cpu(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begun
    return (daemon.cpu() - cpu) / passed, passed


def _commands(daemon: _Daemon, words: list[str]) -> tuple[list[float], list[float]]:
    """Milliseconds, and milliseconds of CPU, of each run of a command."""
    took, cpu = [], []
    for _ in range(ROUNDS):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        full = [sys.executable, "-P", "-m", *words]
        # as an installed package, which has bytecode
        environment = {**os.environ, "COLUMNS": "120", "LINES": "40", "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(full, capture_output=True, text=True, check=False, cwd="/", env=environment)
        took.append((time.monotonic() - begun) * 1e3)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
        if done.returncode or "program" not in done.stdout:
            raise click.ClickException(f"bench {NAME}: {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return took, cpu


def _measure(report: Report, programs: int, rate: int, seconds: float) -> None:
    with _daemon(programs) as daemon:
        found = len(Client(daemon.run_dir).programs()["programs"])
        report.row("vCtxs that the daemon shows", found, "vCtxs", target=f">= {programs}")
        rest, _ = _used(daemon, seconds)
        report.row("CPU without events: looks and policy", rest, "cores")
        figures = (daemon.port, programs, rate, seconds + 2)
        sender = subprocess.Popen(
            [sys.executable, "-P", "-m", "detshare.tools.bench.scale.sender", *map(str, figures)],
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        time.sleep(1.0)
        busy, passed = _used(daemon, seconds)
        out, _ = sender.communicate(timeout=seconds * 4 + 60)
        told = json.loads(out)
        came = told["sent"] / told["seconds"]
        decided: dict[str, Any] = Client(daemon.run_dir).policy()["policy"]
        report.record({"sender": told, "busy": busy, "rest": rest, "passed": passed, "policy": decided})
        report.row("events that came", came, "events/s", target=f">= {round(0.95 * rate)}")
        report.row("CPU with events", busy, "cores", target="< 1")
        each = max(0.0, busy - rest) / came
        report.row(f"the same at {rate} events/s, by CPU for each event", rest + each * rate, "cores", target="< 1")
        report.row("CPU for an event", each * 1e6, "us")
        report.row("memory, the most", daemon.memory() / (1 << 20), "MiB", target="< 200")
        report.row("calls of the policy", decided["counts"]["calls"], "calls", target="> 0")
        report.row("decision latency p99", decided["latency_p99_ms"], "ms", target="< 5")
        for name, words in (
            ("detshare-ctl ps", ["detshare.ctl.cli", "--run-dir", str(daemon.run_dir), "ps"]),
            ("detshare-top --once", ["detshare.ctl.cli.top", "--run-dir", str(daemon.run_dir), "--once"]),
        ):
            took, cpu = _commands(daemon, words)
            report.record({"command": name, "ms": took, "cpu_ms": cpu})
            report.row(f"{name}: median of {ROUNDS}", statistics.median(took), "ms", target="< 300")
            report.row(f"{name}: slowest", max(took), "ms")
            report.row(f"{name}: CPU, median", statistics.median(cpu), "ms")
        waits = []
        for _ in range(50):
            begun = time.monotonic()
            Client(daemon.run_dir).programs()
            waits.append((time.monotonic() - begun) * 1e3)
        report.row("GET /v1/programs p50", percentile(waits, 50), "ms")
        report.row("GET /v1/programs p99", percentile(waits, 99), "ms")
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        report.row("host: load for each CPU at the end, this experiment included", load, "processes")


@click.command(NAME, epilog="\b\nExample:\n  detshare bench scale --quick --out /tmp/results")
@click.option("--programs", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="With a vCtx each.")
@click.option("--rate", type=click.IntRange(100, 10**6), default=RATE, show_default=True, help="Events a second.")
@click.option("--seconds", type=Seconds(1, 600), help="Of one measurement.  [default: 20]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--quick", is_flag=True, help="--seconds 3, for a first look.")
def scale(programs: int, rate: int, seconds: float | None, out: Path, quick: bool) -> None:
    """Measure the daemon with many programs and events: CPU, memory, decisions, and how long commands take.

    The kernel module's answers and events are bytes as it would send them; the daemon decodes them by its own code.
    Needs no GPU, no kernel module and no root. Takes about 2 min.
    """
    seconds = seconds or (3.0 if quick else 20.0)
    report = Report(NAME, "unit", f"detshare bench {NAME} --programs {programs} --rate {rate} --seconds {seconds:g}")
    _measure(report, programs, rate, seconds)
    path = report.write(out, results.machine())
    judged = [row.ok for row in report.rows if row.ok is not None]
    click.echo(f"{path}: {sum(judged)} of {len(judged)} targets met, {len(report.rows)} rows")
    for row in report.missed:
        click.echo(f"  not met: {row.what}: {row.value:g} {row.unit}, target {row.target}")
    if report.missed:
        raise SystemExit(1)
