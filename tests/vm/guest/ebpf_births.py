# SPDX-License-Identifier: Apache-2.0
"""detshared without the module: what eBPF hears is enough for a program to get its class when it makes its context."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detshare.ctl.client import Client
from tests.patience import ended, until
from tests.tracee.tracee import LIBCUDA, Tracee
from tests.vm.guest.kmod_tools import CLIENTS, TRUTH, unload

CONFIG = """
[daemon]
backend = "root"
observers = true
launches = true
[daemon.classes]
"trained *" = "low"
"*served*" = "high"
"""
LOW_US, HIGH_US, OWN_US = 50, 20_000, 2048
LOOKLESS = """
import asyncio
from detshare.ctl.daemon import daemon
from detshare.ctl.daemon.detshared import main
daemon.Daemon._rest = lambda self, took: asyncio.Event().wait()
main()
"""
"""A detshared that looks when it begins and with each verb, and never else. On a slow machine the look that comes 20 ms
after a program's client was heard of sees its context before that has its class; here only early apply can give one."""


@contextmanager
def daemon(folder: Path) -> Iterator[Path]:
    """A detshared that looks when it is asked to; its log."""
    config, log = folder / "detshare.toml", folder / "log"
    config.write_text(CONFIG)
    config.chmod(0o600)
    words = [sys.executable, "-c", LOOKLESS, "--run-dir", folder / "run", "--config", config]
    libraries = {**os.environ, "LD_LIBRARY_PATH": str(LIBCUDA.parent)}  # as if it were installed
    with log.open("w") as writing:
        process = subprocess.Popen(words, stderr=writing, env=libraries)
    try:
        until(lambda: "ready on" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield log
        process.send_signal(signal.SIGTERM)
        assert ended(process) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
        print(log.read_text())  # shown where a test fails


def late(log: Path) -> list[float]:
    """How many ms after its first TSG each program had its class."""
    return [float(each) for each in re.findall(r"([\d.]+) ms after its first TSG", log.read_text())]


@dataclass(frozen=True)
class Program:
    """One with a context."""

    pid: int
    client: int
    tsg: int

    @property
    def slice_us(self) -> int:
        """Of its TSG, as the simulated driver has it."""
        lines = (TRUTH / "tsgs").read_text().splitlines()
        names = lines[0].split()
        for line in lines[1:]:
            row = dict(zip(names, line.split(), strict=True))
            if (int(row["client"], 16), int(row["handle"], 16)) == (self.client, self.tsg):
                return int(row["slice_us"])
        raise LookupError(f"the driver has no TSG of PID {self.pid}")


@contextmanager
def program(name: str, *more: str) -> Iterator[Program]:
    """A program with a context, called so."""
    words = [name, "--period-us", "1000000", *more]
    process = subprocess.Popen(words, executable=CLIENTS / "nvkick", stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield Program(process.pid, ready["client"], ready["tsg"])
    finally:
        process.kill()
        process.communicate()


def test_a_standing_class_comes_with_the_context_and_without_a_look(tmp_path: Path) -> None:
    unload()
    with daemon(tmp_path) as log:
        client = Client(tmp_path / "run")

        def given(its: Program, slice_us: int, what: str) -> None:
            """It comes to have that slice, before a look brings the log what was done."""
            until(lambda: its.slice_us == slice_us)
            until(lambda: bool(client.verb("resume", str(its.pid))) and f"change {its.pid}: {what}" in log.read_text())

        for name, slice_us in (("trained", LOW_US), ("/opt/served", HIGH_US)):
            with program(name) as its:
                given(its, slice_us, "a new context brought to class")
        with program("untrained") as other:
            own = other.slice_us
            with program("trained") as its:
                given(its, LOW_US, "a new context brought to class")
            assert len(late(log)) == 3
            assert other.slice_us == own not in (LOW_US, HIGH_US)
            assert f" {other.pid}: a new context" not in log.read_text()
        # as libcuda does, late in making a context
        with program("trained", "--own-slice", str(OWN_US)) as its:
            given(its, LOW_US, "brought back to class low")
            assert f"after it set a slice of {OWN_US} us itself" in log.read_text()
        print(f"given {late(log)} ms after the first TSG")
        launches_are_told(client)


def launches_are_told(client: Client) -> None:
    """Of a program that holds the driver and calls CUDA, and that nobody asked: 1009 launches of a grid, 503 copies."""
    holding = ("sh", "-c", 'exec 9</dev/nvidiactl; exec "$@"', "sh")
    with Tracee(before=holding) as tracee:
        for line in ("alloc plain 65536", "alloc plain 65536", "launch 1009", "copy 503"):
            tracee.say(line)

        def seen() -> dict[str, Any]:
            client.verb("set-priority", str(tracee.pid), **{"class": "low"})  # a look comes with it
            programs = client.programs()["programs"]
            return next((each["observed"] or {} for each in programs if each["pid"] == tracee.pid), {})

        until(lambda: seen().get("copies") == 503)
        found = seen()
        assert (found["launches"], found["partial"], found["source"]) == (1009, [], "eBPF")
        assert found["grids"] == [{"blocks": 8, "threads": 128, "launches": 1009}]
        assert (found["copied_bytes"], found["waits"]) == (503 * 4096, 1)
