# SPDX-License-Identifier: Apache-2.0
"""``detshare bench page``: the daemon's page in a real browser, with a thousand programs."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click

from detshare.ctl.client import Client
from detshare.ctl.core.options import Seconds
from detshare.tools import results
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.report import Report
from detshare.tools.browser.chromium import Chromium, Tab
from detshare.tools.browser.shots import free_port, stage

__all__ = ["page"]

NAME: Final = "page"
RESTARTS: Final = 3
_TICK: Final = os.sysconf("SC_CLK_TCK")
_PID: Final = 1001
_CELL: Final = f"document.querySelector(\"#rows tr[data-key^='{_PID}:'] .c-CLASS\")"
_SIZES: Final = (
    "performance.getEntriesByType('resource').filter((each) => each.name.includes('/page/view'))"
    ".map((each) => each.encodedBodySize)"
)


def _cpu(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Cores that it takes."""

    def used() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    before, begun = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - begun)


def _open(browser: Chromium, client: Client, programs: int) -> Tab:
    tab = browser.tab()
    tab.go(client.page()["address"])
    tab.until(f"document.querySelectorAll('#rows tr').length >= {programs}")
    tab.eval("performance.setResourceTimingBufferSize(100000)")
    return tab


def _busy(tab: Tab) -> tuple[float, int]:
    """Seconds that the page kept its thread busy, and looks, since it was opened."""
    found = {each["name"]: each["value"] for each in tab.send("Performance.getMetrics")["metrics"]}
    return found["TaskDuration"], len(tab.eval(_SIZES))


def _watch(report: Report, daemon: subprocess.Popen[bytes], tab: Tab, seconds: float, rest: float) -> None:
    """What a browser costs that only looks."""
    tab.send("Performance.enable")
    tab.eval("window.nodes = [...document.querySelectorAll('#rows tr')]")
    before, first = _busy(tab)
    more = _cpu(daemon, seconds)
    after, last = _busy(tab)
    report.row("daemon's CPU while one browser looks", more, "cores", rest)
    report.row("more than while nobody does", max(0.0, more - rest), "cores", target="< 0.1")
    sizes = tab.eval(_SIZES)
    report.record({"sizes": sizes, "busy": after - before, "looks": last - first})
    report.row("first answer, compressed", sizes[0], "bytes")
    report.row("answers after it, median", statistics.median(sizes[1:]), "bytes", target="< 20000")
    report.row("answers after it, longest", max(sizes[1:]), "bytes")
    busy = 1e3 * (after - before) / max(last - first, 1)
    report.row("browser's thread busy for each look", busy, "ms", target="< 200")
    rebuilt = tab.eval("window.nodes.filter((node) => !node.isConnected).length")
    report.row("rows that were built anew meanwhile", rebuilt, "rows", target="== 0")


def _act(report: Report, one: Tab, other: Tab, trials: int) -> None:
    """From a click in one browser to what another one shows."""
    one.eval(f"document.querySelector(\"#rows tr[data-key^='{_PID}:']\").click()")
    took = []
    for trial in range(trials):
        klass = ("low", "idle")[trial % 2]
        other.eval(
            f"window.shown = 0; new MutationObserver((all, watch) => {{ if ({_CELL}.textContent === '{klass}')"
            " { window.shown = Date.now(); watch.disconnect(); } })"
            f".observe({_CELL}, {{childList: true, characterData: true, subtree: true}})"
        )
        clicked = one.eval(f"(document.querySelector('#detail [data-class={klass}]').click(), Date.now())")
        took.append(other.until("window.shown") - clicked)
    report.record({"shown_ms": took})
    report.row("from a click to what another browser shows, p50", percentile(took, 50), "ms")
    report.row(f"the same, slowest of {trials}", max(took), "ms", target="< 3000")


def _restart(report: Report, tab: Tab, run_dir: Path, daemon: subprocess.Popen[bytes], programs: int, port: int) -> Any:
    """From a daemon that answers again to a page that is live; the last daemon."""
    took = []
    for _ in range(RESTARTS):
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
        tab.until("document.querySelector('#link').dataset.state === 'bad'")
        daemon = stage(run_dir, programs, "--page-listen", f"127.0.0.1:{port}", "--page-changes")
        begun = time.monotonic()
        tab.until("document.querySelector('#link').dataset.state === 'ok'")
        took.append((time.monotonic() - begun) * 1e3)
    report.record({"live_ms": took})
    report.row(f"from the daemon's restart to a live page, slowest of {RESTARTS}", max(took), "ms", target="< 5000")
    return daemon


@click.command(NAME, epilog="\b\nExample:\n  detshare bench page --quick --out /tmp/results")
@click.option("--programs", type=click.IntRange(8, 10_000), default=1000, show_default=True)
@click.option("--seconds", type=Seconds(1, 600), help="Of one measurement.  [default: 20]")
@click.option("--trials", type=click.IntRange(1, 1000), help="Clicks.  [default: 40]")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--quick", is_flag=True, help="--seconds 3 --trials 6, for a first look.")
def page(programs: int, seconds: float | None, trials: int | None, out: Path, quick: bool) -> None:
    """Measure the daemon's page in Debian's chromium: what it costs both, and how soon it shows what happens.

    The daemon has the model backend. Needs chromium, no GPU and no root. Takes about 3 min.
    """
    seconds, trials = seconds or (3.0 if quick else 20.0), trials or (6 if quick else 40)
    command = f"detshare bench {NAME} --programs {programs} --seconds {seconds:g} --trials {trials}"
    report = Report(NAME, "unit", command)
    with tempfile.TemporaryDirectory(prefix="dsp-") as name, contextlib.ExitStack() as stack:
        run_dir, port = Path(name), free_port()
        daemon = stage(run_dir, programs, "--page-listen", f"127.0.0.1:{port}", "--page-changes")
        running = [daemon]

        def end() -> None:
            running[-1].terminate()
            running[-1].wait()

        stack.callback(end)
        client = Client(run_dir)
        rest = _cpu(daemon, seconds)
        report.row("daemon's CPU while nobody looks", rest, "cores")
        browser = stack.enter_context(Chromium())
        begun = time.monotonic()
        tab = _open(browser, client, programs)
        report.row("from the address to all rows", (time.monotonic() - begun) * 1e3, "ms", target="< 10000")
        _watch(report, daemon, tab, seconds, rest)
        other = _open(browser, client, programs)
        _act(report, tab, other, trials)
        running.append(_restart(report, tab, run_dir, daemon, programs, port))
        complaints = [each for each in (*tab.complaints, *other.complaints) if "net::ERR_" not in each]
        report.record({"complaints": complaints})
        report.row("what the browsers complained about", len(complaints), "lines", target="== 0")
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    report.row("host: load for each CPU at the end, this experiment included", load, "processes")
    path = report.write(out, results.machine())
    judged = [row.ok for row in report.rows if row.ok is not None]
    click.echo(f"{path}: {sum(judged)} of {len(judged)} targets met, {len(report.rows)} rows")
    for row in report.missed:
        click.echo(f"  not met: {row.what}: {row.value:g} {row.unit}, target {row.target}")
    if report.missed:
        raise SystemExit(1)
