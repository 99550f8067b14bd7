# SPDX-License-Identifier: Apache-2.0
"""Ways to share the GPU: a class each, which starts the programs its way and says what they are given.

A way that cannot be had says why (SystemMissing), and that is its result.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from detshare.ctl.core.errors import ControlError
from detshare.runtime.mps import Mps
from detshare.tools.bench.field.programs import Objectives
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.mix.stage import Wanted
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.session import Session

__all__ = ["ALONE", "AUTO", "SHARE_PERCENT", "Default", "System", "SystemMissing", "ours", "shipped"]

ALONE: Final = "alone"
AUTO: Final = "DetShare auto"
SHARE_PERCENT: Final = 25
"""of the SMs for each background under MPS with shares; the server has no limit"""


class SystemMissing(Exception):
    """This way does not exist here; the text says what stopped it."""


class System:
    """One way. The programs of ways with the same `group` are the same processes."""

    name: str
    group: str
    daemon = False
    """whether it is ours, and a daemon steers"""
    launches = False
    """whether that daemon counts launches, by eBPF"""

    def begin(self, session: Session) -> None:
        """Before its programs are started. SystemMissing."""

    def end(self) -> None:
        """After they have ended."""

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        """What starts a program, and its environment."""
        del server
        return list(argv), {}

    def lacks(self, pid: int) -> str:
        """Why a program that is ready does not run this way after all; empty where it does."""
        del pid
        return ""

    def wanted(self, server: str, backgrounds: Sequence[str]) -> Mapping[str, Wanted] | None:
        """What the daemon is told while they run; None: nothing."""
        del server, backgrounds
        return None

    def prepare(self, session: Session, server: Worker, slo: Objectives) -> None:
        """Before a cell of a server with these objectives. SteerError."""

    def over(self, session: Session) -> tuple[list[Figure], list[str]]:
        """After it: figures and notes of its own. SteerError."""
        del session
        return [], []

    def memory(self, mib: int) -> dict[str, str]:
        """The environment of a program that may have so much GPU memory. SystemMissing where there is no such limit."""
        raise SystemMissing(f"no limit of {mib} MiB can be set: this way has none")

    def limit(self, session: Session, pid: int, mib: int) -> None:
        """The same told after its start, where the environment does not say it. SteerError."""


class Default(System):
    """The driver's own time slicing."""

    name, group = "default slicing", "plain"


class Ours(System):
    """DetShare; limits go by its daemon."""

    daemon = True

    def memory(self, mib: int) -> dict[str, str]:
        del mib
        return {}

    def limit(self, session: Session, pid: int, mib: int) -> None:
        session.steer.verb("set-memory", pid, limit=mib << 20)


class Temporal(Ours):
    """DetShare with classes: the server high, the others low."""

    name, group = "DetShare temporal", "plain"

    def wanted(self, server: str, backgrounds: Sequence[str]) -> Mapping[str, Wanted] | None:
        return {server: Wanted("high"), **dict.fromkeys(backgrounds, Wanted("low"))}


class Spatial(Ours):
    """DetShare's spatial lane: the same classes, given at the start."""

    name, group, lane = "DetShare spatial", "spatial", "spatial"

    def __init__(self) -> None:
        self._run_dir: Path | None = None

    def begin(self, session: Session) -> None:
        self._run_dir = session.steer.run_dir

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        words = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(self._run_dir)]
        return [*words, "--lane", self.lane, "--priority", "high" if server else "low", "--", *argv], {}


class Auto(Spatial):
    """Each program in the lane that its earlier runs speak for: the temporal one where there was none."""

    name, group, lane = AUTO, "auto", "auto"


class MpsServer(System):
    """An MPS server of its own."""

    name, group = "MPS", "mps"
    server_words: Mapping[str, str] = {}
    back_words: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._mps: Mps | None = None

    def begin(self, session: Session) -> None:
        self._mps = Mps(session.folder / self.group)
        try:
            self._mps.start()
        except ControlError as error:
            raise SystemMissing(f"no MPS server: {error}") from error

    def end(self) -> None:
        if self._mps is not None:
            self._mps.stop()

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        assert self._mps is not None
        return list(argv), {**self._mps.environment, **(self.server_words if server else self.back_words)}

    def memory(self, mib: int) -> dict[str, str]:
        return {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={mib}M"}


class MpsPriority(MpsServer):
    """The same with client priorities."""

    name, group = "MPS with client priority", "mps1"
    server_words = {"CUDA_MPS_CLIENT_PRIORITY": "0"}
    back_words = {"CUDA_MPS_CLIENT_PRIORITY": "1"}


class MpsShares(MpsServer):
    """The same with a part of the SMs for each background."""

    name, group = "MPS with shares", "mps2"
    back_words = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(SHARE_PERCENT)}


def shipped() -> tuple[System, ...]:
    """All ways that need nothing but this machine, in the order of their worth."""
    return (Default(), Temporal(), MpsServer(), MpsPriority(), Spatial(), Auto(), MpsShares())


def ours(name: str) -> bool:
    """Whether a way of that name is DetShare's."""
    return name.startswith("DetShare")
