# SPDX-License-Identifier: Apache-2.0
"""What becomes of a policy's actions: checked, done, remembered, undone; and what people take out of its hands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import ClassInfo, Event, Outcome
from detshare.ctl.core.verbs import LEVELS
from detshare.ctl.policy import apply
from detshare.ctl.policy.apply import Request
from detshare.ctl.policy.decisions.log import Log
from detshare.ctl.policy.guard import Guard, kind_of
from detshare.ctl.policy.host import Answer
from detshare.ctl.policy.ledger import BY_VERB, Ledger, Put, encode
from detshare.ctl.policy.seat import Seat
from detshare.ctl.policy.seats import Seats, row_gpu, row_key
from detshare.ctl.policy.types import Action, ClassRow, Gate, Park, Preempt, Snapshot, TenantView
from detshare.ctl.policy.view import Viewer

__all__ = ["Executor", "Perform"]

RATE_S: Final = 500
BURST: Final = 5000
"""decisions that are carried out a second, and at once"""
TRIES: Final = 120
"""of taking back what was refused, one with each look; of a pause as many as it takes"""

Perform = Callable[[Sequence[Request]], list[Outcome | ControlError]]
"""Does verbs, one after the other, on the backend's thread; as many answers as requests"""


class Executor:
    """For the engine's thread alone."""

    def __init__(
        self,
        perform: Perform,
        tell: Callable[[Event], None],
        *,
        backend: str,
        decisions: Log,
        ledger: Ledger,
        viewer: Viewer,
        seats: Seats,
        clock: Callable[[], float],
    ) -> None:
        self._perform, self._tell = perform, tell
        self.backend = backend
        self.decisions, self.ledger = decisions, ledger
        self._viewer, self._seats, self._clock = viewer, seats, clock
        self.guards: dict[str, Guard] = {}
        """GPU -> what was let through there"""
        self.classes: dict[str, ClassInfo] = {}
        """rows of the last look, as `row_key` calls them, and what was written since"""
        self.floors: dict[str, int] = {}
        """of classes, in permille, where there are no rows"""
        self._gpu_rows: dict[str, ClassRow] = {}
        """what policies of one GPU wrote: whoever sets back the row of all GPUs takes these along"""
        self._left, self._filled = float(BURST), clock()
        self._owed: dict[tuple[ProcessId, str], tuple[Put, int]] = {}
        """what is to be taken back, was refused, and is tried again with a look; how often still"""

    def snapshot(self, gpu: str) -> Snapshot:
        """One GPU as it is now."""
        return self._viewer.snapshot(gpu, self._clock() * 1e6, time.time())

    def see(self, now: float) -> None:
        """There was a look."""
        for (process, kind), put in self.ledger.puts.items():
            if kind == "Gate" and str(process.pid) in self._viewer.tenants(put.gpu):
                self.guards.setdefault(put.gpu, Guard()).shuts(str(process.pid), 1e6 * now)
        for gpu, guard in self.guards.items():
            if guard.waits:
                guard.see(self.snapshot(gpu))
        for (process, kind), (put, left) in list(self._owed.items()):
            if self.ledger.puts.get((process, kind)) is not put:
                del self._owed[process, kind]
            else:
                view = self._viewer.tenants(put.gpu).get(str(process.pid))
                shut = kind == "Gate" and view is not None and not view.gate_open
                self.undo(process, kind, put, TRIES if shut else left)

    # -- a policy's actions ---------------------------------------------------------------------------------------

    def carry_out(self, answer: Answer) -> list[list[Any]]:
        """What became of each action: "done", "stands", or why not."""
        made: list[list[Any]] = []
        seat = self._seats.of(answer.call.now.gpu)
        for action in answer.actions:
            now = self.snapshot(answer.call.now.gpu)
            fate = self._one(action, now)
            if fate == "stands":
                continue
            try:
                shown = encode(action)
            except Exception:  # noqa: BLE001  it is no action
                shown = {"do": type(action).__name__[:60]}
            made.append([shown, fate])
            if fate == "done":
                seat.counts["actions"] += 1
            else:
                seat.counts["refused"] += 1
                seat.refused.append((time.time(), f"{answer.call.hook}: {_short(shown)}: {fate}"))
        return made

    def _one(self, action: Any, now: Snapshot) -> str:
        guard = self.guards.setdefault(now.gpu, Guard())
        problem = guard.check(action, now)
        if problem is not None:
            return problem
        if isinstance(action, ClassRow):
            return self._row(action, now)
        process = self._viewer.processes[action.tenant]
        view = now.tenant(action.tenant)
        assert view is not None
        kind = kind_of(action)
        put = self.ledger.puts.get((process, kind))
        self._owed.pop((process, kind), None)
        repeated = put is not None and apply.same(put.action, action)
        if isinstance(action, Gate) and repeated:
            repeated = apply.stands(action, view)  # a hold ends with its lease, where a daemon was killed
        if not isinstance(action, Preempt | Park) and (repeated or (put is None and apply.stands(action, view))):
            return "stands"
        if isinstance(action, Gate) and action.open and put is None:
            return "stands"
        problem = self._spend()
        if not problem:
            if not isinstance(action, Preempt | Park) and not (isinstance(action, Gate) and action.open):
                self.ledger.begin(process, kind, Put(now.gpu, apply.plain(action), apply.before(action, view)))
            problem = self._do(apply.requests(action, now, self.backend))
        if problem:
            guard.undone(action)
            if isinstance(action, Gate) and action.open and put is not None:
                self._owed[process, kind] = put, TRIES
            return problem
        self._note(process, kind, action, view, now.gpu)
        return "done"

    def _note(self, process: ProcessId, kind: str, action: Action, view: TenantView, gpu: str) -> None:
        """What stands from now on."""
        if isinstance(action, Preempt | Park):
            return
        if isinstance(action, Gate) and action.open:
            self.ledger.puts.pop((process, kind), None)
            self.ledger.touch()
        else:
            if kind in ("Bind", "Move"):
                other = self.ledger.puts.pop((process, "Move" if kind == "Bind" else "Bind"), None)
                standing = other.before if other is not None else apply.before(action, view)
            else:
                standing = apply.before(action, view)
            self.ledger.put(process, kind, Put(gpu, apply.plain(action), standing))
        self._viewer.acted(gpu, action, 1e6 * self._clock())

    def _row(self, row: ClassRow, now: Snapshot) -> str:
        if row.klass in self.ledger.hand_rows:
            return f"a person wrote the row of class {row.klass}; it stands until: policy resume {row.klass}"
        seat = self._seats.of(now.gpu)
        key = row_key(row.klass, seat.number)
        standing = self.classes.get(key)
        if seat.gpu:
            self._gpu_rows[key] = _merged(self._gpu_rows.get(key), row)
        if self._floor_stands(row, key) if standing is None else _row_stands(row, standing):
            return "stands"
        back = _on(seat.number, apply.row_back(row.klass, standing, self.floors.get(key)))
        problem = self._spend()
        if not problem:
            self.ledger.begin_row(key, back)
            problem = self._do(self._row_requests(row, seat.number))
        if problem:
            self.guards[now.gpu].undone(row)
            return problem
        self.ledger.rows.setdefault(key, back)
        self.ledger.touch()
        if self.floors and row.floor_permille is not None:
            self.floors[key] = row.floor_permille
        standing = standing or self.classes.get(row.klass)
        if standing is not None:
            self.classes[key] = _with(row, standing)
        return "done"

    def _floor_stands(self, row: ClassRow, key: str) -> bool:
        return row == ClassRow(row.klass, floor_permille=self.floors.get(key), reason=row.reason) and key in self.floors

    def _row_requests(self, row: ClassRow, gpu: int | None) -> list[Request]:
        made = apply.row(row)
        return [Request("set-class", row.klass, args) for args in _on(gpu, [made])]

    def _spend(self) -> str:
        """Empty where one more decision may be carried out now: people's verbs wait on the same thread."""
        now = self._clock()
        self._left = min(float(BURST), self._left + (now - self._filled) * RATE_S)
        self._filled = now
        if self._left < 1:
            return f"too many decisions: {RATE_S} a second are carried out, {BURST} at once"
        self._left -= 1
        return ""

    def _do(self, requests: Sequence[Request]) -> str:
        """Empty where it was done, else why not."""
        for answer in self._perform(requests):
            if isinstance(answer, ControlError):
                if "did not acknowledge" in answer.stopped:
                    continue  # the change stands for all that is launched from now on, which is what was asked
                return answer.stopped
            if not answer.changed:
                reasons = "; ".join(skip.reason for skip in answer.skipped)
                return reasons or "nothing was to be changed"
        return ""

    def open_overdue(self, now: float) -> None:
        """Gates that were shut for as long as a policy may."""
        for gpu, guard in self.guards.items():
            for name in guard.overdue(now * 1e6):
                process = self._viewer.processes.get(name)
                put = None if process is None else self.ledger.puts.get((process, "Gate"))
                if process is None or put is None:
                    continue
                problem = self._do([Request("resume", name, {})])
                if problem:
                    self._owed[process, "Gate"] = put, TRIES
                else:
                    del self.ledger.puts[process, "Gate"]
                    self.ledger.touch()
                    self._viewer.acted(gpu, Gate(name, True), 1e6 * self._clock())
                text = "its gate was shut for as long as a policy may, and was opened"
                self._say("policy", int(name), text + (f"; {problem}" if problem else ""))
                self.decisions.note("opened", tenant=name, gpu=gpu, text=text)

    # -- people -------------------------------------------------------------------------------------------------

    def by_hand(self, verb: str, pids: set[int], everything: bool) -> None:
        """A person did a verb to these programs."""
        processes = [process for process in self._viewer.processes.values() if process.pid in pids or everything]
        for process in processes:
            if verb == "release":
                self.ledger.released(process)
            else:
                self.ledger.taken(process, BY_VERB[verb])
            for gpu in self._viewer.gpus():
                if str(process.pid) in self._viewer.tenants(gpu):
                    self._viewer.change(gpu, str(process.pid), by_hand=tuple(sorted(self.ledger.hand.get(process, ()))))
                    if verb in ("release", "resume") and gpu in self.guards:
                        self.guards[gpu].undone(Gate(str(process.pid), False))
        if processes:
            self.decisions.note("hand", verb=verb, tenants=[str(process.pid) for process in processes])

    def row_by_hand(self, klass: str) -> None:
        """A person wrote a row."""
        for key in [key for key in self.ledger.rows if _class_of(key) == klass]:
            del self.ledger.rows[key]
            self._gpu_rows.pop(key, None)
        self.ledger.hand_rows.add(klass)
        self.ledger.touch()
        self.decisions.note("hand", verb="set-class", klass=klass)

    def undo(self, process: ProcessId, kind: str, put: Put, tries: int = TRIES) -> None:
        """Take back one thing that a policy set."""
        name, key = str(process.pid), (process, kind)
        if self._viewer.processes.get(name) != process or self.ledger.puts.get(key) is None:
            return
        hand = tuple(self.ledger.hand.get(process, ()))
        problem = self._do(apply.undo(kind, name, put.before, hand))
        if problem and tries > 1:  # until then it counts as the policy's, not as a person's
            self._owed[key] = self.ledger.puts[key], tries - 1
            return
        del self.ledger.puts[key]
        self._owed.pop(key, None)
        self.ledger.touch()
        self.ledger.settling[process, kind] = self._clock()
        if put.before is not None:
            self._viewer.acted(put.gpu, put.before, 1e6 * self._clock())
        if kind == "Gate" and put.gpu in self.guards:
            self.guards[put.gpu].check(Gate(name, True), self.snapshot(put.gpu))
        self._seats.of(put.gpu).counts["undone"] += 1
        self.decisions.note("undone", tenant=name, gpu=put.gpu, action=encode(put.action), result=problem or "done")

    def undo_row(self, key: str, seat: Seat) -> None:
        """Take back a row that a policy wrote."""
        klass, back = _class_of(key), self.ledger.rows.pop(key, None)
        self.ledger.touch()
        self._gpu_rows.pop(key, None)
        if row_gpu(key) is not None:
            self.classes.pop(key, None)
        self.floors.pop(key, None)
        problem = self._do([Request("set-class", klass, args) for args in back or ()])
        if row_gpu(key) is None and any("reset" in args for args in back or ()):
            self._rewrite(klass)
        seat.counts["undone"] += 1
        self.decisions.note("undone", klass=klass, result=problem or "done", **seat.about)

    def _rewrite(self, klass: str) -> None:
        """Rows of single GPUs went with that of all."""
        for key in [key for key in self.classes if row_gpu(key) is not None and _class_of(key) == klass]:
            del self.classes[key]
        for key in [key for key in self.floors if row_gpu(key) is not None and _class_of(key) == klass]:
            del self.floors[key]
        for key, row in self._gpu_rows.items():
            if row.klass == klass and key in self.ledger.rows:
                self._do(self._row_requests(row, row_gpu(key)))

    def undo_unwanted(
        self, former: Mapping[tuple[ProcessId, str], Put], rows: Iterable[str], wanted: Iterable[Any], seat: Seat
    ) -> None:
        """Take back what the last policy set and the new one does not ask for."""
        kept: set[object] = set()
        for action in wanted:
            if isinstance(action, ClassRow):
                kept.add(row_key(action.klass, seat.number))
            elif (process := self._viewer.processes.get(getattr(action, "tenant", ""))) is not None:
                kind = kind_of(action)
                kept |= {(process, each) for each in (("Bind", "Move") if kind in ("Bind", "Move") else (kind,))}
        for (process, kind), put in former.items():
            if (process, kind) not in kept:
                self.undo(process, kind, put)
        for key in rows:
            if key not in kept:
                self.undo_row(key, seat)

    def give_back(self, pids: set[int], klass: str) -> tuple[int, list[tuple[str, str]]]:
        """How much was given back to the policy, and of whom it should hear anew: (GPU, tenant)."""
        anew = []
        found = [process for process in self._viewer.processes.values() if process.pid in pids]
        for process in found:
            self.ledger.give_back(process)
            name = str(process.pid)
            for gpu in self._viewer.gpus():
                if name in self._viewer.tenants(gpu):
                    self._viewer.change(gpu, name, by_hand=())
                    anew.append((gpu, name))
        if klass in self.ledger.hand_rows:
            self.ledger.hand_rows.discard(klass)
            found = found or [ProcessId(0, 0)]
        if found:
            self.ledger.keep()
            self.decisions.note("resumed", tenants=[str(p.pid) for p in found if p.pid], klass=klass)
        return len(found), anew

    def follow(self) -> dict[tuple[ProcessId, str], Put]:
        """There was a look: what was decided for who is on another GPU now goes there. That of who has another policy
        by it, which is not that policy's yet."""
        handed = {}
        for (process, kind), put in list(self.ledger.puts.items()):
            name = str(process.pid)
            if name in self._viewer.tenants(put.gpu) or self._viewer.processes.get(name) != process:
                continue
            gpu = next((gpu for gpu in self._viewer.gpus() if name in self._viewer.tenants(gpu)), None)
            if gpu is None:
                continue
            moved = self.ledger.puts[process, kind] = replace(put, gpu=gpu)
            self.ledger.touch()
            if kind == "Gate" and put.gpu in self.guards:
                self.guards[put.gpu].hand(name, self.guards.setdefault(gpu, Guard()))
            if self._seats.of(gpu) is not self._seats.of(put.gpu):
                handed[process, kind] = moved
        return handed

    def _say(self, kind: str, pid: int | None, text: str) -> None:
        self._tell(Event(time.time(), kind, pid, text))


def _class_of(key: str) -> str:
    return key.partition("@")[0]


def _on(gpu: int | None, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments of set-class, for one GPU or for all."""
    return rows if gpu is None else [{**each, "gpu": gpu} for each in rows]


def _merged(old: ClassRow | None, new: ClassRow) -> ClassRow:
    """Both, and what the newer says where both say something."""
    if old is None:
        return new
    return replace(old, **{name: value for name, value in asdict(new).items() if value is not None})


def _row_stands(row: ClassRow, standing: ClassInfo) -> bool:
    changed = _with(row, standing)
    return changed == standing


def _with(row: ClassRow, standing: ClassInfo) -> ClassInfo:
    names = ("weight", "slice_us", "floor_permille", "turn_us")
    values: dict[str, Any] = {name: getattr(row, name) for name in names if getattr(row, name) is not None}
    if row.level is not None:
        values["level"] = LEVELS[row.level]
    return replace(standing, **values)


def _short(shown: Mapping[str, Any]) -> str:
    words = [str(shown.get("do", "?")), *(f"{k}={v}" for k, v in shown.items() if k not in ("do", "reason"))]
    return " ".join(words)[:200]
