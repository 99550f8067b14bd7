# SPDX-License-Identifier: Apache-2.0
"""How an experiment starts its programs: plain, as clients of an MPS server of its own, or by ``detshare run``.

A program that was to be in the spatial lane and is not would be measured under a wrong name: `Lanes.ready` asks the
daemon of each, and stops the experiment where the runtime stepped aside.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from detshare.ctl.client import ClientError
from detshare.ctl.core.errors import ControlError
from detshare.runtime.directory import default_path
from detshare.runtime.mps import Mps
from detshare.tools.bench.process import READY_SECONDS, Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["MPS", "MPS_50", "PLAIN", "SETTLE", "How", "Lanes", "says"]

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
SEEN_SECONDS = 10.0
SETTLE = 0.3  # seconds that are thrown away after a switch: nothing here needs longer


@dataclass(frozen=True)
class How:
    """How a program is started: ``lane`` is plain, mps, spatial or temporal."""

    lane: str
    percent: int | None = None
    """mps: its active threads"""
    klass: str | None = None
    """spatial, temporal: its class"""
    sm: int | None = None
    """spatial: its share of the SMs, percent"""
    park: bool = False
    """spatial, temporal: its memory can leave the GPU"""
    after: str = ""
    """and does when it was idle for so long"""


PLAIN = How("plain")
MPS = How("mps")
MPS_50 = How("mps", percent=50)


def says(key: str, value: object) -> Callable[[dict[str, Any]], bool]:
    """For Program.wait_for: accepts lines where ``key`` is ``value``."""
    return lambda line: bool(line[key] == value)


@dataclass
class Lanes:
    """Use as a context inside a Session; starts the daemon. All programs started here end before the daemon does."""

    session: Session
    daemon: bool = True
    _mps: Mps = field(init=False)
    _spatial: list[Program] = field(default_factory=list)
    _others: list[Program] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._mps = Mps(self.session.folder / "mps")

    def __enter__(self) -> Lanes:
        if self.daemon:
            self.session.manage()
        else:
            self.session.proof = "gpu"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in (*self._spatial, *self._others):
            self.session.drop(program)
        try:
            self.session.steer.stop()
        finally:
            left = Mps(self.session.steer.run_dir / "mps")
            if left.adopt():
                left.stop()
            self._mps.stop()
            if self.session.options.run_dir is None:  # what it kept for a next daemon of this folder, which is going
                shutil.rmtree(default_path(self.session.steer.run_dir), ignore_errors=True)

    # -- starting -----------------------------------------------------------------------------------------------

    def command(self, how: How, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The command and the environment that start ``argv`` that way."""
        if how.lane == "plain":
            return list(argv), {}
        if how.lane == "mps":
            try:
                self._mps.start()
            except ControlError as problem:
                raise SteerError(f"no MPS server for the baseline: {problem}") from problem
            percent = {} if how.percent is None else {PERCENTAGE: str(how.percent)}
            return list(argv), {**self._mps.environment, **percent}
        words = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(self.session.steer.run_dir)]
        words += ["--lane", how.lane]
        if how.klass is not None:
            words += ["--priority", how.klass]
        if how.sm is not None:
            words += ["--sm", str(how.sm)]
        words += ["--park-after", how.after] if how.after else ["--park"] if how.park else []
        return [*words, "--", *argv], {}

    def start(self, name: str, how: How, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Program:
        """Start a program; `ready` waits for it."""
        command, more = self.command(how, argv)
        program = self.session.start(name, command, {**more, **(env or {})})
        (self._spatial if how.lane == "spatial" else self._others).append(program)
        return program

    def ready(self, *programs: Program) -> None:
        """Wait until all are warm and, where they were to be, in the spatial lane. ProgramError, SteerError."""
        for program in programs:
            program.ready()
        for program in programs:
            if program in self._spatial:
                for pid in program.programs:
                    self.spatial(pid)

    def warm(self, *programs: Program) -> None:
        """`ready`, each stopped as soon as it is, so that it takes nothing from those that are not yet."""
        left = list(programs)
        until = time.monotonic() + READY_SECONDS
        while left:
            for program in [one for one in left if one.lines("ready")]:
                program.hold()
                left.remove(program)
            ended = next((program for program in left if not program.alive), None)
            if ended is not None or time.monotonic() > until:
                (ended or left[0]).ready(1.0)  # raises, with its last words
            time.sleep(0.02)
        self.ready(*programs)

    def spatial(self, pid: int) -> dict[str, Any]:
        """What ``ps`` says of a program in the spatial lane. SteerError where it is not there."""
        until = time.monotonic() + SEEN_SECONDS
        while True:
            shown = self.session.steer.program(pid)
            if shown is not None and shown.get("spatial"):
                found = shown["spatial"]
                assert isinstance(found, dict)
                return found
            if time.monotonic() > until:
                raise SteerError(
                    f"{pid} is not in the spatial lane ({'not in ps' if shown is None else shown['state']}): the "
                    f"runtime stepped aside; the daemon's log ends: {self.session.steer.log_end()}"
                )
            time.sleep(0.02)

    def end(self, *programs: Program) -> list[dict[str, Any]]:
        """End programs that must have ended well; their summaries. ProgramError where one did not."""
        summaries = []
        for program in programs:
            try:
                summaries.append(program.stop())
            finally:
                self.session.drop(program)
                for kept in (self._spatial, self._others):
                    if program in kept:
                        kept.remove(program)
        return summaries

    def drop(self, *programs: Program) -> None:
        """End programs whatever they say at their end."""
        for program in programs:  # all at once: what PyTorch does at its end takes a second
            program.signal(signal.SIGTERM)
        for program in programs:
            self.session.drop(program)
            for kept in (self._spatial, self._others):
                if program in kept:
                    kept.remove(program)

    # -- steering -----------------------------------------------------------------------------------------------

    def remap(self, pid: int, percent: int) -> None:
        """Another share of the SMs, without waiting until it is acknowledged. SteerError where it was not taken."""
        try:
            self.session.steer.client.verb("set-sm", str(pid), percent=percent, timeout=0.0)
        except ClientError as error:
            if "acknowledge" not in str(error):
                raise SteerError(str(error)) from error

    def reserve(self, sms: int | None) -> None:
        """The first ``sms`` SMs for class high, all others the rest; None: no reserve."""
        self._verb("set-reserve", "*", sms=sms)

    def reflex(self, klass: str, **how: object) -> None:
        """What a class does while idle and while a higher one is active; without words: its default."""
        self._verb("set-reflex", klass, **how)

    def reset(self) -> None:
        """No reserve and every class's default reflex."""
        self.reserve(None)
        for klass in ("low", "normal", "high"):
            self.reflex(klass)

    def _verb(self, verb: str, who: str, **arguments: object) -> None:
        answer = self.session.steer.command(verb, who, **arguments)
        self.session.mark("verb", verb=verb, who=who, **arguments, took=answer.get("seconds"))
