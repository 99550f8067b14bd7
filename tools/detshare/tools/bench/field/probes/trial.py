# SPDX-License-Identifier: Apache-2.0
"""What a probe has at hand: its way to share the GPU, and programs that it starts that way."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.field.systems import System
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.mix.worker import start as started
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["START", "Probe", "Trial"]

START = 120.0
"""seconds within which a program is ready"""
KNOWN = 2.0
"""seconds within which a daemon knows a program that is ready"""
SERVER, BACK = "server", "background"


@dataclass
class Trial:
    """One probe under one way. `alone`: nobody is beside the program that is asked."""

    session: Session
    system: System
    alone: bool
    native: Mapping[str, Figure] = field(default_factory=dict)
    """by what it is called, what the same probe gave alone; empty while that is measured"""
    seconds: float = 2.0
    """of an interval"""
    notes: list[str] = field(default_factory=list)
    made: list[Worker] = field(default_factory=list)

    def start(
        self,
        name: str,
        words: Sequence[object],
        server: bool = False,
        env: Mapping[str, str] | None = None,
        script: str = "field/cost.py",
    ) -> Worker:
        """A program of workloads/, ready, with the class that this way gives it. ProgramError, SteerError."""
        command, given = self._command(words, server, script)
        worker = started(self.session, name, command, {**given, **(env or {})})
        self.made.append(worker)
        worker.program.ready(START)
        if why := self.system.lacks(worker.pid):
            raise ProgramError(f"{name}: {why}")
        wanted = self.system.wanted(SERVER, [BACK])
        if wanted is not None:
            klass = wanted[SERVER if server else BACK].klass
            self._told(lambda: self.session.steer.verb("set-priority", worker.pid, klass=klass))
        return worker

    def limit(self, worker: Worker, mib: int) -> None:
        """Set the limit of a living program, where its environment does not say it. SteerError."""
        self._told(lambda: self.system.limit(self.session, worker.pid, mib))

    def _told(self, tell: Callable[[], object]) -> None:
        """Once more while the daemon does not know the program yet."""
        until = time.monotonic() + KNOWN
        while True:
            try:
                tell()
                return
            except SteerError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def fresh(self, name: str, words: Sequence[object], server: bool = False) -> Program:
        """A program that takes no orders and ends by itself; its caller drops it."""
        command, given = self._command(words, server, "field/cost.py")
        return self.session.start(name, command, given, told=True)

    def _command(self, words: Sequence[object], server: bool, script: str) -> tuple[list[str], dict[str, str]]:
        return self.system.command([sys.executable, str(WORKLOADS / script), *map(str, words)], server)

    def go(self, worker: Worker, event: str = "", within: float = START) -> dict[str, Any]:
        """Tell it to work; with `event`, the line of that kind that answers. ProgramError."""
        worker.go(period_ms=0)
        worker.answered(within)
        return worker.program.wait_for(event, within) if event else {}

    def end(self) -> None:
        """All programs of the probe."""
        self.session.drop(*(worker.program for worker in self.made))
        self.made.clear()


class Probe(ABC):
    """A small experiment. Its figures are called the same under each way."""

    name: str
    about: str
    seconds: float
    """that it takes"""

    @abstractmethod
    def measure(self, trial: Trial) -> list[Figure]:
        """ProgramError, SteerError, SystemMissing: what stopped it is its result."""
