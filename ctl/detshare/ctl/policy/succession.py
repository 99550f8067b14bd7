# SPDX-License-Identifier: Apache-2.0
"""Policies that come, go and fail: who hears of whom then, what stands, and what is taken back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from detshare.ctl.core import snapshot
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Event
from detshare.ctl.policy import registry
from detshare.ctl.policy.decisions.log import Log
from detshare.ctl.policy.executor import Executor
from detshare.ctl.policy.host import Call, Host
from detshare.ctl.policy.ledger import Ledger, Put
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.seat import RETRY_S, Seat
from detshare.ctl.policy.seats import Seats, row_key
from detshare.ctl.policy.view import Viewer
from detshare.ctl.policy.watcher import Watcher

__all__ = ["Choice", "Succession"]

Choice = tuple[str, Mapping[str, str]]
"""a policy by name or file, and its parameters"""
Former = Mapping[tuple[ProcessId, str], Put]


class Succession:
    """For the engine's thread."""

    def __init__(
        self,
        seats: Seats,
        viewer: Viewer,
        watch: Watcher,
        executor: Executor,
        tell: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self._seats, self._viewer, self._watch, self._executor = seats, viewer, watch, executor
        self._ledger: Ledger = executor.ledger
        self._decisions: Log = executor.decisions
        self._tell, self._clock = tell, clock
        self._configured: dict[str, Choice] = {}
        """of single GPUs, by number or UUID"""
        self._last: snapshot.Snapshot | None = None
        self.left: list[Host] = []
        """hosts whose threads were abandoned"""
        self.first = True
        """there was no look yet"""

    # -- looks --------------------------------------------------------------------------------------------------

    def look(self, seen: snapshot.Snapshot, now: float) -> None:
        """A look: GPUs and programs that came, went or moved. With the first one every policy begins."""
        there = self._seats.see(seen.gpus)
        if self.first:
            self._open_gpus()
        self._watch.look(seen, now)
        self._last = seen
        self._executor.classes = {row_key(row.name, row.gpu): row for row in seen.classes}
        here = (each for each in seen.floors if not each.uuid or each.gpu is not None)
        self._executor.floors = {row_key(each.name, each.gpu): round(1000 * each.floor) for each in here}
        handed = self._executor.follow()
        self._executor.see(now)
        if self.first:
            self.first = False
            calls = self._watch.calls
            rest = [call._replace(since=None) for call in calls if call.hook != "on_attach"]
            for seat in self._seats:  # that of all first: what an earlier daemon's wrote there goes with it
                self.begin(seat)  # what an earlier daemon's policy left is undone where this one does not want it
            calls.extend(rest)
            return
        for seat in there:
            self.begin(seat)
        self._hand_over(handed)

    def _hand_over(self, handed: Former) -> None:
        """Programs came to another policy, with what the last one decided for them."""
        to: dict[Seat, dict[str, set[str]]] = {}
        for (process, _), put in handed.items():
            to.setdefault(self._seats.of(put.gpu), {}).setdefault(put.gpu, set()).add(str(process.pid))
        for seat, whom in to.items():
            self._watch.drop(lambda due: due.hook == "on_attach" and due.tenant in whom.get(due.gpu, ()))  # noqa: B023
            former = {key: put for key, put in handed.items() if self._seats.of(put.gpu) is seat}
            self.begin(seat, whom, former)

    def _look_again(self) -> None:
        """Who decides for which GPU changed: programs on several GPUs are seen on others of them, perhaps."""
        if self._last is None or all(len(program.gpus) < 2 for program in self._last.programs):
            return
        self._watch.look(self._last, self._clock())
        self._hand_over(self._executor.follow())

    # -- people -------------------------------------------------------------------------------------------------

    def choose(self, loaded: Loaded, by: str, gpu: str) -> None:
        """Another policy, for a GPU, or for all that have none of their own. ControlError: there is no such GPU."""
        choice = loaded.name, dict(loaded.params)
        if not gpu:
            self._ledger.chosen = choice
            self._ledger.keep()
            self.switch(loaded, by)
            return
        key = self._seats.find(f"policy set {loaded.name[:80]} --gpu {gpu[:60]}", gpu, there=True)
        self._ledger.chosen_gpus[key] = choice
        self._ledger.keep()
        seat = self._seats.own.get(key)
        if seat is not None:
            self.switch(loaded, by, seat)
            return
        self._leave(self._seats.default, key)
        seat = self._seats.add(key)
        seat.sit(loaded)
        self._look_again()
        self.switch(loaded, by, seat, self._seats.default.name)

    def unset(self, gpu: str, by: str) -> dict[str, object]:
        """A GPU has no policy of its own any more: which one it was. ControlError: it has none."""
        asked = f"policy unset --gpu {gpu[:60]}"
        key = self._seats.find(asked, gpu)
        seat, default = self._seats.own.get(key), self._seats.default
        if seat is None:
            raise ControlError(asked, "that GPU has no policy of its own", "see: detshare-ctl policy show")
        if key in map(self._seats.name_of, self._configured):
            self._ledger.chosen_gpus[key] = None
        else:
            self._ledger.chosen_gpus.pop(key, None)
        self._ledger.keep()
        self._leave(seat, key)
        former = {each: put for each, put in self._ledger.puts.items() if put.gpu == key}
        rows = [row for row in self._ledger.rows if self._seats.has_row(seat, row)]
        if seat.host is not None:
            seat.host.close()
        del self._seats.own[key]
        self._decisions.note("unset", policy=default.name, before=seat.name, by=by, gpu=key)
        text = f"{seat.place}{default.name} decides from now on, as for the others; it was {seat.name}"
        self.say("policy", None, text + (f" (by {by})" if by else ""))
        if seat.number is not None:
            self._look_again()
            self._watch.drop(lambda due: due.gpu == key)
            self.begin(default, {key: tuple(self._viewer.tenants(key))}, former, rows)
        return {"gpu": seat.number, "uuid": key, "was": seat.name, "name": default.name}

    def _leave(self, seat: Seat, gpu: str) -> None:
        """A policy has nothing to say of a GPU any more: for it everybody there went."""
        self._watch.drop(lambda due: due.gpu == gpu)
        names, host = tuple(self._viewer.tenants(gpu)), seat.host
        if host is None or not seat.works or "on_detach" not in host.hooks or not names:
            return
        now = replace(self._executor.snapshot(gpu), tenants=())
        host.ask([Call("on_detach", now, name) for name in names])  # what it answers is about nobody who is there
        self._decisions.turn(seat.name, now, [["on_detach", name, []] for name in names])
        if host.failure:
            self.fail(seat, host.failure)

    # -- policies -----------------------------------------------------------------------------------------------

    def switch(self, loaded: Loaded, by: str = "", seat: Seat | None = None, before: str | None = None) -> None:
        """Another policy: it hears of every tenant, then what it does not want as the last one did is undone."""
        seat = seat or self._seats.default
        old = seat.name if before is None else before
        seat.sit(loaded)
        seat.retry_at, seat.retry_s, seat.tick_due = 0.0, RETRY_S[0], 0.0
        seat.counts["switches"] += 1
        params = dict(loaded.params)
        self._decisions.note("switch", policy=loaded.name, params=params, before=old, by=by, **seat.about)
        if old:
            text = f"{seat.place}{loaded.name} decides from now on; it was {old}"
            self.say("policy", None, text + (f" (by {by})" if by else ""))
        self.begin(seat)

    def begin(
        self,
        seat: Seat,
        whom: Mapping[str, Iterable[str]] | None = None,
        former: Former | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        """A policy begins with all that it decides for, or with `whom`: GPU -> tenants. It hears of each, then of
        `former` and `rows`, which stand, what it does not want is undone."""
        if self.first or seat.host is None:
            return
        if whom is None:
            whom = {gpu: tuple(self._viewer.tenants(gpu)) for gpu in self._viewer.gpus() if self._seats.of(gpu) is seat}
            self._watch.drop(lambda due: self._seats.of(due.gpu) is seat)
            rows = [key for key in self._ledger.rows if self._seats.has_row(seat, key)]
        if former is None:
            former = {key: put for key, put in self._ledger.puts.items() if self._seats.of(put.gpu) is seat}
        self._viewer.begin(self._clock() * 1e6, (name for names in whom.values() for name in names))
        asked = []
        for gpu, names in whom.items():
            now = self._executor.snapshot(gpu)
            asked.append((now, seat.host.ask([Call("on_attach", now, name) for name in names])))
        if not seat.host.failure:  # else what the last one decided stands
            # first, for to put back a slice is to release: that would open a gate, too, which the new one shut
            wanted = [action for _, answers in asked for each in answers for action in each.actions]
            self._executor.undo_unwanted(former, rows or (), wanted, seat)
        for now, answers in asked:
            told = [[each.call.hook, each.call.tenant, self._executor.carry_out(each)] for each in answers]
            if now.tenants:
                self._decisions.turn(seat.name, now, told)
        if seat.host.failure:
            self.fail(seat, seat.host.failure)

    def fail(self, seat: Seat, why: str) -> None:
        """What was decided stands; the policy is begun anew after a while."""
        host = seat.fail(why, self._clock())
        if host is not None:
            self.left.append(host)
        self._watch.drop(lambda due: self._seats.of(due.gpu) is seat)
        name = seat.name or "policy"
        text = f"policy {name} failed: {why}; what it decided stands, nothing new is decided"
        self.say("error", None, seat.place + text)
        self._decisions.note("failed", policy=name, text=why, **seat.about)

    def anew(self, seat: Seat) -> None:
        """A fresh object of the policy that failed."""
        seat.retry_at = 0.0
        loaded = seat.loaded
        if loaded is None:
            return
        try:
            registry.require_safe(loaded.name)
            fresh = registry.load(loaded.name, loaded.params)
        except ControlError as error:
            self.fail(seat, error.stopped)
            return
        seat.sit(replace(fresh, name=loaded.name))
        self.say("policy", None, f"{seat.place}{loaded.name} begins anew after its failure")
        self._decisions.note("anew", policy=loaded.name, **seat.about)
        self.begin(seat)

    # -- the start ----------------------------------------------------------------------------------------------

    def open_with(self, spec: str, params: Mapping[str, str], gpus: Mapping[str, Choice]) -> None:
        """The first policies: as a person chose them last, unless the configuration changed since."""
        problem = self._ledger.load()
        if problem:
            self.say("error", None, problem)
        ledger = self._ledger
        configured = repr((spec, sorted(params.items())))
        if ledger.chosen is None or ledger.configured not in ("", configured):
            ledger.chosen = None
        else:
            spec, params = ledger.chosen
        self._configured = dict(gpus)
        of_gpus = repr(sorted((key, name, sorted(p.items())) for key, (name, p) in gpus.items())) if gpus else ""
        if ledger.configured_gpus != of_gpus:
            ledger.chosen_gpus.clear()
        if (ledger.configured, ledger.configured_gpus) != (configured, of_gpus):
            ledger.configured, ledger.configured_gpus = configured, of_gpus
            ledger.touch()
        self._take_place(self._seats.default, (spec, params))

    def _open_gpus(self) -> None:
        """Policies of single GPUs, which have UUIDs from the first look on."""
        wanted: dict[str, Choice | None] = {}
        for given, choice in self._configured.items():
            key = self._seats.name_of(given)
            if key in wanted:
                self.say("error", None, f"policy.gpus names one GPU twice, {given} is the second: it counts")
            wanted[key] = choice
        wanted.update({self._seats.name_of(key): choice for key, choice in self._ledger.chosen_gpus.items()})
        for key, found in wanted.items():
            if found is not None:
                seat = self._seats.add(key)
                self._take_place(seat, found)
                if seat.number is None:
                    self.say("error", None, f"{seat.place}{seat.name} waits: there is no such GPU")

    def _take_place(self, seat: Seat, choice: Choice) -> None:
        spec, params = choice
        try:
            registry.require_safe(spec)
            loaded = registry.load(spec, params)
        except ControlError as error:
            self.say("error", None, f"{seat.place}policy {spec} cannot be had, static decides: {error.stopped}")
            self.switch(registry.load("static"), seat=seat)
            seat.failed = f"{spec} cannot be had: {error.stopped}"
            return
        self.switch(loaded, seat=seat)

    def say(self, kind: str, pid: int | None, text: str) -> None:
        """To people."""
        self._tell(Event(time.time(), kind, pid, text))
