# SPDX-License-Identifier: Apache-2.0
"""detshared without the module: what eBPF hears is enough for a program to get its class when it makes its context."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.guest.kmod_tools import CLIENTS, TRUTH, unload

CONFIG = """
[daemon]
backend = "root"
interval = 60
observers = true
[daemon.classes]
"trained *" = "low"
"*served*" = "high"
"""
LOW_US, HIGH_US = 50, 20_000
LONG_S = 20.0
"""for an emulated processor beside others; a third of the interval between looks"""


@contextmanager
def daemon(folder: Path) -> Iterator[Path]:
    """A detshared that looks once a minute; its log."""
    config, log = folder / "detshare.toml", folder / "log"
    config.write_text(CONFIG)
    config.chmod(0o600)
    words = [sys.executable, "-m", "detshare.ctl.detshared", "--run-dir", folder / "run", "--config", config]
    with log.open("w") as writing:
        process = subprocess.Popen(words, stderr=writing)
    try:
        comes(lambda: "ready on" in log.read_text() or process.poll() is not None, 120)
        assert process.poll() is None, log.read_text()
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        print(log.read_text())  # shown where a test fails


def comes(true: Callable[[], bool], seconds: float = LONG_S) -> float:
    """Seconds until it came true."""
    begun = time.monotonic()
    while not true():
        assert time.monotonic() - begun < seconds
        time.sleep(0.001)
    return time.monotonic() - begun


def late(log: Path) -> list[float]:
    """How many ms after its first TSG each program had its class."""
    return [float(each) for each in re.findall(r"([\d.]+) ms after its first TSG", log.read_text())]


def slices() -> list[int]:
    """Of every TSG that the simulated driver has."""
    lines = (TRUTH / "tsgs").read_text().splitlines()
    place = lines[0].split().index("slice_us")
    return sorted(int(line.split()[place]) for line in lines[1:])


@contextmanager
def program(name: str) -> Iterator[subprocess.Popen[str]]:
    """A program with a context, called so."""
    words = [name, "--period-us", "1000000"]
    process = subprocess.Popen(words, executable=CLIENTS / "nvkick", stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_standing_class_comes_with_the_context_and_without_a_look(tmp_path: Path) -> None:
    unload()
    with daemon(tmp_path) as log:
        for name, slice_us in (("trained", LOW_US), ("/opt/served", HIGH_US)):
            with program(name) as process:
                comes(lambda wanted=slice_us: slices() == [wanted])
                comes(lambda pid=process.pid: f"change {pid}: a new context brought to class" in log.read_text())
            comes(lambda: slices() == [])
        with program("untrained") as process:
            own = slices()
            with program("trained"):
                comes(lambda: slices() == sorted([*own, LOW_US]))
                comes(lambda: len(late(log)) == 3)
            assert f" {process.pid}: a new context" not in log.read_text()
        print(f"given {late(log)} ms after the first TSG")
