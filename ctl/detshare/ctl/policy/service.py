# SPDX-License-Identifier: Apache-2.0
"""The policy's place in the daemon: its engine, its log, and the answers to what people ask about both."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TypeVar

from detshare.ctl.backends.verbs import explain
from detshare.ctl.core import select, snapshot
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.config import Policy
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check, Event, Outcome
from detshare.ctl.policy import registry
from detshare.ctl.policy.decisions import why
from detshare.ctl.policy.decisions.log import FOLDER, Log
from detshare.ctl.policy.engine import Engine
from detshare.ctl.policy.executor import Perform
from detshare.ctl.policy.ledger import Ledger
from detshare.ctl.policy.types import PCtx

__all__ = ["PolicyService"]

log = logging.getLogger("detshared.policy")

ANSWER_S: Final = 20.0
"""how long a switch may take before whoever asked for it is told so"""
CATCH_UP_S: Final = 2.0
"""how long an answer waits for what was said before it to be logged; then it goes without"""
T = TypeVar("T")


class PolicyService:
    """One for each daemon. What is not async may be called by any thread."""

    def __init__(
        self,
        run_dir: Path,
        backend: str,
        perform: Perform,
        tell: Callable[[Event], None],
        pool: Callable[[snapshot.Snapshot], Mapping[str, tuple[PCtx, ...]]],
        attend: Callable[[bool], None] = lambda on: None,
    ) -> None:
        self.folder = run_dir / FOLDER
        self._decisions = Log(self.folder)
        ledger = Ledger(run_dir / f"policy-{'model' if backend == 'model' else 'gpu'}.json")
        self.engine = Engine(
            perform, tell, backend=backend, decisions=self._decisions, ledger=ledger, pool=pool, attend=attend
        )

    def start(self, configured: Policy, seen: snapshot.Snapshot) -> None:
        """Decide from now on, by the policies that people chose last, else by these. `seen`: the first look."""
        try:
            self._decisions.open()
        except OSError as error:
            log.error("decisions are not logged: %s cannot be made (%s)", self.folder, error)
        gpus = {gpu: (each.name, each.parameters) for gpu, each in configured.gpus.items()}
        self.engine.open_with(configured.name, configured.parameters, gpus)
        self.engine.start()
        self.engine.look(seen)

    def stop(self) -> None:
        """What was decided stands."""
        self.engine.stop()

    def look(self, seen: snapshot.Snapshot) -> None:
        """There was a look at the machine."""
        self.engine.look(seen)

    def hand(self, verb: str, who: object, outcome: Outcome) -> None:
        """A person did a verb."""
        self.engine.hand(verb, str(who), outcome)

    def doctor(self) -> list[Check]:
        """Lines of `doctor`."""
        return self.engine.doctor()

    def mark(self, seen: snapshot.Snapshot) -> snapshot.Snapshot:
        """The same with who decided what, in each program of which anybody decided anything."""
        decided = self.engine.decided()
        if not decided:
            return seen
        programs = tuple(
            dataclasses.replace(each, decided=decided[each.id.pid]) if each.id.pid in decided else each
            for each in seen.programs
        )
        return dataclasses.replace(seen, programs=programs)

    # -- what people ask ----------------------------------------------------------------------------------------

    def show(self) -> dict[str, Any]:
        """The answer to GET /v1/policy."""
        known = [dataclasses.asdict(each) for each in registry.known()]
        return {"policy": self.engine.status(), "known": known}

    async def choose(self, name: str, params: Mapping[str, str], by: str, gpu: str = "") -> dict[str, Any]:
        """Another policy from now on, of one GPU or of all that have none of their own; the status. ControlError where
        it cannot be had."""
        loop = asyncio.get_running_loop()
        # a file is read and run: that may take its time
        done = await loop.run_in_executor(None, lambda: self.engine.choose(name, params, by, gpu))
        await self._wait(done, f"policy set {name[:80]}" + (f" --gpu {gpu[:60]}" if gpu else ""))
        return self.engine.status()

    async def unset(self, gpu: str, by: str) -> dict[str, Any]:
        """`policy unset`: the status. ControlError where the GPU has no policy of its own."""
        await self._wait(self.engine.unset(gpu, by), f"policy unset --gpu {gpu[:60]}")
        return self.engine.status()

    async def give_back(self, who: str, seen: snapshot.Snapshot) -> dict[str, Any]:
        """`policy resume`: programs, or a class by its name. ControlError where nothing matches."""
        asked = f"policy resume {who[:80]}"
        pids = self._select(who, asked, seen)
        klass = who if any(row.name == who for row in seen.classes) or not pids else ""
        given = await self._wait(self.engine.give_back(pids, klass), asked)
        if not given:
            raise ControlError(asked, "nothing that a person set matches", "see: detshare-ctl ps, detshare-ctl why PID")
        return {"resumed": sorted(pids), "class": klass if not pids else ""}

    async def set_deadline(self, who: str, deadline_us: float | None, seen: snapshot.Snapshot) -> dict[str, Any]:
        """`policy deadline`. ControlError where nothing matches."""
        asked = f"policy deadline {who[:80]}"
        pids = self._select(who, asked, seen)
        if not await self._wait(self.engine.set_deadline(pids, deadline_us), asked):
            raise ControlError(asked, "no program on a GPU matches", "see which there are: detshare-ctl ps")
        return {"pids": sorted(pids), "deadline_us": deadline_us}

    @staticmethod
    def _select(who: str, asked: str, seen: snapshot.Snapshot) -> set[int]:
        try:
            selector = select.parse(who)
        except BadRequest as error:
            raise explain(error, asked) from error
        return {program.id.pid for program in seen.programs if selector.matches(program)}

    async def why(self, pid: int, since_s: float, seen: snapshot.Snapshot) -> dict[str, Any]:
        """The answer to GET /v1/why/PID."""
        await self._catch_up()
        status = self.engine.status_of(pid)
        loop = asyncio.get_running_loop()
        marked = self.mark(seen)
        return await loop.run_in_executor(None, lambda: why.story(pid, since_s, marked, status, self.folder))

    async def recent(self, since_s: float, most: int) -> list[dict[str, Any]]:
        """The newest decisions in words, oldest first."""
        await self._catch_up()
        return await asyncio.get_running_loop().run_in_executor(None, lambda: why.recent(self.folder, since_s, most))

    async def _catch_up(self) -> None:
        """A verb is answered before the engine hears of it: who asks next is to find it in the log."""
        with contextlib.suppress(TimeoutError, ControlError):
            await asyncio.wait_for(asyncio.wrap_future(self.engine.settled()), CATCH_UP_S)

    async def _wait(self, done: Future[T], asked: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), ANSWER_S)
        except TimeoutError:
            stopped = f"the engine did not come to it within {ANSWER_S:.0f} s; it may still happen"
            raise ControlError(asked, stopped, "see: detshare-ctl policy show, detshare-ctl doctor") from None
