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
_CHOICES: Final = ("chosen", "configured", "chosen_gpus", "configured_gpus")
_LASTING: Final = ("Bind", "Move", "Slice", "Gate", "Reflex")
_SMS: Final = {"Bind", "Move"}
"""one takes the place of the other"""
_NONE: Final = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""what a file raises that is of another kind"""
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


def _put_json(process: ProcessId, kind: str, put: Put) -> list[Any]:
    return [*process, kind, put.gpu, encode(put.action), None if put.before is None else encode(put.before)]


def _put_of(data: Any) -> tuple[tuple[ProcessId, str], Put]:
    pid, start, kind, gpu, action, before = data
    made = Put(str(gpu), decode(action), None if before is None else decode(before))
    return (ProcessId(int(pid), int(start)), str(kind)), made


def _choice_of(data: Any) -> tuple[str, dict[str, str]] | None:
    if data is None:
        return None
    return str(data[0]), {str(name): str(value) for name, value in data[1].items()}


def _shown(program: Program) -> set[str]:
    """Kinds of which somebody has set something, as far as it shows in the program."""
    marks: set[str] = set()
    spatial = program.spatial
    if spatial is None:
        touched = any(tsg.level is not None for tsg in program.compute)
        if program.klass is not None or program.weight is not None or touched:
            marks.add("Slice")
    elif spatial.percent or spatial.exclusive:
        marks |= _SMS
    held = spatial.held if spatial is not None else program.state in (State.PAUSED, State.GATED)
    if spatial is None and program.activity is not None:
        held = "order" in program.activity.reasons
    if held:
        marks.add("Gate")
    return marks


@dataclass(slots=True)
class Ledger:
    """For one thread. `path` None: kept nowhere."""

    path: Path | None = None
    chosen: tuple[str, dict[str, str]] | None = None
    """policy and parameters that a person chose while the daemon ran"""
    configured: str = ""
    """what the configuration said then: where it says something else now, that counts"""
    chosen_gpus: dict[str, tuple[str, dict[str, str]] | None] = field(default_factory=dict)
    """UUID -> the same for one GPU; None: none of its own, whatever the configuration says"""
    configured_gpus: str = ""
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
    begun: dict[tuple[ProcessId, str], Put] = field(default_factory=dict)
    """what a policy was about to set since the last save: beside the file before it is done"""
    begun_rows: set[str] = field(default_factory=set)
    """likewise, classes"""
    found: dict[tuple[ProcessId, str], Put] = field(default_factory=dict)
    """what an earlier daemon had begun so when it was killed: nobody has seen yet whether it was done"""
    settling: dict[tuple[ProcessId, str], float] = field(default_factory=dict)
    """(process, kind) -> when it was put back, CLOCK_MONOTONIC: a look from before still shows what a policy had set"""
    taken_up: bool = False
    """what an earlier daemon kept is here, and there was no look since"""
    version: int = 0
    """counts changes"""
    saved: int = 0
    """the version that lies on disk"""

    def kinds(self, program: Program) -> tuple[str, ...]:
        """What a person has decided for a program: told to us, or seen in it."""
        marks = set(self.hand.get(program.id, ()))
        if program.id not in self.resumed:
            ours = {kind for kind in _LASTING if (program.id, kind) in self.puts} if self.puts else set()
            if ours & _SMS:
                ours |= _SMS
            marks |= _shown(program) - ours
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

    def see(self, programs: Iterable[Program]) -> None:
        """A look: forget who has ended. What a killed daemon's policy had begun, and shows, is the policy's."""
        living = {program.id: program for program in programs}
        for (process, kind), put in self.found.items():
            program = living.get(process)
            there = program is not None and (kind == "Reflex" or kind in _shown(program))
            if there and (process, kind) not in self.puts and kind not in self.hand.get(process, ()):
                self.puts[process, kind] = put
        if self.found:
            self.found.clear()
            self.touch()
        if self.taken_up:  # a class is no policy's: a person set it, and his daemon was killed before that was written
            for process in [process for process, kind in self.puts if kind == "Slice" and process in living]:
                if living[process].klass is not None:
                    self.taken(process, ["Slice"])
            self.taken_up = False
        self.only(living)

    def touch(self) -> None:
        """Something changed that is to be kept."""
        self.version += 1

    def keep(self) -> None:
        """Something changed that a person asked for: on disk before he is answered. Where it does not take it, the next
        `save` tells."""
        self.touch()
        with contextlib.suppress(OSError):
            self.save()

    def begin(self, process: ProcessId, kind: str, put: Put) -> None:
        """The policy is about to set something. On disk first: whoever is killed then leaves nothing that looks like a
        person's. Where the disk does not take it, `save` tells."""
        if (process, kind) not in self.puts and (process, kind) not in self.begun:
            self.begun[process, kind] = put
            self._append(_put_json(process, kind, put))

    def begin_row(self, klass: str, back: list[dict[str, Any]]) -> None:
        """The same of a class's row; `back` as in `rows`."""
        if klass not in self.rows and klass not in self.begun_rows:
            self.begun_rows.add(klass)
            self._append([klass, back])

    def _append(self, fact: list[Any]) -> None:
        if self.path is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path.with_suffix(".begun"), flags, 0o600)
            try:
                os.write(descriptor, json.dumps(fact).encode() + b"\n")
            finally:
                os.close(descriptor)

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
        known = {p for p, _ in (*self.puts, *self.settling, *self.begun)}
        for process in (known | set(self.hand) | set(self.deadlines) | self.resumed) - living:
            self.released(process)
            self.deadlines.pop(process, None)
            for kind in _LASTING:
                self.settling.pop((process, kind), None)
                self.begun.pop((process, kind), None)

    # -- on disk ------------------------------------------------------------------------------------------------

    def save(self) -> bool:
        """Write what changed; whether anything did. OSError where the disk does not take it."""
        if self.version == self.saved or self.path is None:
            return False
        data = {
            "chosen": self.chosen,
            "configured": self.configured,
            "chosen_gpus": self.chosen_gpus,
            "configured_gpus": self.configured_gpus,
            "puts": [_put_json(process, kind, put) for (process, kind), put in self.puts.items()],
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
        self.path.with_suffix(".begun").unlink(missing_ok=True)
        self.begun.clear()
        self.begun_rows.clear()
        self.saved = self.version
        return True

    def load(self) -> str:
        """Take up what an earlier daemon kept. What is wrong with the file, empty where nothing is."""
        if self.path is None:
            return ""
        problem = self._load(self.path)
        self.taken_up = True
        with contextlib.suppress(OSError):
            for line in self.path.with_suffix(".begun").read_bytes().splitlines():
                with contextlib.suppress(*_NONE):
                    self._take_begun(json.loads(line))  # the last may be torn: then it was not done
        return problem

    def _load(self, path: Path) -> str:
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, RecursionError) as error:
            return f"{path} cannot be read and is left aside: {error}"
        try:
            self._take(data)
        except _NONE as error:
            fresh = Ledger(path)
            for name in (*_CHOICES, "puts", "rows", "hand", "hand_rows", "deadlines", "resumed"):
                setattr(self, name, getattr(fresh, name))
            return f"{path} is of another kind and is left aside: {type(error).__name__}: {error}"
        return ""

    def _take_begun(self, fact: Any) -> None:
        if len(fact) == 2:
            klass, back = fact
            if klass not in self.hand_rows:
                self.rows.setdefault(str(klass), [dict(each) for each in back])
        else:
            key, put = _put_of(fact)
            self.found[key] = put

    def _take(self, data: Any) -> None:
        self.chosen = _choice_of(data["chosen"])
        self.configured = str(data["configured"])
        # a file of a daemon that knew no policies of single GPUs has none
        self.chosen_gpus = {str(gpu): _choice_of(each) for gpu, each in data.get("chosen_gpus", {}).items()}
        self.configured_gpus = str(data.get("configured_gpus", ""))
        self.puts.update(map(_put_of, data["puts"]))
        self.rows = {str(name): [dict(each) for each in several] for name, several in data["rows"].items()}
        self.hand = {ProcessId(int(pid), int(start)): set(map(str, kinds)) for pid, start, kinds in data["hand"]}
        self.hand_rows = set(map(str, data["hand_rows"]))
        self.deadlines.update((ProcessId(int(pid), int(start)), float(us)) for pid, start, us in data["deadlines"])
        self.resumed = {ProcessId(int(pid), int(start)) for pid, start in data["resumed"]}

    def close(self) -> None:
        """Save what can be saved."""
        with contextlib.suppress(OSError):
            self.save()
