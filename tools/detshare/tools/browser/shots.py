# SPDX-License-Identifier: Apache-2.0
"""The pictures of the page in docs/images/, from a daemon of the model backend: `make screenshots`.

Example: python -m detshare.tools.browser.shots docs/images
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from detshare.ctl.client import Client
from detshare.ctl.core.patience import Patience
from detshare.ctl.core.rundir import REPORTS_NAME
from detshare.tools.browser.chromium import IDLE_S, Chromium, Tab

__all__ = ["SHOTS", "Shot", "free_port", "main", "reports", "stage"]

SAMPLES: Final = 60
"""seconds of history that a picture has at least"""


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture. `opened`: the details of a program are."""

    name: str
    width: int
    height: int
    dark: bool = False
    opened: bool = True
    narrow: bool = False
    programs: int = 8


SHOTS: Final = (
    Shot("page", 1440, 1180),
    Shot("page-dark", 1440, 1180, dark=True),
    Shot("page-narrow", 390, 1180, opened=False, narrow=True),
)


def free_port() -> int:
    """A TCP port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stage(run_dir: Path, programs: int, *options: str) -> subprocess.Popen[bytes]:
    """A daemon with simulated programs that answers. RuntimeError where it does not come up."""
    words = [sys.executable, "-m", "detshare.tools.browser.stage", "--programs", str(programs)]
    words += ["--run-dir", str(run_dir), "--log-level", "warning", *options]
    env = {**os.environ, "DETSHARE_BOARD_DIR": str(run_dir / "boards")}
    log = (run_dir / "stage.log").open("ab")
    with log:
        process = subprocess.Popen(words, env=env, stderr=log)
    patience = Patience(IDLE_S)
    while not Client(run_dir).alive():
        if process.poll() is not None or patience.spent():
            process.kill()
            process.wait()
            raise RuntimeError((run_dir / "stage.log").read_text()[-2000:])
        time.sleep(0.02)
    return process


@contextlib.contextmanager
def reports(run_dir: Path, pid: int, middle_s: float) -> Iterator[None]:
    """Somebody tells all the while how long requests of a program take, about so many seconds each."""
    ended = threading.Event()

    def tell() -> None:
        chance = random.Random(pid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            while not ended.wait(0.2):
                times = "\n".join(f"{middle_s * chance.lognormvariate(0, 0.15):.6f}" for _ in range(8))
                with contextlib.suppress(OSError):  # the daemon is being restarted
                    sender.sendto(f"for {pid}\n{times}\n".encode(), str(run_dir / REPORTS_NAME))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def shoot(tab: Tab, shot: Shot, path: Path) -> None:
    """The picture of an open page."""
    tab.shape(shot.width, shot.height, dark=shot.dark, narrow=shot.narrow)
    tab.until(f"document.querySelector('.gpu svg.wide .line')?.getAttribute('d').split('L').length > {SAMPLES}")
    if shot.opened:
        tab.click("#rows tr[data-key^='1000:']")
        tab.until("document.querySelector('#detail-body .told').children.length > 3")
        tab.until("document.querySelector('#detail-body svg.wide .line').getAttribute('d') !== ''")
    else:
        tab.eval("document.querySelector('#close').click()")
    tab.eval("getSelection().removeAllRanges(); scrollTo(0, 0)")
    tab.away()
    tab.until("document.querySelectorAll('#notices p').length === 0")  # is this machine busy?
    tab.shot(path)
    if tab.complaints:
        raise RuntimeError(f"the browser complains: {json.dumps(tab.complaints)}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def main(folder: Path) -> None:
    """Write the pictures of the page into FOLDER.

    Example: python -m detshare.tools.browser.shots docs/images
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dss-") as name, contextlib.ExitStack() as stack:
        run_dir, port = Path(name), free_port()
        daemon = stage(run_dir, SHOTS[0].programs, "--page-listen", f"127.0.0.1:{port}", "--page-changes")
        stack.callback(daemon.wait, 60)
        stack.callback(daemon.terminate)
        client = Client(run_dir)
        for pid, klass in ((1000, "high"), (1001, "low"), (1004, "low")):
            client.verb("set-priority", str(pid), klass=klass)
        stack.enter_context(reports(run_dir, 1000, 0.011))
        stack.enter_context(reports(run_dir, 1006, 0.042))
        browser = stack.enter_context(Chromium())
        tab = browser.tab(SHOTS[0].width, SHOTS[0].height)
        tab.go(client.page()["address"])
        for shot in SHOTS:
            path = folder / f"{shot.name}.png"
            shoot(tab, shot, path)
            click.echo(path)


if __name__ == "__main__":
    main()
