# SPDX-License-Identifier: Apache-2.0
"""A program that holds GPU memory (workloads/held.py), under `detshare run --park` or plain, and its parks."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.steer import SteerError

__all__ = ["GRAIN", "LONGEST", "MIB", "Holder", "Parked"]

MIB: Final = 1 << 20
GRAIN: Final = 2 << 20
LONGEST: Final = 280.0
"""seconds that one order or verb may take: the first park also gets host memory, 3 GB a second"""
LANE: Final = "temporal"
_PARK: Final = 30.0
"""seconds that the verb waits; what takes longer is waited for here"""


@dataclass(frozen=True)
class Parked:
    """One park. Seconds, bytes."""

    command_s: float
    """from the command to its answer"""
    park_s: float
    """what the program's library says: from no new work to no memory"""
    hash_s: float
    copied: int
    bytes: int
    whole: str
    """why everything was copied; empty: it was not"""


class Holder:
    """The program. ProgramError where it does not start, SteerError where it cannot be parked."""

    def __init__(self, session: Session, mib: int, park: bool = True, chunk_mib: int = 64) -> None:
        self.session, self.mib = session, mib
        argv = [sys.executable, str(WORKLOADS / "held.py"), "--mib", str(mib), "--chunk-mib", str(chunk_mib)]
        argv += ["--seed", str(session.options.seed)]
        if park:
            run = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(session.steer.run_dir)]
            argv = [*run, "--lane", LANE, "--park", "--", *argv]
        self.program = session.start(f"{mib} MiB", argv, told=True)
        self._orders = 0
        try:
            self.program.ready()
            if park:
                self._until("parkable_bytes")
        except (ProgramError, SteerError):
            session.drop(self.program)
            raise

    def _parking(self) -> dict[str, Any]:
        program = self.session.steer.program(self.program.pid)
        return (program or {}).get("parking") or {}

    def _until(self, name: str, value: object = None) -> dict[str, Any]:
        """What `ps` says once that is so; without a value, once it is anything."""
        end = time.monotonic() + LONGEST
        while True:
            parking = self._parking()
            if parking.get(name) and value in (None, parking[name]):
                return parking
            if time.monotonic() > end:
                raise SteerError(f"PID {self.program.pid}: {name} is {parking.get(name)!r} after {LONGEST:g} s")
            time.sleep(0.005)

    def tell(self, event: str, **order: object) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        self._orders += 1
        number = self._orders
        self.program.tell(number=number, **order)
        return self.program.wait_for(event, LONGEST, accept=lambda line: bool(line["number"] == number))

    def park(self) -> Parked:
        """Off the GPU."""
        before = self._parking().get("parks", 0)
        began = time.monotonic()
        try:
            self.session.steer.verb("park", self.program.pid, timeout=_PARK)
        except SteerError as error:
            if "did not answer within" not in str(error):
                raise
        parking = self._until("state", "parked")
        took = time.monotonic() - began
        if parking["parks"] != before + 1:
            raise SteerError(f"PID {self.program.pid} was parked {parking['parks'] - before} times, once was asked")
        return Parked(
            took,
            parking["park_ms"] / 1e3,
            parking["hash_ms"] / 1e3,
            parking["copied_bytes"],
            parking["parked_bytes"],
            parking["whole"],
        )

    def park_deep(self) -> float:
        """Off the GPU with its context; seconds from the command to its answer. SteerError where the context stays."""
        began = time.monotonic()
        answer = self.session.steer.verb("park", self.program.pid, timeout=_PARK, deep=True)
        took = time.monotonic() - began
        if "its context left" not in (note := str(answer["changed"][0]["note"])):
            raise SteerError(f"PID {self.program.pid}: {note}")
        self.session.mark("park-deep", seconds=took, note=note)
        return took

    def resume(self) -> float:
        """On the GPU again; seconds that the library says it took."""
        self.session.steer.verb("resume", self.program.pid)
        return float(self._until("state", "home")["resume_ms"]) / 1e3

    def state(self) -> str:
        """Where its memory is."""
        return str(self._parking().get("state"))

    def all_home(self) -> float:
        """Waits for that; seconds that it took, as the library says."""
        return float(self._until("state", "home")["resume_ms"]) / 1e3

    def launch(self) -> float:
        """Seconds of a launch, which brings memory back that is away."""
        return float(self.tell("launched", do="launch")["seconds"])

    def write(self, grains: int, seed: int) -> None:
        """Change a word in each of so many grains."""
        self.tell("written", do="write", count=grains, seed=seed)

    def same(self) -> bool:
        """Whether all of its memory is what it wrote."""
        return bool(self.tell("compared", do="same")["same"])

    def left(self) -> int:
        """Bytes of the GPU that are free."""
        return int(self.tell("left", do="left")["bytes"])

    def measure(self, what: str) -> dict[str, Any]:
        """See workloads/held.py: `bandwidth`, `plain`, `managed`. `error` where the driver refuses."""
        return self.tell("measured", do=what)

    def end(self) -> None:
        """It is not needed any more."""
        self.session.drop(self.program)
