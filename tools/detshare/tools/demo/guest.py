# SPDX-License-Identifier: Apache-2.0
"""The demo inside the virtual machine: the kernel module, a simulated driver, and three real processes on it.

Started by detshare.tools.demo.vm through detshare-vm; not for a machine of yours.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import click

from detshare.ctl.cli import tables
from detshare.ctl.client import Client
from detshare.ctl.core.patience import Patience
from detshare.tools.demo.children import Workload, latency, throughput
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.figures import Closing, Figures, improved, table
from detshare.tools.demo.preloaded import Preloaded
from detshare.tools.demo.screen import Screen, start_daemon, wait_daemon

PERIOD_MS: Final = 20.0
LATENCY_US: Final = 3000.0
BACKGROUND_US: Final = 5000.0
PHASE_SECONDS: Final = 4.0
ATTEMPTS: Final = 3
"""at the phase that is judged: its p99 is the second longest of 200 latencies, so one halt of the host is enough"""
LEAST: Final = 100
"""latencies of a phase: an emulated machine that has other things to do needs longer than the phase for them"""
PATIENCE_S: Final = 60.0
"""seconds in which none of the programs does anything, after which a phase has nothing more to tell"""
SETTLE_SECONDS: Final = 1.0
"""what was under way when something changed belongs to neither phase"""
HELD: Final = "1G"
LIMIT: Final = "2G"
WANTED: Final = "3G"
FITS: Final = "512M"
REFUSED: Final = 0x51  # NV_ERR_NO_MEMORY
LOW_SLICE_US: Final = "1000"
"""of the background: a switch on an H100 and what it restores take 0.2 ms of it"""
UNIT: Final = "kernels/s"


class GuestCommands:
    """Types commands as a person would; a preloaded process runs them."""

    def __init__(self, preloaded: Preloaded, screen: Screen) -> None:
        self._preloaded = preloaded
        self._screen = screen

    def ctl(self, *words: str) -> None:
        """detshare-ctl WORDS; DemoError when it fails."""
        self._run("detshare-ctl", *words)

    def top(self) -> None:
        self._run("detshare-top", "--once")

    def _run(self, name: str, *words: str) -> None:
        asked = shlex.join([name, *words])
        self._screen.say(f"\n$ {asked}")
        code, output = self._preloaded.run(name, *words)
        if output:
            self._screen.say(output)
        if code:
            raise DemoError(asked, f"it ended with code {code}", "its words are above; try detshare-ctl doctor")


class Allocator:
    """A process that allocates what it is told to, and tells what the driver answered. Use as a context."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read("start nvalloc")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, size: str) -> dict[str, Any]:
        """One allocation."""
        assert self._process.stdin is not None
        self._process.stdin.write(size + "\n")
        self._process.stdin.flush()
        return self._read(f"allocate {size}")

    def _read(self, asked: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DemoError(asked, f"nvalloc ended with code {self._process.wait()}", "read its last words above")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


class GuestDemo(contextlib.ExitStack):
    """The programs and the phases."""

    def __init__(self, programs: Path, replay: Path, screen: Screen) -> None:
        super().__init__()
        self._programs, self._replay, self._screen = programs, replay, screen
        self._background: list[Workload] = []

    def _start(self, name: str, program: str, *words: str) -> Workload:
        command = [str(self._programs / program), "--window", "0.25", "--replay", str(self._replay), *words]
        return self.enter_context(Workload(name, command, dict(os.environ)))

    def start_latency(self) -> None:
        """The program that matters."""
        words = ("--us", f"{LATENCY_US:g}", "--period-ms", f"{PERIOD_MS:g}")
        self.latency = self._start("the latency client", "nvlatency", *words)

    def start_background(self) -> None:
        """Two programs that always have work."""
        for number in (1, 2):
            words = ("--us", f"{BACKGROUND_US:g}", "--depth", "16")
            self._background.append(self._start(f"background client {number}", "nvbackground", *words))
        for workload in self._background:
            workload.wait_ready()

    def measure(self, phase: str) -> Figures:
        """What the programs report of a few seconds, or of as long as it takes them to report enough."""
        time.sleep(SETTLE_SECONDS)
        begin = time.monotonic()
        self._screen.wait(f"measure {phase} (model)", PHASE_SECONDS)
        patience = Patience(PATIENCE_S)
        while True:
            end = time.monotonic()
            seen = latency(self.latency.between(begin, end))
            windows = [workload.between(begin, end) for workload in self._background]
            if (seen.count >= LEAST and all(windows)) or patience.spent():
                break
            for workload in (self.latency, *self._background):
                workload.check()
            time.sleep(0.1)
        # a program without one whole window has finished nothing that is known of
        rates = [throughput(each) or 0.0 for each in windows]
        if not rates:
            return replace(seen, emulated=True)
        return replace(seen, throughput=sum(rates), slowest=min(rates), emulated=True)


def refuse(programs: Path, commands: GuestCommands, screen: Screen) -> None:
    """A limit on a living process, and what a request beyond it gets. DemoError where it is not refused."""
    with Allocator([str(programs / "nvalloc")]) as allocator:
        allocator.ask(HELD)
        commands.ctl("set-memory", str(allocator.pid), LIMIT)
        commands.ctl("show", str(allocator.pid))
        screen.say("")
        for size, wanted in ((WANTED, REFUSED), (FITS, 0)):
            answer = allocator.ask(size)
            said = "granted" if answer["status"] == 0 else f"refused with {answer['name']}, as a full GPU would answer"
            screen.say(f"nvalloc {allocator.pid} asks for {size} more: {said}")
            if answer["status"] != wanted:
                raise DemoError(f"ask for {size} under a limit of {LIMIT}", f"it was {said}", "detshare-ctl events")
        screen.say(f"it sees a GPU of {tables.size(answer['total'])} with {tables.size(answer['free'])} free")
        screen.say("")


def play(stack: contextlib.ExitStack, programs: Path, replay: Path, screen: Screen) -> Closing:
    """The whole flow."""
    preloaded = stack.enter_context(Preloaded())
    run_dir = Path("/run/detshare")
    screen.step("start detshared: it finds the kernel module's family and takes backend kmod")
    daemon = stack.enter_context(start_daemon(run_dir, "auto"))
    stage = stack.enter_context(GuestDemo(programs, replay, screen))
    screen.step("start the latency client: it says what a recorded H100 program said, then a kernel every 20 ms")
    stage.start_latency()
    stage.latency.wait_ready()
    screen.step("it is ready; Python takes some seconds more on an emulated processor")
    preloaded.wait()
    wait_daemon(daemon, Client(run_dir))
    commands = GuestCommands(preloaded, screen)
    phases = {"alone": stage.measure("alone")}
    screen.step("start two background clients: the same program, then kernels back to back")
    stage.start_background()
    phases["before"] = stage.measure("before")
    commands.ctl("ps")
    screen.say("")
    screen.step("a memory limit that the kernel holds")
    refuse(programs, commands, screen)
    commands.top()
    screen.say("")
    pid = stage.latency.pid
    screen.step(f"{pid} matters, the others may wait: say so to the living processes")
    # two programs whose slices are no longer than a switch would switch for ever
    commands.ctl("set-class", "low", "--slice", LOW_SLICE_US)
    commands.ctl("set-priority", str(pid), "high")
    commands.ctl("set-priority", "nvbackground", "low")
    screen.say("")
    for again in range(1, ATTEMPTS + 1):
        phases["after"] = stage.measure("after")
        if improved(phases) or again == ATTEMPTS:
            break
        screen.say("no better; an emulated GPU stands still while its host does other things, so once more")
    commands.top()
    daemon.check()
    screen.say("")
    screen.step("end")
    return Closing(
        "model",
        f"virtual machine, kernel {os.uname().release}, simulated driver, one GPU of 132 SMs and 80 GiB",
        "nvlatency (a 3 ms kernel every 20 ms)",
        "two nvbackground (kernels of 5 ms)",
        UNIT,
        phases,
        round(screen.seconds, 1),
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--programs", type=click.Path(path_type=Path, exists=True), required=True, help="Folder of nvlatency ...")
@click.option("--replay", type=click.Path(path_type=Path, exists=True), required=True, help="Converted trace.")
@click.option("--began", type=float, default=0.0, help="Seconds that passed before.")
@click.option("--json", "as_json", is_flag=True, help="Closing table as JSON on stdout, the rest on stderr.")
def main(programs: Path, replay: Path, began: float, as_json: bool) -> None:
    """Play the demo in this guest.

    Example: detshare-vm run --driver sim --load -- .venv/bin/python -m detshare.tools.demo.guest --programs
    build/nvclient --replay build/nvclient/h100.nvr
    """
    up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    screen = Screen(sys.stderr if as_json else sys.stdout, began + up)
    os.environ.setdefault("COLUMNS", "100")
    try:
        with contextlib.ExitStack() as stack:
            closing = play(stack, programs, replay, screen)
    except DemoError as error:
        click.echo(f"detshare demo: {error}", err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(closing.to_json(), indent=2))
    screen.say(f"\n{closing.latency_program} beside {closing.background_program}")
    screen.say(table(closing))
    screen.say(f"\n[{closing.proof}] {closing.verdict()}")
    sys.exit(0 if closing.better else 1)


if __name__ == "__main__":
    main()
