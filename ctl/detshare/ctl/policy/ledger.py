# SPDX-License-Identifier: Apache-2.0
"""Who decided what, kept over restarts: which policy, what it has set, and what a person took out of its hands.

What people set wins over the policy, until `release` or `policy resume`. Most of it shows in the programs themselves (a
class, a share, a hold that the policy did not ask for); what does not is kept here.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.policy.types import Action, Bind, ClassRow, Gate, Move, Park, Preempt, Reflex, Slice

__all__ = ["BY_VERB", "Ledger", "Put", "decode", "encode"]

BY_VERB: Final[Mapping[str, tuple[str, ...]]] = {
    "set-priority": ("Slice",),
    "set-weight": ("Slice",),
    "set-slice": ("Slice",),
    "set-sm": ("Bind", "Move"),
    "bind": ("Bind", "Move"),
    "set-ceiling": ("Bind", "Move"),
    "set-busy": ("Reflex",),
    "pause": ("Gate",),
    "hold": ("Gate",),
    "resume": ("Gate",),
}
"""verb of a person -> kinds of actions that are his from then on"""
_LASTING: Final = ("Bind", "Move", "Slice", "Gate", "Reflex")
_ACTIONS: Final = {kind.__name__: kind for kind in (Bind, Move, Slice, Gate, Park, Preempt, Reflex, ClassRow)}


def encode(action: Action) -> dict[str, Any]:
    """An action as JSON: {"do": "Slice", "tenant": ...}, without what it leaves at its default."""
    values = {name: value for name, value in asdict(action).items() if value is not None and value != ""}
    if isinstance(action, Reflex):
        values["busy_sms"] = action.busy_sms
    return {"do": type(action).__name__, **values}


def decode(data: Mapping[str, Any]) -> Action:
    """The action that `encode` made this of. KeyError, TypeError, ValueError where it is none."""
    values = dict(data)
    made: Action = _ACTIONS[values.pop("do")](**values)
    return made


@dataclass(frozen=True, slots=True)
class Put:
    """One thing that a policy has set and that stands. `before`: what was there, None where nobody knows."""

    gpu: str
    action: Action
    before: Action | None = None


@dataclass(slots=True)
class Ledger:
    """For one thread. `path` None: kept nowhere."""

    path: Path | None = None
    chosen: tuple[str, dict[str, str]] | None = None
    """policy and parameters that a person chose while the daemon ran"""
    configured: str = ""
    """what the configuration said then: where it says something else now, that counts"""
    puts: dict[tuple[ProcessId, str], Put] = field(default_factory=dict)
    """(process, kind) -> what the policy set"""
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """class -> arguments of set-class, one after the other, that bring back what was there"""
    hand: dict[ProcessId, set[str]] = field(default_factory=dict)
    """kinds that a person decided"""
    hand_rows: set[str] = field(default_factory=set)
    """classes whose rows a person wrote"""
    deadlines: dict[ProcessId, float] = field(default_factory=dict)
    """microseconds in which a request of the program is to be done, as a person said"""
    resumed: set[ProcessId] = field(default_factory=set)
    """whom a person gave back to the policy, whatever class he has"""
    settling: dict[tuple[ProcessId, str], float] = field(default_factory=dict)
    """(process, kind) -> when it was put back, CLOCK_MONOTONIC: a look from before still shows what a policy had set"""
    version: int = 0
    """counts changes"""
    saved: int = 0
    """the version that lies on disk"""

    def kinds(self, program: Program) -> tuple[str, ...]:
        """What a person has decided for a program: told to us, or seen in it."""
        marks = set(self.hand.get(program.id, ()))
        if program.id not in self.resumed:
            ours = {kind for kind in _LASTING if (program.id, kind) in self.puts} if self.puts else set()
            spatial = program.spatial
            if spatial is None and "Slice" not in ours:
                touched = any(tsg.level is not None for tsg in program.compute)
                if program.klass is not None or program.weight is not None or touched:
                    marks.add("Slice")
            if spatial is not None and not ours & {"Bind", "Move"} and (spatial.percent or spatial.exclusive):
                marks |= {"Bind", "Move"}
            held = spatial.held if spatial is not None else program.state in (State.PAUSED, State.GATED)
            if spatial is None and program.activity is not None:
                held = "order" in program.activity.reasons
            if held and "Gate" not in ours:
                marks.add("Gate")
            if self.settling:
                told = self.hand.get(program.id, ())
                marks -= {kind for kind in _LASTING if (program.id, kind) in self.settling and kind not in told}
        return tuple(sorted(marks))

    def settle(self, taken: float) -> None:
        """A look came that began at `taken`: what was put back before that, it shows as it is."""
        over = [key for key, when in self.settling.items() if when <= taken]
        for key in over:
            del self.settling[key]
        if over:
            self.version += 1

    def touch(self) -> None:
        """Something changed that is to be kept."""
        self.version += 1

    def put(self, process: ProcessId, kind: str, put: Put) -> None:
        """The policy set something; what was there before its first change stays the `before`."""
        old = self.puts.get((process, kind))
        self.puts[process, kind] = Put(put.gpu, put.action, old.before if old is not None else put.before)
        self.touch()

    def taken(self, process: ProcessId, kinds: Iterable[str]) -> None:
        """A person decided: it is his now, and no policy undoes it."""
        for kind in kinds:
            self.puts.pop((process, kind), None)
            self.hand.setdefault(process, set()).add(kind)
        self.resumed.discard(process)
        self.touch()

    def released(self, process: ProcessId) -> None:
        """A person put it back: nothing of it is anybody's."""
        for key in [key for key in self.puts if key[0] == process]:
            del self.puts[key]
        self.hand.pop(process, None)
        self.resumed.discard(process)
        self.touch()

    def give_back(self, process: ProcessId) -> None:
        """To the policy, whatever a person set."""
        self.hand.pop(process, None)
        self.resumed.add(process)
        self.touch()

    def only(self, processes: Iterable[ProcessId]) -> None:
        """Forget who has ended."""
        living = set(processes)
        gone = {p for p, _ in (*self.puts, *self.settling)} | set(self.hand) | set(self.deadlines) | self.resumed
        for process in gone - living:
            self.released(process)
            self.deadlines.pop(process, None)
            for kind in _LASTING:
                self.settling.pop((process, kind), None)

    # -- on disk ------------------------------------------------------------------------------------------------

    def save(self) -> bool:
        """Write what changed; whether anything did. OSError where the disk does not take it."""
        if self.version == self.saved or self.path is None:
            return False
        data = {
            "chosen": self.chosen,
            "configured": self.configured,
            "puts": [
                [*process, kind, put.gpu, encode(put.action), None if put.before is None else encode(put.before)]
                for (process, kind), put in self.puts.items()
            ],
            "rows": self.rows,
            "hand": [[*process, sorted(kinds)] for process, kinds in self.hand.items()],
            "hand_rows": sorted(self.hand_rows),
            "deadlines": [[*process, us] for process, us in self.deadlines.items()],
            "resumed": [list(process) for process in sorted(self.resumed)],
        }
        temporary = self.path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            json.dump(data, file)
        temporary.replace(self.path)
        self.saved = self.version
        return True

    def load(self) -> str:
        """Take up what an earlier daemon kept. What is wrong with the file, empty where nothing is."""
        if self.path is None:
            return ""
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, RecursionError) as error:
            return f"{self.path} cannot be read and is left aside: {error}"
        try:
            self._take(data)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            fresh = Ledger(self.path)
            for name in ("chosen", "configured", "puts", "rows", "hand", "hand_rows", "deadlines", "resumed"):
                setattr(self, name, getattr(fresh, name))
            return f"{self.path} is of another kind and is left aside: {type(error).__name__}: {error}"
        return ""

    def _take(self, data: Any) -> None:
        chosen = data["chosen"]
        if chosen is not None:
            self.chosen = str(chosen[0]), {str(name): str(value) for name, value in chosen[1].items()}
        self.configured = str(data["configured"])
        for pid, start, kind, gpu, action, before in data["puts"]:
            made = Put(str(gpu), decode(action), None if before is None else decode(before))
            self.puts[ProcessId(int(pid), int(start)), str(kind)] = made
        self.rows = {str(name): [dict(each) for each in several] for name, several in data["rows"].items()}
        self.hand = {ProcessId(int(pid), int(start)): set(map(str, kinds)) for pid, start, kinds in data["hand"]}
        self.hand_rows = set(map(str, data["hand_rows"]))
        self.deadlines.update((ProcessId(int(pid), int(start)), float(us)) for pid, start, us in data["deadlines"])
        self.resumed = {ProcessId(int(pid), int(start)) for pid, start in data["resumed"]}

    def close(self) -> None:
        """Save what can be saved."""
        with contextlib.suppress(OSError):
            self.save()
