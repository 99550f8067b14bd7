# SPDX-License-Identifier: Apache-2.0
"""Guests that experiments run in, and a run of a program of `inside` in one of them."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.tools.bench.lines import Line
from detshare.tools.vm import builds

__all__ = [
    "ALL",
    "GENUINE_535",
    "GENUINE_550",
    "HERE",
    "MACHINES",
    "PROGRAMS",
    "SIM",
    "SIMULATED",
    "SIM_61",
    "SIM_73",
    "SIM_DEBUG",
    "ExperimentError",
    "Machine",
    "given",
    "prepare",
    "run",
]

TOP: Final = Path(__file__).resolve().parents[5]
PROGRAMS: Final = TOP / "build" / "nvclient"
LOGS: Final = TOP / "build" / "kernel-logs"
"""of the last run of each program on each machine"""
_TAIL = 60  # lines of stderr that an error quotes


class ExperimentError(RuntimeError):
    """A guest that did not do what was asked; the text is for the user."""


@dataclass(frozen=True)
class Machine:
    """A kernel and a driver in it. `proof` is the level that a result seen there has."""

    name: str
    kernel: str
    driver: str
    proof: str
    label: str = ""

    @property
    def text(self) -> str:
        """For rows."""
        return f"{self.label or self.driver} on {self.kernel}"


SIM: Final = Machine("sim", "6.12", "sim", "model")
GENUINE_550: Final = Machine("550", "6.12", "nvidia-550", "driver")
GENUINE_535: Final = Machine("535", "6.1", "nvidia-535", "driver")
MACHINES: Final = {machine.name: machine for machine in (SIM, GENUINE_550, GENUINE_535)}
SIM_61: Final = Machine("sim-6.1", "6.1", "sim", "model")
SIM_DEBUG: Final = Machine("sim-debug", "debug", "sim", "model")
SIM_73: Final = Machine("sim-7.3", "7.3", "sim", "model")
SIMULATED: Final = {machine.name: machine for machine in (SIM, SIM_61, SIM_73, SIM_DEBUG)}
HERE: Final = Machine("here", "this machine", "the stand-in for libcuda", "unit")
"""no guest, and no driver: for what needs neither"""
ALL: Final = MACHINES | SIMULATED | {"here": HERE}


def given(folder: Path) -> Machine:
    """The genuine driver whose modules, built for 6.12, lie in a folder; its branch names it."""
    file = folder / "nvidia.ko"
    version = builds.said(file, "version") if file.is_file() else ""
    if not version:
        raise ExperimentError(f"{file}: there is no such module")
    return Machine(version.partition(".")[0], "6.12", str(folder.absolute()), "driver", f"nvidia-{version}")


def prepare() -> None:
    """The client programs, built."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with (PROGRAMS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build = ["make", "-s", "-C", str(TOP / "tests" / "nvclient"), f"OUT={PROGRAMS}"]
        done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ExperimentError(f"build the client programs: {(done.stderr or done.stdout).strip()}")


def run(
    machine: Machine,
    program: str,
    *words: object,
    timeout: float = 600.0,
    took: Callable[[Line], None] | None = None,
    options: tuple[str, ...] = (),
) -> list[Line]:
    """Run a program of `inside` in a guest with the driver and detshare.ko; its lines, given to `took` as they come.

    ExperimentError when it fails, when time runs out, and on a fault in the guest's kernel log.
    """
    prepare()
    command = [sys.executable, "-P", "-m", "detshare.tools.vm.cli", "run", "--kernel", machine.kernel]
    LOGS.mkdir(parents=True, exist_ok=True)
    command += ["--log", str(LOGS / f"{program}-{machine.name}.txt")]
    command += ["--driver", machine.driver, "--load", "--timeout", f"{timeout:g}"]
    command += ["--env", f"DETSHARE_NVCLIENT={PROGRAMS}", *options, "--"]
    inside = [sys.executable, "-P", "-m", f"detshare.tools.bench.vm.inside.{program}", *map(str, words)]
    command = inside if machine is HERE else command + inside
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=TOP
    )
    assert process.stdout is not None
    assert process.stderr is not None
    tail: deque[str] = deque(maxlen=_TAIL)
    reader = threading.Thread(target=tail.extend, args=(process.stderr,), daemon=True)
    reader.start()
    lines: list[Line] = []
    try:
        for text in process.stdout:
            try:
                line = json.loads(text)
            except ValueError:
                tail.append(text)
                continue
            line["machine"] = machine.name
            lines.append(line)
            if took is not None:
                took(line)
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        reader.join(timeout=5)
    if status:
        shown = "".join(tail).strip()
        raise ExperimentError(f"{program} in a guest with {machine.text} ended with {status}:\n{shown}")
    return lines
