# SPDX-License-Identifier: Apache-2.0
"""`park` and `resume` for programs whose GPU memory can leave, in either lane, and what is shown of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from detshare.ctl.core import procfs, select
from detshare.ctl.core.driver import Opener, ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.sizes import text
from detshare.ctl.core.snapshot import Change, Outcome, Skip
from detshare.ctl.core.work import Parking
from detshare.runtime.moves import Moves
from detshare.runtime.residence import STATES, WHOLE
from detshare.runtime.shut import Shut
from detshare.runtime.tenant import View
from detshare.runtime.tenants import Tenants

TIMEOUT: Final = 20.0
"""seconds that park waits where nothing else was asked for"""
BACK: Final = 5.0
"""seconds that resume waits: who finds no room on its GPU comes back later"""
AWAY: Final = ("parked", "coming", "waiting")
"""states in which the program's memory is not on its GPU"""


def parking_of(views: Iterable[View]) -> Parking | None:
    """A program's, over its GPUs. None where it was not started with --park: it never had memory that can leave."""
    mine = list(views)

    def total(name: str) -> int:
        return sum(value for view in mine if isinstance(value := view.counters[name], int))

    parkable, parks = total("parkable_bytes"), total("parks")
    after = mine[0].record.desired.park_after
    if not (parkable or parks or total("shares") or any(view.wants_bytes for view in mine)) and after is None:
        return None
    states = [STATES.get(number, "home") for view in mine if isinstance(number := view.counters["park_state"], int)]
    # with several GPUs the memory of all of them leaves and comes together
    state = next((each for each in ("waiting", "coming", "leaving", "parked", "returning") if each in states), "home")
    whole = {number for view in mine if isinstance(number := view.counters["whole"], int)}
    return Parking(
        state=state,
        parkable_bytes=parkable,
        parked_bytes=total("parked_bytes"),
        stays_bytes=max(total("memory_used") - total("leaves_bytes"), 0),
        arena_bytes=total("arena_bytes"),
        lent_bytes=total("lent_bytes"),
        shares=bool(total("shares")),
        parks=parks,
        wakes=total("wakes"),
        park_ms=total("park_ns") / 1e6,
        resume_ms=total("resume_ns") / 1e6,
        after=after,
        wants_bytes=sum(view.wants_bytes for view in mine),
        idle_s=round(min(view.idle_s for view in mine), 1),
        home_s=round(min(view.home_s for view in mine), 1),
        kept_bytes=total("kept_bytes") if state == "home" else 0,
        copied_bytes=total("copied_bytes"),
        hash_ms=total("hash_ns") / 1e6,
        whole=next((text for number, text in WHOLE.items() if number in whole), "") if parks else "",
    )


class Residence:
    """Where programs' memory is, of all tenants."""

    def __init__(self, tenants: Tenants, gone: Callable[[int], bool]) -> None:
        """`gone`: whether there is no process of a PID."""
        self._tenants = tenants
        self._gone = gone

    @property
    def shut(self) -> Shut:
        """Who is kept out of the driver."""
        return self._tenants.parking.shut

    @property
    def moves(self) -> Moves:
        """Who changes its GPU."""
        return self._tenants.moves

    def gpus(self, process: ProcessId) -> tuple[str, ...]:
        """The GPUs that a program's boards are of; those that it was moved to."""
        return tuple(dict.fromkeys(view.record.gpu.uuid for view in self.views() if view.record.process == process))

    def views(self) -> list[View]:
        """All tenants, of both lanes."""
        return self._tenants.views(observed=True)

    def all(self) -> dict[ProcessId, Parking]:
        """Of every program whose memory can leave."""
        views: dict[ProcessId, list[View]] = {}
        for view in self.views():
            views.setdefault(view.record.process, []).append(view)
        made = {process: parking_of(several) for process, several in views.items()}
        return {process: parking for process, parking in made.items() if parking is not None}

    def processes(self) -> set[ProcessId]:
        """Programs under the library, whose memory is its affair."""
        return {view.record.process for view in self.views()}

    def selects(self, who: str) -> bool:
        """Whether one of them is meant."""
        selector = select.parse(who)
        return any(selector.matches(opener) for opener in self._openers())

    def stirs(self) -> bool:
        """Whether somebody waits for room, so that looks are not to be rare."""
        return self._tenants.parking.presses()

    def _openers(self) -> list[Opener]:
        found: dict[ProcessId, Opener] = {}
        for view in self.views():
            process = view.record.process
            if process in found:
                continue
            try:
                found[process] = procfs.describe(process.pid, process.start, [], [])
            except OSError:
                continue  # it ended meanwhile
        return list(found.values())

    def _do(
        self,
        verb: str,
        who: str,
        away: bool,
        wanted: Callable[[Opener], bool],
        timeout: float | None,
        room_for: int | None = None,
    ) -> Outcome:
        selector, started = select.parse(who), time.monotonic()
        seconds = TIMEOUT if timeout is None else timeout
        chosen = [opener for opener in self._openers() if selector.matches(opener) and wanted(opener)]
        asked = [each for opener in chosen for each in self._tenants.parking.ask(opener.id, away, room_for or 0)]
        answers: list[Change | Skip] = []
        for pid, answer in self._tenants.parking.wait(asked, seconds).items():
            if answer is None and away and not seconds:
                answers.append(Change(pid, note="it was asked to let its memory go"))
            elif answer is None and away:
                stopped = f"PID {pid} did not answer within {seconds:g} s"
                following = f"it may still park: wait longer with --timeout, or see detshare-ctl show {pid}"
                raise ControlError(f"{verb} {who}", stopped, following)
            if answer is None:
                answers.append(Change(pid, note="it comes back as soon as the GPU has room for it"))
            elif answer:
                answers.append(Skip(pid, answer))
            else:
                answers.append(Change(pid, note=self._note(pid)))
        if not chosen and away:
            pid = selector.pid if selector.by is select.By.PID else 0
            if pid and self._gone(pid):
                answers.append(Skip(pid, f"there is no process {pid}; `detshare-ctl ps` lists those that there are"))
            else:
                stopped = "its memory cannot leave" if pid else "nobody that this selects can be parked"
                answers.append(Skip(pid, f"{stopped}: start it with detshare run --park -- COMMAND"))
        return Outcome.of(verb, answers, time.monotonic() - started)

    def _note(self, pid: int) -> str:
        parking = next((each for process, each in self.all().items() if process.pid == pid), None)
        if parking is None:
            return ""
        if parking.state in AWAY:
            stays = f"; {text(parking.stays_bytes)} of what it allocated stay" if parking.stays_bytes else ""
            copied = f", {text(parking.copied_bytes)} of it copied" if not parking.whole else ""
            return f"{text(parking.parked_bytes)} left the GPU in {parking.park_ms / 1e3:.3g} s{copied}{stays}"
        if parking.state == "returning":
            return f"it runs; {text(parking.parked_bytes)} of its memory are still on their way home"
        return f"its memory came back in {parking.resume_ms / 1e3:.3g} s"

    def park(self, who: str, timeout: float | None = None, room_for: int | None = None) -> Outcome:
        """Let memory leave; it stays away until the process `room_for` has what it waits for.

        ControlError where a program does not answer.
        """
        return self._do("park", who, True, lambda opener: True, timeout, room_for)

    def resume(self, who: str, lazy: bool = False, timeout: float = BACK) -> Outcome:
        """Bring back the memory of those who are parked; nobody else is in the outcome.

        `lazy`: who was not parked for that comes back as a whole, and lazily after its next park.
        """
        if lazy:
            self._tenants.parking.lazily({each.id for each in self._openers() if select.parse(who).matches(each)})
        away = {process for process, parking in self.all().items() if parking.state in AWAY}
        return self._do("resume", who, False, lambda opener: opener.id in away, timeout)
