# SPDX-License-Identifier: Apache-2.0
"""From looks and events to the hooks of a policy, on one thread beside the backend's worker.

Whoever feeds it (`look`, `hear`) only leaves the newest there and never waits. What comes faster than it is worked off
is dropped but for the newest of each tenant. The kernel and the boards follow what was set by themselves: while this
thread waits for a policy, no tenant does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, TypeVar

from detshare.ctl.core import snapshot
from detshare.ctl.core.snapshot import Check, Event, Outcome
from detshare.ctl.policy import registry
from detshare.ctl.policy.commands import Commands
from detshare.ctl.policy.decisions.log import Log
from detshare.ctl.policy.executor import Executor, Perform
from detshare.ctl.policy.host import LIMIT_S, Call
from detshare.ctl.policy.ledger import BY_VERB, Ledger
from detshare.ctl.policy.seat import Seat
from detshare.ctl.policy.seats import Seats
from detshare.ctl.policy.succession import Choice, Succession
from detshare.ctl.policy.types import PCtx
from detshare.ctl.policy.view import Viewer, missing
from detshare.ctl.policy.watcher import Due, Watcher

__all__ = ["Engine"]

log = logging.getLogger("detshared.policy")
T = TypeVar("T")

PACE_S: Final = 0.001
"""between two turns where events come: what comes meanwhile is worked off together"""
SHORTEST_TICK_S: Final = 0.01
MOST_CALLS: Final = 256
"""hooks in one turn: the rest has the next one"""
BEGIN: Final = frozenset({"kick", "active", "launch"})
END: Final = frozenset({"quiet", "completion"})
"""kinds of events that say that a tenant has work, or has none"""
_PATIENCE_S: Final = 10.0
FEW: Final = 64
SAVE_S: Final = 0.1
"""where more than a few things stand they are written so often at the most: whoever is killed loses the last of them"""


class Engine:
    """`tell`: takes events for people. `pool`: the pool of each GPU in a look. `attend`: is told whether `edge` is to
    be called. All methods but `turn` may be called by any thread."""

    def __init__(
        self,
        perform: Perform,
        tell: Callable[[Event], None],
        *,
        backend: str,
        decisions: Log,
        ledger: Ledger | None = None,
        pool: Callable[[snapshot.Snapshot], Mapping[str, tuple[PCtx, ...]]] = lambda seen: {},
        attend: Callable[[bool], None] = lambda on: None,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attend = attend
        self._attends = False
        self.decisions = decisions
        self._clock = clock
        self.ledger = ledger or Ledger()
        self.seats = Seats(limit_s)
        self._viewer = Viewer(
            self.ledger.kinds, self.ledger.deadlines, lambda: self.ledger.version, backend, self.seats.mine
        )
        self._watch = Watcher(self._viewer, pool, clock)
        self._executor = Executor(
            perform,
            tell,
            backend=backend,
            decisions=decisions,
            ledger=self.ledger,
            viewer=self._viewer,
            seats=self.seats,
            clock=clock,
        )
        self._heirs = Succession(self.seats, self._viewer, self._watch, self._executor, tell, clock)
        self._awake = threading.Event()
        self._seen: snapshot.Snapshot | None = None
        self._backend = backend
        self._missing: frozenset[str] = frozenset()
        """of MECHANISMS, as the last look had it"""
        self._commands = Commands()
        self._save_due = 0.0
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)

    # -- what others call ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to decide."""
        self._thread.start()

    @property
    def decides(self) -> bool:
        """Whether a policy in force may act on what a look shows."""
        return any(self._is_time(seat.loaded.policy.looks if seat.loaded else "always") for seat in self.seats)

    def _is_time(self, when: str) -> bool:
        """Whether that is now; one of KICKS."""
        return when == "always" or (when == "deadlines" and bool(self.ledger.deadlines))

    def look(self, seen: snapshot.Snapshot) -> None:
        """A new look at the machine."""
        self._seen = seen
        self._awake.set()

    def hear(self, event: Event) -> None:
        """An event of the backend; most are none of ours. Cheap: called for each of very many."""
        kind = event.kind
        if event.pid is not None and (kind in BEGIN or kind in END):
            self.edge(event.pid, kind in BEGIN)

    def edge(self, pid: int, works: bool) -> None:
        """A program begins to work, or stops. Cheap, too."""
        self._watch.edges.hear(str(pid), works, self._clock())
        if not self._awake.is_set():
            self._awake.set()

    def choose(self, spec: str, params: Mapping[str, str], by: str = "", gpu: str = "") -> Future[None]:
        """Another policy from now on, of one GPU (its number, or the beginning of its UUID) or of all that have none of
        their own. ControlError at once where it cannot be loaded."""
        registry.require_safe(spec)
        loaded = registry.load(spec, params)
        return self._ask(lambda: self._heirs.choose(loaded, by, gpu))

    def unset(self, gpu: str, by: str = "") -> Future[dict[str, object]]:
        """A GPU has no policy of its own any more."""
        return self._ask(lambda: self._heirs.unset(gpu, by))

    def hand(self, verb: str, who: str, outcome: Outcome) -> None:
        """A person did a verb: what it is about is his from now on."""
        pids = {change.pid for change in outcome.changed}
        if verb in ("set-class", "set-reflex"):
            self._ask(lambda: self._executor.row_by_hand(who))
        elif verb in BY_VERB or verb == "release":
            everything = verb == "release" and who.strip() == "*"
            self._ask(lambda: self._executor.by_hand(verb, pids, everything))

    def give_back(self, pids: set[int], klass: str = "") -> Future[int]:
        """`policy resume`: what people set for these programs, or for a class, binds the policy no more."""

        def do() -> int:
            found, anew = self._executor.give_back(pids, klass)
            self._calls.extend(Due(gpu, "on_attach", name, None) for gpu, name in anew)
            return found

        return self._ask(do)

    def set_deadline(self, pids: set[int], deadline_us: float | None) -> Future[int]:
        """A goal for requests of these programs, or none any more; of how many it was set."""

        def do() -> int:
            found = [process for process in self._viewer.processes.values() if process.pid in pids]
            for process in found:
                if deadline_us is None:
                    self.ledger.deadlines.pop(process, None)
                else:
                    self.ledger.deadlines[process] = deadline_us
                for gpu in self._viewer.gpus():
                    self._viewer.change(gpu, str(process.pid), deadline_us=deadline_us)
            if found:
                self.ledger.keep()
                self.decisions.note("deadline", tenants=[str(each.pid) for each in found], us=deadline_us)
            return len(found)

        return self._ask(do)

    def settled(self) -> Future[None]:
        """Done when everything that was said before is worked off, and logged."""
        return self._ask(lambda: None)

    def _ask(self, do: Callable[[], T]) -> Future[T]:
        done = self._commands.ask(do, self._stop)
        self._awake.set()
        return done

    def stop(self) -> None:
        """No more decisions; what was decided stands. Idempotent."""
        self._stop = True
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        for seat in self.seats:
            if seat.host is not None:
                seat.host.close()
        self.ledger.close()
        self.decisions.close()

    def status(self) -> dict[str, Any]:
        """What `policy show` says: of the policy of all, and in `gpus` of each that one GPU has."""
        return self._of_seat(self.seats.default) | {
            "hears_kicks": self._attends,
            "records": self.decisions.records,
            "records_lost": self.decisions.lost,
            "stuck_threads": len(self._heirs.left),
            "gpus": [{"gpu": s.number, "uuid": s.gpu, **self._of_seat(s)} for s in self.seats if s.gpu],
        }

    def _of_seat(self, seat: Seat) -> dict[str, Any]:
        puts = sum(self.seats.of(put.gpu) is seat for put in tuple(self.ledger.puts.values()))
        rows = sum(self.seats.has_row(seat, key) for key in tuple(self.ledger.rows))
        return seat.status(self._missing) | {"standing": puts + rows}

    def status_of(self, pid: int) -> dict[str, Any]:
        """The same of the policy that decides for a program."""
        views = self._viewer.by_name().items()
        gpu = next((gpu for gpu, mine in views if any(view.pid == pid for view in mine)), "")
        return self._of_seat(self.seats.of(gpu))

    def decided(self) -> dict[int, dict[str, str]]:
        """PID -> kind of action -> "hand", or "policy NAME" of who decided it."""
        made: dict[int, dict[str, str]] = {}
        for (process, kind), put in tuple(self.ledger.puts.items()):
            made.setdefault(process.pid, {})[kind] = f"policy {self.seats.of(put.gpu).name}".rstrip()
        for mine in tuple(self._viewer.by_name().values()):
            for view in mine:
                for kind in view.by_hand:
                    made.setdefault(view.pid, {})[kind] = "hand"
        return made

    def doctor(self) -> list[Check]:
        """Lines of `doctor`: that of all first, then one for each GPU that has a policy of its own."""
        made = [seat.check() for seat in self.seats]
        if made[0].ok and self._heirs.left:
            stuck = f"; {len(self._heirs.left)} thread(s) of failed policies do not end"
            made[0] = replace(made[0], detail=made[0].detail + stuck)
        return made

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop:
            self._awake.wait(self._wait_s())
            self._awake.clear()
            try:
                self.turn()
                time.sleep(PACE_S)
            except Exception as error:
                log.exception("a turn of the policy engine failed")
                for seat in self.seats:
                    self._heirs.fail(seat, f"an error in DetShare itself ({type(error).__name__}: {error})")

    def _wait_s(self) -> float:
        if self._calls:
            return 0.0
        now = self._clock()
        due = [self._watch.edges.next_due, *(guard.next_due() / 1e6 for guard in self._executor.guards.values())]
        for seat in self.seats:
            if self._ticks(seat):
                due.append(seat.tick_due)
            if seat.retry_at:
                due.append(seat.retry_at)
        if self._heirs.left:
            due.append(now + 1.0)
        if self.ledger.version != self.ledger.saved:
            due.append(self._save_due)
        return min(60.0, max(0.0, min(due, default=float("inf")) - now))

    def turn(self) -> None:
        """Work off what came since the last one."""
        heirs = self._heirs
        if not heirs.first or self._seen is None:  # else nobody is known yet about whom people might say something
            self._commands.obey()
        now = self._clock()
        heirs.left = [host for host in heirs.left if host.interrupt()]
        for seat in self.seats:
            if seat.retry_at and now >= seat.retry_at:
                heirs.anew(seat)
        seen, self._seen = self._seen, None
        if seen is not None:
            self.ledger.see(seen.programs)
            self.ledger.settle(seen.taken)
            self._missing = missing(seen, self._backend)
            first = heirs.first
            heirs.look(seen, now)
            if first:
                self._commands.obey()
        self._watch.take_edges(now)
        for seat in self.seats:
            if self._ticks(seat) and now >= seat.tick_due:
                seat.tick_due = now + max(SHORTEST_TICK_S, seat.tick_s)
                self._calls.extend(Due(gpu, "on_tick", None, now) for gpu in self._gpus_of(seat))
        self._executor.open_overdue(now)
        self._decide()
        self._hear_or_not()
        if len(self.ledger.puts) > FEW and now < self._save_due:
            return
        try:
            if self.ledger.save():
                self._save_due = now + SAVE_S
        except OSError as error:
            self.ledger.saved = self.ledger.version
            self._heirs.say("error", None, f"what the policy set is not kept over a restart: {error}")

    def _hear_or_not(self) -> None:
        """Whether the policy wants to hear of launches at once: that costs programs something."""
        wanted = False
        for seat in self.seats:
            if (host := seat.host) is not None and seat.works and host.hooks & {"on_launch", "on_completion"}:
                wanted = wanted or self._is_time(type(host.policy).kicks)
        if wanted != self._attends:
            self._attends = wanted
            self._attend(wanted)

    @property
    def _calls(self) -> deque[Due]:
        return self._watch.calls

    def _gpus_of(self, seat: Seat) -> list[str]:
        return [gpu for gpu in self._viewer.gpus() if self.seats.of(gpu) is seat]

    def _ticks(self, seat: Seat) -> bool:
        """Whether a policy ticks now: while it has something to see to and somebody works, or what it did stands."""
        host = seat.host
        if host is None or not seat.works or "on_tick" not in host.hooks or seat.tick_s <= 0:
            return False
        works = (view.active for gpu in self._gpus_of(seat) for view in self._viewer.tenants(gpu).values())
        return self._stands(seat) or (self._is_time(host.policy.ticks) and any(works))

    def _stands(self, seat: Seat) -> bool:
        puts, rows = self.ledger.puts, self.ledger.rows
        if not self.seats.own:
            return bool(puts or rows)
        return any(self.seats.of(put.gpu) is seat for put in puts.values()) or any(
            self.seats.has_row(seat, key) for key in rows
        )

    # -- deciding -----------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        if not self._calls:
            return
        turn = [self._calls.popleft() for _ in range(min(len(self._calls), MOST_CALLS))]
        for seat in self.seats:
            mine = [due for due in turn if self.seats.of(due.gpu) is seat]
            if mine and seat.loaded is not None:
                self._decide_in(seat, mine)

    def _decide_in(self, seat: Seat, turn: list[Due]) -> None:
        snapshots = {gpu: self._executor.snapshot(gpu) for gpu in {call[0] for call in turn}}
        calls = [Call(hook, snapshots[gpu], name) for gpu, hook, name, _ in turn]
        host = seat.host
        answers = host.ask(calls) if host is not None else []
        seat.counts["calls"] += len(answers)
        told: dict[str, list[list[Any]]] = {gpu: [] for gpu in snapshots}
        by_call = {id(answer.call): answer for answer in answers}
        for call in calls:
            answer = by_call.get(id(call))
            what = [] if answer is None else self._executor.carry_out(answer)
            told[call.now.gpu].append([call.hook, call.tenant, what])
        ended = self._clock()
        seat.latency.extend(ended - since for _, _, _, since in turn if since is not None)
        unix = time.time()
        for gpu, several in told.items():
            self.decisions.turn(seat.name, snapshots[gpu], several, unix)
        if host is not None and host.failure and not seat.failed:
            self._heirs.fail(seat, host.failure)

    def open_with(self, spec: str, params: Mapping[str, str], gpus: Mapping[str, Choice] | None = None) -> None:
        """The first policies, before `start`: as a person chose them last, unless the configuration changed since.
        `gpus`: number or UUID -> that of one GPU."""
        self._heirs.open_with(spec, params, gpus or {})
