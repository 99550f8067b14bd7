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
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from detshare.ctl.core import snapshot
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check, Event, Outcome
from detshare.ctl.policy import registry
from detshare.ctl.policy.decisions.log import Log
from detshare.ctl.policy.executor import Executor, Perform
from detshare.ctl.policy.host import LIMIT_S, Call, Host
from detshare.ctl.policy.ledger import BY_VERB, Ledger
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.types import MECHANISMS, PCtx
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
RETRY_S: Final = (30.0, 600.0)
"""a policy that failed is begun anew after that; each time twice as long, up to the second"""
_PATIENCE_S: Final = 10.0
FEW: Final = 64
SAVE_S: Final = 0.1
"""where more than a few things stand they are written so often at the most: whoever is killed loses the last of them"""


@dataclass(slots=True)
class _Command(Generic[T]):
    """Something that another thread asked this one to do."""

    do: Callable[[], T]
    done: Future[T]


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
        self._tell, self._attend = tell, attend
        self._attends = False
        self.decisions = decisions
        self._limit_s, self._clock = limit_s, clock
        self.ledger = ledger or Ledger()
        self._viewer = Viewer(self.ledger.kinds, self.ledger.deadlines, lambda: self.ledger.version, backend)
        self._watch = Watcher(self._viewer, pool, clock)
        self._executor = Executor(
            perform,
            tell,
            backend=backend,
            decisions=decisions,
            ledger=self.ledger,
            viewer=self._viewer,
            clock=clock,
        )
        self._host: Host | None = None
        self._loaded: Loaded | None = None
        self._left: list[Host] = []
        """hosts whose threads were abandoned"""
        self._awake = threading.Event()
        self._seen: snapshot.Snapshot | None = None
        self._backend = backend
        self._missing: frozenset[str] = frozenset()
        """of MECHANISMS, as the last look had it"""
        self._commands: deque[_Command[Any]] = deque()
        self._tick_due = self._save_due = 0.0
        self._first = True
        """there was no look yet"""
        self._failed = ""
        self._failures = 0
        self._retry_at = 0.0
        self._retry_s = RETRY_S[0]
        self._counts = {"calls": 0, "switches": 0}
        self._latency: deque[float] = deque(maxlen=4096)
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)

    # -- what others call ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to decide."""
        self._thread.start()

    @property
    def decides(self) -> bool:
        """Whether the policy in force may act on what a look shows."""
        return self._is_time(self._loaded.policy.looks if self._loaded else "always")

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

    def choose(self, spec: str, params: Mapping[str, str], by: str = "") -> Future[None]:
        """Another policy from now on. ControlError at once where it cannot be loaded."""
        registry.require_safe(spec)
        loaded = registry.load(spec, params)

        def do() -> None:
            self.ledger.chosen = spec, dict(params)
            self.ledger.keep()
            self._switch(loaded, by)

        return self._ask(do)

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
        command: _Command[T] = _Command(do, Future())
        if self._stop:
            command.done.set_exception(ControlError("ask the policy", "detshared is stopping", "start it again"))
            return command.done
        self._commands.append(command)
        self._awake.set()
        return command.done

    def stop(self) -> None:
        """No more decisions; what was decided stands. Idempotent."""
        self._stop = True
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if self._host is not None:
            self._host.close()
        self.ledger.close()
        self.decisions.close()

    def status(self) -> dict[str, Any]:
        """What `policy show` says."""
        loaded, latency = self._loaded, sorted(self._latency)
        return {
            "name": loaded.name if loaded else "",
            "params": dict(loaded.params) if loaded else {},
            "rule": loaded.rule if loaded else "",
            "remarks": [] if loaded is None else self._remarks(loaded),
            "failed": self._failed,
            "failures": self._failures,
            "hooks": sorted(self._host.hooks) if self._host else [],
            "hears_kicks": self._attends,
            "slowest_ms": round(1000 * self._host.slowest, 3) if self._host else 0.0,
            "limit_ms": 1000 * self._limit_s,
            "counts": self._counts | self._executor.counts,
            "refused": [{"when": when, "text": text} for when, text in tuple(self._executor.refused)],
            "standing": len(self.ledger.puts) + len(self.ledger.rows),
            "latency_p50_ms": round(1000 * latency[len(latency) // 2], 3) if latency else None,
            "latency_p99_ms": round(1000 * latency[len(latency) * 99 // 100], 3) if latency else None,
            "records": self.decisions.records,
            "records_lost": self.decisions.lost,
            "stuck_threads": len(self._left),
        }

    def _remarks(self, loaded: Loaded) -> list[str]:
        """What the policy cannot do on this machine, and why, in its own words."""
        lacks = getattr(loaded.policy, "lacks", None)
        if not isinstance(lacks, Mapping):
            return []
        return [str(lacks[each])[:300] for each in MECHANISMS if each in self._missing and each in lacks]

    def decided(self) -> dict[int, dict[str, str]]:
        """PID -> kind of action -> "hand", or "policy NAME" of who decided it."""
        made: dict[int, dict[str, str]] = {}
        name = f"policy {self._loaded.name}" if self._loaded else "policy"
        for (process, kind), _ in tuple(self.ledger.puts.items()):
            made.setdefault(process.pid, {})[kind] = name
        for mine in tuple(self._viewer.by_name().values()):
            for view in mine:
                for kind in view.by_hand:
                    made.setdefault(view.pid, {})[kind] = "hand"
        return made

    def doctor(self) -> Check:
        """One line of `doctor`."""
        status = self.status()
        if self._failed:
            text = f"{status['name']} failed and is not asked any more: {self._failed}; what it decided stands"
            return Check("policy", False, text, "mend it, then: detshare-ctl policy set NAME")
        text = f"{status['name']}: {status['counts']['actions']} decision(s), {status['counts']['refused']} refused"
        if status["stuck_threads"]:
            text += f"; {status['stuck_threads']} thread(s) of failed policies do not end"
        return Check("policy", True, text)

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
                self._fail(f"an error in DetShare itself ({type(error).__name__}: {error})")

    def _wait_s(self) -> float:
        if self._calls:
            return 0.0
        now = self._clock()
        due = [self._watch.edges.next_due, *(guard.next_due() / 1e6 for guard in self._executor.guards.values())]
        if self._ticks():
            due.append(self._tick_due)
        if self._retry_at:
            due.append(self._retry_at)
        if self._left:
            due.append(now + 1.0)
        if self.ledger.version != self.ledger.saved:
            due.append(self._save_due)
        return min(60.0, max(0.0, min(due, default=float("inf")) - now))

    def turn(self) -> None:
        """Work off what came since the last one."""
        if not self._first or self._seen is None:  # else nobody is known yet about whom people might say something
            self._obey()
        now = self._clock()
        self._left = [host for host in self._left if host.interrupt()]
        if self._retry_at and now >= self._retry_at:
            self._begin_anew()
        seen, self._seen = self._seen, None
        if seen is not None:
            self.ledger.see(seen.programs)
            self.ledger.settle(seen.taken)
            self._missing = missing(seen, self._backend)
            self._watch.look(seen, now)
            self._executor.classes = {row.name: row for row in seen.classes if row.gpu is None}
            self._executor.see(now)
            if self._first:
                self._first = False
                rest = [call._replace(since=None) for call in self._calls if call.hook != "on_attach"]
                self._begin_with_all()  # what an earlier daemon's policy left is undone where this one does not want it
                self._calls.extend(rest)
                self._obey()
        self._watch.take_edges(now)
        if self._ticks() and now >= self._tick_due:
            self._tick_due = now + max(SHORTEST_TICK_S, self._tick_s())
            self._calls.extend(Due(gpu, "on_tick", None, now) for gpu in self._viewer.gpus())
        self._executor.open_overdue(now)
        self._decide(now)
        self._hear_or_not()
        if len(self.ledger.puts) > FEW and now < self._save_due:
            return
        try:
            if self.ledger.save():
                self._save_due = now + SAVE_S
        except OSError as error:
            self.ledger.saved = self.ledger.version
            self._say("error", None, f"what the policy set is not kept over a restart: {error}")

    def _obey(self) -> None:
        """Do what people asked."""
        while self._commands:
            command = self._commands.popleft()
            if not command.done.set_running_or_notify_cancel():
                continue  # who asked gave up before it began
            try:
                command.done.set_result(command.do())
            except Exception as error:  # noqa: BLE001  told to who asked
                command.done.set_exception(error)

    def _hear_or_not(self) -> None:
        """Whether the policy wants to hear of launches at once: that costs programs something."""
        host, wanted = self._host, False
        if host is not None and not host.failure and host.hooks & {"on_launch", "on_completion"}:
            wanted = self._is_time(type(host.policy).kicks)
        if wanted != self._attends:
            self._attends = wanted
            self._attend(wanted)

    @property
    def _calls(self) -> deque[Due]:
        return self._watch.calls

    def _tick_s(self) -> float:
        return 0.0 if self._host is None else self._host.policy.tick_us / 1e6

    def _ticks(self) -> bool:
        """Whether the policy ticks now: while it has something to see to and somebody works, or what it did stands."""
        host = self._host
        if host is None or host.failure or "on_tick" not in host.hooks or self._tick_s() <= 0:
            return False
        works = (view.active for mine in self._viewer.by_name().values() for view in mine)
        return bool(self.ledger.puts or self.ledger.rows) or (self._is_time(host.policy.ticks) and any(works))

    # -- deciding -----------------------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        if not self._calls:
            return
        turn = [self._calls.popleft() for _ in range(min(len(self._calls), MOST_CALLS))]
        if self._loaded is None:
            return
        snapshots = {gpu: self._executor.snapshot(gpu) for gpu in {call[0] for call in turn}}
        calls = [Call(hook, snapshots[gpu], name) for gpu, hook, name, _ in turn]
        host = self._host
        answers = host.ask(calls) if host is not None else []
        self._counts["calls"] += len(answers)
        told: dict[str, list[list[Any]]] = {gpu: [] for gpu in snapshots}
        by_call = {id(answer.call): answer for answer in answers}
        for call in calls:
            answer = by_call.get(id(call))
            what = [] if answer is None else self._executor.carry_out(answer)
            told[call.now.gpu].append([call.hook, call.tenant, what])
        ended = self._clock()
        self._latency.extend(ended - since for _, _, _, since in turn if since is not None)
        unix = time.time()
        for gpu, several in told.items():
            self.decisions.turn(self._loaded.name, snapshots[gpu], several, unix)
        if host is not None and host.failure and not self._failed:
            self._fail(host.failure)

    # -- policies that come and go ------------------------------------------------------------------------------

    def _switch(self, loaded: Loaded, by: str = "") -> None:
        """Another policy: it hears of every tenant, then what it does not want as the last one did is undone."""
        old = self._loaded.name if self._loaded else ""
        if self._host is not None:
            self._host.close()
        self._host, self._loaded = Host(loaded.policy, self._limit_s), loaded
        self._failed, self._retry_at, self._retry_s = "", 0.0, RETRY_S[0]
        self._counts["switches"] += 1
        self._tick_due = 0.0
        self.decisions.note("switch", policy=loaded.name, params=dict(loaded.params), before=old, by=by)
        if old:
            self._say(
                "policy", None, f"{loaded.name} decides from now on; it was {old}" + (f" (by {by})" if by else "")
            )
        self._begin_with_all()

    def _begin_with_all(self) -> None:
        if self._first or self._host is None or self._loaded is None:
            return
        self._viewer.begin(self._clock() * 1e6)
        former, rows = dict(self.ledger.puts), dict(self.ledger.rows)
        self._calls.clear()  # the new policy hears of everybody in any case
        asked = []
        for gpu in self._viewer.gpus():
            now = self._executor.snapshot(gpu)
            asked.append((now, self._host.ask([Call("on_attach", now, name) for name in self._viewer.tenants(gpu)])))
        if not self._host.failure:  # else what the last one decided stands
            # first, for to put back a slice is to release: that would open a gate, too, which the new one shut
            wanted = [action for _, answers in asked for each in answers for action in each.actions]
            self._executor.undo_unwanted(former, rows, wanted)
        for now, answers in asked:
            told = [[each.call.hook, each.call.tenant, self._executor.carry_out(each)] for each in answers]
            if now.tenants:
                self.decisions.turn(self._loaded.name, now, told)
        if self._host.failure:
            self._fail(self._host.failure)

    def open_with(self, spec: str, params: Mapping[str, str]) -> None:
        """The first policy, before `start`: as a person chose it last, unless the configuration changed since."""
        problem = self.ledger.load()
        if problem:
            self._say("error", None, problem)
        configured = repr((spec, sorted(params.items())))
        if self.ledger.chosen is None or self.ledger.configured not in ("", configured):
            self.ledger.chosen = None
        else:
            spec, params = self.ledger.chosen
        if self.ledger.configured != configured:
            self.ledger.configured = configured
            self.ledger.touch()
        try:
            registry.require_safe(spec)
            loaded = registry.load(spec, params)
        except ControlError as error:
            self._say("error", None, f"policy {spec} cannot be had, static decides: {error.stopped}")
            loaded = registry.load("static")
            self._switch(loaded)
            self._failed = f"{spec} cannot be had: {error.stopped}"
            return
        self._switch(loaded)

    def _fail(self, why: str) -> None:
        """What was decided stands; the policy is begun anew after a while."""
        self._failed = why
        self._failures += 1
        self._retry_at, self._retry_s = self._clock() + self._retry_s, min(RETRY_S[1], 2 * self._retry_s)
        name = self._loaded.name if self._loaded else "policy"
        if self._host is not None:
            self._host.close()
            self._left.append(self._host)
        self._calls.clear()
        self._say("error", None, f"policy {name} failed: {why}; what it decided stands, nothing new is decided")
        self.decisions.note("failed", policy=name, text=why)

    def _begin_anew(self) -> None:
        """A fresh object of the policy that failed."""
        self._retry_at = 0.0
        loaded = self._loaded
        if loaded is None:
            return
        try:
            registry.require_safe(loaded.name)
            fresh = registry.load(loaded.name, loaded.params)
        except ControlError as error:
            self._fail(error.stopped)
            return
        self._host, self._loaded = Host(fresh.policy, self._limit_s), replace(fresh, name=loaded.name)
        self._failed = ""
        self._say("policy", None, f"{loaded.name} begins anew after its failure")
        self.decisions.note("anew", policy=loaded.name)
        self._begin_with_all()

    def _say(self, kind: str, pid: int | None, text: str) -> None:
        self._tell(Event(time.time(), kind, pid, text))
