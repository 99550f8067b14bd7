# SPDX-License-Identifier: Apache-2.0
"""What an experiment runs in: its programs, its daemon, its rows and its raw lines, and the right order of ending."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from detshare.tools import results
from detshare.tools.bench.catalog import kernels
from detshare.tools.bench.process import Program
from detshare.tools.bench.stats import Spread
from detshare.tools.bench.steer import Steer, SteerError

__all__ = ["SETTLE", "Options", "Session", "Slot", "steal_seconds"]

SETTLE = 0.5  # seconds that are thrown away after each switch
PATIENCE = 3.0  # seconds to wait for the window of a starved program


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    name: str
    seconds: float
    rounds: int
    out: Path
    quick: bool = False
    run_dir: Path | None = None
    budget: float = 280.0
    seed: int = 1
    budgeted: bool = False
    """whether the time was limited by --budget-s"""
    words: str = ""
    """options of the command; empty: those that every experiment has"""
    called: str = ""
    """the command below `detshare bench`, where it is not the result's name"""
    mib: int = 0
    """GPU memory that its programs have, where it can be told; 0: its own choice"""
    parts: tuple[str, ...] = ()
    """of an experiment that has some: which are measured; empty: all"""
    resume: Path | None = None
    """the result of an earlier run, whose parts count as measured"""

    @property
    def command(self) -> str:
        """The command that repeats it."""
        if self.words:
            return f"detshare bench {self.called or self.name} {self.words}"
        quick = " --quick" if self.quick else ""
        budget = f" --budget-s {self.budget:g}" if self.budgeted else ""
        mib = f" --mib {self.mib}" if self.mib else ""
        parts = "".join(f" --part {part}" for part in self.parts) + (" --resume FILE" if self.resume else "")
        times = f"--seconds {self.seconds:g} --rounds {self.rounds}"
        return f"detshare bench {self.name} {times}{parts}{mib}{budget}{quick}"


def steal_seconds() -> float:
    """CPU time that the hypervisor gave to other machines so far, all CPUs together (proc(5), /proc/stat)."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else 0.0


@dataclass(frozen=True)
class Slot:
    """What some programs did in one slot of time: their windows by program name."""

    begin: float
    end: float
    windows: dict[str, list[dict[str, Any]]]


@dataclass
class Session:
    """Use as a context. On the way out the daemon ends first, so that a paused program runs when it is told to end."""

    options: Options
    steer: Steer = field(init=False)
    rows: list[results.Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="detshare-bench-"))
        self.steer = Steer(self.options.run_dir or self._folder / "run")
        self._programs: list[Program] = []
        self._raw: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self.proof = ""
        self.variant = ""
        """what tells this result from those of the same experiment elsewhere; part of its name"""
        self.sms = 0
        """of the GPU, once something was calibrated"""
        self.measured = 0.0
        self.stolen = 0.0

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.steer.stop()
        except SteerError as problem:
            if error is None:
                raise
            self.say(str(problem))
        finally:
            for program in reversed(self._programs):
                program.end()
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def elapsed(self) -> float:
        """Seconds since the experiment began."""
        return time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.options.budget - self.elapsed

    def say(self, text: str) -> None:
        """Progress for the user, on standard error."""
        print(f"[{self.elapsed:6.1f} s] {text}", file=sys.stderr, flush=True)

    def record(self, line: dict[str, Any]) -> None:
        """Keep a line for the raw file; any thread."""
        with self._lock:
            self._raw.append(line)

    def mark(self, event: str, **fields: Any) -> None:
        """Keep what the experiment itself did and when."""
        self.record({"program": "bench", "event": event, "t": round(time.monotonic(), 6), **fields})

    def manage(self) -> None:
        """Start the daemon."""
        self.steer.start()
        self.proof = str(self.steer.ps()["proof"])

    @property
    def folder(self) -> Path:
        """A temporary folder of this session."""
        return self._folder

    def start(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None, told: bool = False
    ) -> Program:
        """Start a program; `ready` is not waited for. `told`: it takes orders (`Program.tell`)."""
        program = Program(name, argv, {"KERNELS_CACHE": str(self._folder), **(env or {})}, self.record, told)
        self._programs.append(program)
        return program

    def start_all(self, commands: dict[str, list[str]]) -> list[Program]:
        """Start several programs at the same time and wait until all are ready."""
        programs = [self.start(name, argv) for name, argv in commands.items()]
        for program in programs:
            program.ready()
        return programs

    def finish(self, *programs: Program) -> None:
        """End programs that must have ended well. ProgramError where one did not."""
        for program in programs:
            program.stop()
            self._programs.remove(program)

    def drop(self, *programs: Program) -> None:
        """End programs whatever they say at their end; those that have ended already too."""
        for program in programs:
            program.end()
            if program in self._programs:
                self._programs.remove(program)

    def calibrate(self, us: float, mode: str = "saturate") -> tuple[int, float]:
        """Iterations and measured time (us) of a kernel of about ``us`` on the idle GPU; nothing else may run now."""
        words = ("periodic", "--seconds", 0.3) if mode == "periodic" else ("calibrate", "--seconds", 0)
        program = self.start(f"calibrate {mode}", kernels(words[0], "--us", us, *words[1:]))
        line = program.wait_for("ready" if mode == "periodic" else "calibrated", 120.0)
        program.end()
        self._programs.remove(program)
        self.sms = int(line["sms"])
        return int(line["iterations"]), float(line["kernel_us"])

    def slot(self, what: str, seconds: float, *programs: Program, settle: float = SETTLE) -> Slot:
        """Let ``settle`` seconds pass, then measure for ``seconds``."""
        time.sleep(settle)
        begin, stolen = time.monotonic(), steal_seconds()
        time.sleep(seconds)
        end = time.monotonic()
        stolen = steal_seconds() - stolen
        self.measured += end - begin
        self.stolen += stolen
        self.mark("slot", what=what, begin=round(begin, 6), end=round(end, 6), steal_s=round(stolen, 3))
        return Slot(begin, end, {p.name: p.windows(begin, end, PATIENCE) for p in programs})

    def row(self, what: str, value: float, unit: str, baseline: float | None = None, target: str | None = None) -> None:
        """Add a row; figures are kept to six significant digits."""
        shown = None if baseline is None else float(f"{baseline:.6g}")
        self.rows.append(results.Row(what, float(f"{value:.6g}"), unit, shown, target))
        self.say(f"{what}: {value:.6g} {unit}" + (f" (baseline {shown:g})" if shown is not None else ""))

    def spread_rows(
        self, what: str, values: Spread, unit: str, baseline: float | None = None, target: str | None = None
    ) -> None:
        """The median over rounds with its target, and the least and greatest round."""
        self.row(what, values.median, unit, baseline, target)
        self.row(f"{what}, lowest round", values.low, unit)
        self.row(f"{what}, highest round", values.high, unit)

    def write(self, suffix: str = "") -> Path:
        """Write NAME.json and raw/NAME.jsonl.gz; with a suffix, that of a run that was cut off, beside whole ones."""
        options, name = self.options, self.options.name + self.variant + suffix
        if self.measured:
            # A request that waits for a CPU which the hypervisor gave to another machine is in every tail.
            share = 100 * self.stolen / self.measured
            self.row("host: CPU time stolen by the hypervisor while measuring, of one CPU", share, "%")
        raw = options.out / "raw" / f"{name}.jsonl.gz"
        raw.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, gzip.open(raw, "wt", encoding="utf-8") as stream:
            for line in self._raw:
                stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        result = results.Result(
            name,
            self.proof,
            options.command,
            results.commit(),
            results.machine(),
            results.now(),
            tuple(self.rows),
        )
        return results.write(result, options.out)
