# SPDX-License-Identifier: Apache-2.0
"""The two places where the demo plays: real programs on a GPU, and the model inside the daemon."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from detshare.ctl.client import Client
from detshare.ctl.core.errors import ControlError
from detshare.tools.demo.children import Workload, latency, throughput
from detshare.tools.demo.choice import Pair
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.figures import Figures
from detshare.tools.demo.screen import Commands, Screen

SETTLE_SECONDS = 1.0
"""what was under way when something changed belongs to neither phase"""
READING_SECONDS = 2.2
"""a reading of the model covers the 2 s before it: after so long it holds nothing of the phase before"""


class Stage(Protocol):
    """Two programs to steer. Use as a context."""

    proof: str
    unit: str
    latency_program: str
    background_program: str

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...

    def alone(self) -> Figures:
        """Start the latency program and measure it with no background at work."""
        ...

    def together(self) -> None:
        """Let the background work beside it."""
        ...

    def pids(self) -> tuple[int, int]:
        """Latency program, background program."""
        ...

    def measure(self, phase: str) -> Figures: ...


class GpuStage(contextlib.ExitStack):
    """Real programs. `budget`: seconds that the whole demo shall take; slow starts shorten the phases."""

    proof = "gpu"

    def __init__(self, pair: Pair, screen: Screen, budget: float, run_dir: Path) -> None:
        super().__init__()
        self._pair, self._screen = pair, screen
        self._end = time.monotonic() + budget
        self.unit = pair.unit
        self.latency_program, self.background_program = pair.latency_name, pair.background_name
        self._env = {**os.environ, "KERNELS_CACHE": str(run_dir)}
        self._seconds = {"alone": 4.0, "before": 8.0, "after": 8.0, "released": 5.0}

    def alone(self) -> Figures:
        self._screen.step(f"start the latency program: {self._pair.latency_name}")
        self._latency = self.enter_context(Workload("the latency program", self._pair.latency, self._env))
        self._latency.wait_ready()
        return self.measure("alone")

    def together(self) -> None:
        self._screen.step(f"start the background: {self._pair.background_name}")
        self._background = self.enter_context(Workload("the background", self._pair.background, self._env))
        self._background.wait_ready()
        # settling, the commands between the phases and the end take some 9 s
        factor = (self._end - time.monotonic() - 9.0) / 21.0
        for phase in ("before", "after", "released"):
            self._seconds[phase] *= min(max(factor, 0.3), 1.0)

    def pids(self) -> tuple[int, int]:
        return self._latency.pid, self._background.pid

    def measure(self, phase: str) -> Figures:
        alone = phase == "alone"
        time.sleep(0.0 if alone else SETTLE_SECONDS)
        begin = time.monotonic()
        self._screen.wait(f"measure {phase}", self._seconds[phase])
        end = time.monotonic()
        self._latency.check()
        seen = latency(self._latency.between(begin, end))
        if alone:
            return seen
        self._background.check()
        rate = throughput(self._background.between(begin, end))
        return Figures(seen.p50_us, seen.p99_us, seen.count, rate)


class ModelStage(contextlib.ExitStack):
    """The programs that the model backend simulates; alone means that the training is paused."""

    proof = "model"
    unit = "images/s"
    latency_program = "python3 serve.py (model)"
    background_program = "python3 train.py (model)"

    def __init__(self, client: Client, commands: Commands, screen: Screen) -> None:
        super().__init__()
        self._client, self._commands, self._screen = client, commands, screen

    def _find(self, pattern: str) -> int:
        try:
            programs = list(self._client.programs()["programs"])
        except ControlError as error:
            raise DemoError("list programs", error.stopped, error.next_step) from error
        for program in programs:
            if fnmatch.fnmatch(program["command"], pattern):
                return int(program["pid"])
        have = ", ".join(str(program["command"]) for program in programs) or "none"
        raise DemoError("find the simulated programs", f"none is like {pattern} (there are: {have})", "report it")

    def alone(self) -> Figures:
        self._pids = self._find("*serve.py*"), self._find("*train.py*")
        self._screen.step("pause the training for a moment, to see the latency program alone")
        self._commands.ctl("pause", str(self._pids[1]))
        return self.measure("alone")

    def together(self) -> None:
        self._screen.step("let the training go on")
        self._commands.ctl("resume", str(self._pids[1]))

    def pids(self) -> tuple[int, int]:
        return self._pids

    def measure(self, phase: str) -> Figures:
        before = self._reading(self._pids[0])
        earlier, until = before.get("count", 0), before.get("time_s", 0.0) + READING_SECONDS
        self._screen.wait(f"measure {phase} (model)", READING_SECONDS)
        # on a busy machine the model's time goes slower than ours
        while (seen := self._reading(self._pids[0])).get("time_s", until) < until:
            time.sleep(0.1)
        train = self._reading(self._pids[1])
        rate = None if phase == "alone" else train.get("throughput")
        # a reading of 0 us means that nothing was finished
        return Figures(
            seen.get("p50_us") or None,
            seen.get("p99_us") or None,
            int(seen.get("count", 0)) - int(earlier),
            rate,
        )

    def _reading(self, pid: int) -> dict[str, Any]:
        try:
            found = self._client.readings().get(str(pid), {})
        except ControlError as error:
            raise DemoError("read the simulation", error.stopped, error.next_step) from error
        return dict(found)
