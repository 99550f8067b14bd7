# SPDX-License-Identifier: Apache-2.0
"""Another policy over the inputs of a log: what would it have decided?

The inputs are those that were recorded: what the other policy decides changes nothing in them. Each policy's answers go
through the same guard as in the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detshare.ctl.policy import registry
from detshare.ctl.policy.apply import same, stands
from detshare.ctl.policy.decisions.log import Turn, turns
from detshare.ctl.policy.decisions.why import say
from detshare.ctl.policy.guard import Guard, kind_of
from detshare.ctl.policy.host import LIMIT_S, Call, Host
from detshare.ctl.policy.ledger import encode
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.types import Action, ClassRow, Gate, Park, Preempt, Snapshot

__all__ = ["Difference", "Replay"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One hook in which the two decided differently. Actions as in the log; lists are in the order of decision."""

    when: float
    gpu: str
    hook: str
    tenant: str | None
    recorded: list[dict[str, Any]]
    """what only the recorded policy did"""
    replayed: list[dict[str, Any]]
    """what only the other one did"""

    def text(self) -> list[str]:
        """Lines of a diff."""
        return [f"- {_line(each)}" for each in self.recorded] + [f"+ {_line(each)}" for each in self.replayed]


def _line(action: Mapping[str, Any]) -> str:
    reason = action.get("reason")
    return say(action) + (f"; {reason}" if reason else "")


@dataclass(slots=True)
class Replay:
    """Runs a policy over a log. `differences` can be gone through once; the counts hold after that."""

    loaded: Loaded
    log: Path
    limit_s: float = LIMIT_S
    turns: int = 0
    hooks: int = 0
    recorded: int = 0
    replayed: int = 0
    same: int = 0
    refused: int = 0
    """of the other policy's actions, by the guard"""
    left_out: int = 0
    """records without a decision that the log does not have: the other policy did not see them"""
    failed: str = ""
    _guards: dict[str, Guard] = field(default_factory=dict)
    _ticked: dict[str, float] = field(default_factory=dict)
    _puts: dict[tuple[str, str, str], tuple[str, Action]] = field(default_factory=dict)
    """what of its own stands, and on which GPU: GPU of a class's row, else ""; whom; kind"""
    _hosts: dict[str, Host] = field(default_factory=dict)
    """GPU that has a policy of its own in the log, else "" -> who decides there"""
    _own: set[str] = field(default_factory=set)
    _same: set[str] = field(default_factory=set)
    """places, as in `_hosts`, of which the recorded policy is this one"""
    _strangers: set[str] = field(default_factory=set)
    """GPUs on which the recorded policy changed, since the last turn"""

    def differences(self) -> Iterator[Difference]:
        """What was decided differently, in order. OSError where the log cannot be read."""
        known: dict[str, set[str]] = {}
        try:
            for turn in turns(self.log):
                if isinstance(turn, Turn):
                    gpu = turn.now.gpu
                    yield from self._turn(self._host(gpu), turn, known.setdefault(gpu, set()))
                elif turn["kind"] in ("switch", "anew", "unset"):
                    self._note(turn, known)
                elif turn["kind"] == "undone" and self._place(str(turn.get("gpu"))) in self._same:
                    if isinstance(action := turn.get("action"), dict):
                        self._puts.pop(("", str(turn.get("tenant")), str(action.get("do"))), None)
                if self.failed:
                    return
        finally:
            for host in self._hosts.values():
                host.close()

    def _host(self, gpu: str) -> Host:
        """The object that decides for a GPU: another one where the recorded policy was that GPU's own."""
        place = self._place(gpu)
        if place not in self._hosts:
            fresh = self._hosts or place  # the object that was given is for the first place of all
            loaded = registry.load(self.loaded.name, self.loaded.params) if fresh else self.loaded
            self._hosts[place] = Host(loaded.policy, self.limit_s)
        return self._hosts[place]

    def _place(self, gpu: str) -> str:
        return gpu if gpu in self._own else ""

    def _note(self, note: Mapping[str, Any], known: dict[str, set[str]]) -> None:
        """A policy came or went there: where it began with a fresh object, this does, too."""
        place = str(note.get("gpu", ""))
        new = bool(place) and place not in self._own
        gpus = [place] if place else [gpu for gpu in known if gpu not in self._own]
        if note["kind"] == "unset":
            self._own.discard(place)
        else:
            (self._same.add if note.get("policy") == self.loaded.name else self._same.discard)(place)
            self._own |= {place} - {""}
        if not new and note["kind"] != "unset" and note.get("policy") != self.loaded.name:
            self._strangers.update(gpu for gpu in gpus if gpu in known)
            return
        host = self._hosts.pop(place, None)
        if host is not None:
            host.close()
            if not place:
                self.loaded = registry.load(self.loaded.name, self.loaded.params)
        for gpu in gpus:
            known.pop(gpu, None)
            self._strangers.discard(gpu)
        if note.get("before") != self.loaded.name:  # else what stands is what this one wants, too
            self._puts = {key: put for key, put in self._puts.items() if put[0] not in gpus}

    def _turn(self, host: Host, turn: Turn, known: set[str]) -> Iterator[Difference]:
        self.turns += 1
        self.left_out += turn.left_out
        guard = self._guards.setdefault(turn.now.gpu, Guard())
        guard.see(turn.now)
        guard.overdue(turn.now.now_us)
        for hook, tenant, actions in self._calls(host, turn, known):
            did = [action for action, fate in actions if fate == "done"]
            self.recorded += len(did)
            would = self._ask(host, Call(hook, turn.now, tenant), guard)
            if self.failed:
                return
            self.replayed += len(would)
            mine, theirs = _unlike(did, would)
            self.same += len(did) - len(mine)
            if mine or theirs:
                yield Difference(turn.when, turn.now.gpu, hook, tenant, mine, theirs)

    def _calls(self, host: Host, turn: Turn, known: set[str]) -> Iterator[tuple[str, str | None, list[list[Any]]]]:
        """The hooks of a turn, and those that the log cannot have: who was there before it began, ticks of our own."""
        named = {tenant for hook, tenant, _ in turn.calls if hook == "on_attach"}
        here = {each.name for each in turn.now.tenants}
        for name in sorted(here - known - named):
            yield "on_attach", name, []
        before = set(known)
        known.clear()
        known.update(here)
        ticked = False
        again = turn.now.gpu in self._strangers
        self._strangers.discard(turn.now.gpu)
        for hook, tenant, actions in turn.calls:
            if again and hook == "on_attach" and tenant in before:
                continue  # the recorded policy was new, this one is not
            ticked = ticked or hook == "on_tick"
            yield hook, tenant, actions
        tick_us = host.policy.tick_us
        if ticked:
            self._ticked[turn.now.gpu] = turn.now.now_us
        elif tick_us > 0 and turn.now.now_us - self._ticked.get(turn.now.gpu, -tick_us) >= tick_us:
            self._ticked[turn.now.gpu] = turn.now.now_us
            if turn.policy != self.loaded.name:
                yield "on_tick", None, []

    def _ask(self, host: Host, call: Call, guard: Guard) -> list[dict[str, Any]]:
        self.hooks += 1
        would = []
        for answer in host.ask([call]):
            if answer.problem:
                self.failed = answer.problem
            for action in answer.actions:
                if guard.check(action, call.now) is not None:
                    self.refused += 1
                elif self._is_new(action, call.now):
                    would.append(encode(action))
        return would

    def _is_new(self, action: Action, now: Snapshot) -> bool:
        """Whether it changes something, by the rules that the daemon has."""
        if isinstance(action, Preempt | Park):
            return True
        whom = action.klass if isinstance(action, ClassRow) else action.tenant
        key = (now.gpu if isinstance(action, ClassRow) else "", whom, kind_of(action))
        _, old = self._puts.get(key, ("", None))
        if same(old, action):
            return False
        view = now.tenant(whom)
        if old is None and view is not None and stands(action, view):
            return False
        self._puts[key] = now.gpu, action
        if isinstance(action, Gate) and action.open:
            del self._puts[key]
        return True


def _plain(action: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, value) for key, value in action.items() if key != "reason"))


def _unlike(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What only one of them has."""
    rest = list(second)
    only = []
    for each in first:
        match = next((other for other in rest if _plain(other) == _plain(each)), None)
        if match is None:
            only.append(each)
        else:
            rest.remove(match)
    return only, rest
