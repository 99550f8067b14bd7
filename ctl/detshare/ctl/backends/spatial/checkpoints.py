# SPDX-License-Identifier: Apache-2.0
"""`park`, `resume` and `migrate` by the driver's own checkpoint, for programs that are not under libdetshare.so.

It takes seconds, so a thread of its own does it, and whoever asked is told that it is under way. A checkpointed program
has no descriptor of the driver any more: no look finds it, so what is known of it is kept here, and in a journal that
is on disk before the driver is asked. The driver is the one that knows the state: a daemon that starts asks it.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Final

from detshare.ctl.backends.spatial.entry import Entry, from_json, notes, program_of, to_json
from detshare.ctl.checkpoint import calls, gpumap
from detshare.ctl.checkpoint.ask import Answer, ask
from detshare.ctl.checkpoint.calls import State as Driver
from detshare.ctl.checkpoint.child import moved_mark
from detshare.ctl.core import procfs, select
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.sizes import text
from detshare.ctl.core.snapshot import Change, Check, Event, Program, Skip, State

__all__ = ["LENT", "SHARES", "STAYS", "Checkpoints"]

log = logging.getLogger("detshared.checkpoints")

LOCK_S: Final = 10.0
"""seconds in which what a program launched has to end, where nothing else was asked for"""
STAYS: Final = "it is in the spatial lane, in an MPS server's context: the driver checkpoints none such"
"""why a program cannot be moved to another GPU"""
LENT: Final = "it has host memory that the GPU maps (park.lazy), which the driver's checkpoint loses"
"""why neither a deep park nor a move"""
SHARES: Final = "another process may have memory of it, or it has another's: the driver's checkpoint may part the two"
"""likewise"""
CLOSE_S: Final = 20.0
"""seconds that the daemon's end waits for programs to be back"""
_ON_GPU: Final = (Driver.RUNNING, Driver.LOCKED)
_WHY_NOT: Final = {
    State.MPS_SERVER: "it is an MPS server: the driver checkpoints none",
    State.MPS_CLIENT: "it runs in an MPS server's context: the driver checkpoints none such",
    State.PAUSED: "it is paused, and the driver waits for work that would not end: resume it first",
    State.GATED: "its launches are held, and the driver would wait for them: resume it first",
    State.NO_CONTEXT: "it has no GPU context yet",
    State.NOT_UNDERSTOOD: "it is not known what it has on the GPU",
}


class Checkpoints:
    """`act`: how a job is done; tests have another. `opens`: told of who was deep and is not any more;
    `moved`: of who is on another GPU, and which both are, before it runs there.

    Verbs come from one thread; nothing here waits for the driver.
    """

    def __init__(
        self,
        run_dir: Path,
        act: Callable[..., Answer] = ask,
        opens: Callable[[ProcessId], None] = lambda process: None,
        moved: Callable[[ProcessId, str, str], None] = lambda process, old, new: None,
    ) -> None:
        self._path = run_dir / "checkpoints.json"
        self._lock_file = run_dir / "checkpoints.lock"
        self._act = act
        self._opens = opens
        self._moved = moved
        self._entries: dict[ProcessId, Entry] = {}
        self._lock = threading.RLock()
        self._events: list[Event] = []
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._running: set[Future[None]] = set()
        self._recover()

    # -- the journal --------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """OSError: then nothing is asked of the driver."""
        data = [to_json(entry) for entry in self._entries.values() if entry.away]
        if not data:
            self._path.unlink(missing_ok=True)
            return
        draft = self._path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:
            json.dump(data, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    def _recover(self) -> None:
        """Take up what an earlier daemon left: the driver is asked how each stands."""
        try:
            found = [from_json(each) for each in json.loads(self._path.read_bytes())]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            self._path.replace(self._path.with_suffix(".unreadable"))
            self._say("error", None, f"{self._path} cannot be read: programs that it names are found by resume PID")
            log.error("%s: %s", self._path, error)
            return
        for entry in found:
            if _alive(entry.id):
                self._entries[entry.id] = entry
                self._submit(self._settle, entry, True)
            else:  # nobody asks for it any more
                moved_mark(self._lock_file, *entry.id).unlink(missing_ok=True)

    # -- what others see ----------------------------------------------------------------------------------------

    def drain_events(self) -> list[Event]:
        """Events since the last call, oldest first."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def add_to(self, programs: Iterable[Program]) -> tuple[Program, ...]:
        """The programs of a look, with those that are away and that no look can find."""
        with self._lock:
            self._forget_dead()
            entries = {each.id: each for each in self._entries.values()}
            made = []
            for program in programs:
                entry = entries.pop(program.id, None)
                if entry is None or program.parking is not None:
                    made.append(program)
                    continue
                state = State.PARKED if entry.state in ("parked", "coming") else program.state
                made.append(replace(program, parking=entry.parking(), state=state, notes=notes(program, entry)))
            for entry in entries.values():
                if entry.away:
                    made.append(program_of(entry))
            return tuple(made)

    def stirs(self) -> bool:
        """Whether a look has something new to tell."""
        return bool(self._running or self._events)

    def _forget_dead(self) -> None:
        dead = [process for process in self._entries if not _alive(process)]
        for process in dead:
            if self._entries.pop(process).away:
                self._say("park", process.pid, "it ended while the driver's checkpoint had its memory")
        if dead:
            self._keep()

    def _keep(self) -> None:
        try:
            self._save()
        except OSError as error:
            self._say("error", None, f"which programs are checkpointed is not kept over a restart: {error}")

    def _say(self, kind: str, pid: int | None, said: str) -> None:
        with self._lock:
            self._events.append(Event(time.time(), kind, pid, said))
            del self._events[:-1000]

    def doctor(self) -> list[Check]:
        """Whether programs that are not under the library can be parked."""
        if why := calls.absent():
            return [Check("checkpoint", None, f"only programs under detshare run --park can be parked: {why}")]
        with self._lock:
            away = [str(entry.id.pid) for entry in self._entries.values() if entry.away]
        return [Check("checkpoint", True, f"by the driver's checkpoint: PID {', '.join(away)}" if away else "nobody")]

    # -- verbs --------------------------------------------------------------------------------------------------

    def park(self, who: str, programs: Iterable[Program], timeout: float | None = None) -> list[Change | Skip]:
        """Begin to park those of a look that are selected. OSError: it cannot be kept, and nothing is asked."""
        selector = select.parse(who)
        answers: list[Change | Skip] = []
        for program in programs:
            if selector.matches(program):
                answers.append(self._park_one(program, LOCK_S if timeout is None else timeout))
        return answers

    def _park_one(self, program: Program, lock_s: float) -> Change | Skip:
        pid = program.id.pid
        if program.spatial is not None:
            return Skip(pid, "its memory cannot leave: start it with detshare run --park -- COMMAND")
        made = self._begin(program, self._leave, lock_s)
        if isinstance(made, Skip):
            return made
        note = "by the driver's checkpoint, for it is not under libdetshare.so: under way, some seconds"
        return Change(pid, note=f"{note}; its calls of CUDA wait until: detshare-ctl resume {pid}")

    def _begin(self, program: Program, job: Callable[..., None], *args: object) -> Entry | Skip:
        """Write it down, and let the thread do the job."""
        pid = program.id.pid
        if why := calls.absent():
            return Skip(pid, f"it is not under libdetshare.so, so only the driver could park it, and {why}")
        to = str(args[-1]) if job == self._move else ""
        with self._lock:
            entry = self._entries.get(program.id)
            moves = entry is not None and entry.state == "parked" and job == self._move
            if entry is not None and entry.away and not moves:
                return Skip(pid, f"it is {entry.state} already, by the driver's checkpoint")
            if not moves and (why := _WHY_NOT.get(program.state, "")):
                return Skip(pid, why)
            made = Entry(
                program.id,
                program.command,
                program.user,
                program.container,
                program.gpus,
                program.klass,
                program.memory_bytes or (0 if entry is None else entry.size),
                "leaving",
                0 if entry is None else entry.parks,
                to=to,
            )
            self._entries[program.id] = made
            try:
                self._save()
            except OSError:
                self._entries.pop(program.id)
                if entry is not None:  # it may be away: only this knows of it
                    self._entries[program.id] = entry
                raise
            self._submit(job, made, *args)
            return made

    def resume(self, who: str) -> list[Change | Skip]:
        """Begin to bring back those that are away and selected; nobody else is in the answers."""
        selector = select.parse(who)
        answers: list[Change | Skip] = []
        with self._lock:
            self._forget_dead()
            for entry in list(self._entries.values()):
                if entry.away and not entry.deep and selector.matches(entry):
                    self._submit(self._come, entry)
                    note = "by the driver's restore: under way, some seconds"
                    answers.append(Change(entry.id.pid, note=note))
        return answers

    def migrate(
        self, who: str, programs: Iterable[Program], gpus: Sequence[Gpu], gpu: str, timeout: float | None = None
    ) -> list[Change | Skip]:
        """Begin to move the selected ones of a look to another GPU. OSError as `park`; BadRequest: no such GPU."""
        new, selector = gpumap.target(gpus, gpu), select.parse(who)
        wait_s = LOCK_S if timeout is None else timeout
        return [self._move_one(each, gpus, new, wait_s) for each in programs if selector.matches(each)]

    def _move_one(self, program: Program, gpus: Sequence[Gpu], new: Gpu, lock_s: float) -> Change | Skip:
        pid = program.id.pid
        if why := self.stays(program, gpus, new):
            return Skip(pid, why)
        entry = self._entries.get(program.id)
        before = "home" if entry is None else entry.state  # its library may have parked it: then the driver has not
        pairs = gpumap.pairs(gpus, program.gpus[0], new.uuid)
        made = self._begin(program, self._move, lock_s, before, pairs, new.uuid)
        if isinstance(made, Skip):
            return made
        return Change(pid, note=f"by the driver's checkpoint, to GPU {new.minor}: under way, some seconds; see events")

    def stays(self, program: Program, gpus: Sequence[Gpu], new: Gpu) -> str:
        """Why a program cannot be moved to a GPU; empty where it can."""
        if program.spatial is not None:
            return STAYS
        if program.id in self.deep():
            return "it is parked, its context too: resume it first"
        if program.parking is not None and program.parking.lent_bytes:
            return LENT
        if program.parking is not None and program.parking.shares:
            return SHARES
        if len(program.gpus) != 1:
            return f"it is on {len(program.gpus)} GPUs; one that is on just one can be moved"
        return gpumap.unfit(gpus, program.gpus[0], new) or calls.absent() or _WHY_NOT.get(program.state, "")

    def find(self, pid: int) -> list[Change | Skip]:
        """Bring back a process that no journal knows, if the driver says that it is checkpointed."""
        start = procfs.start_time(pid)
        if start is None or calls.absent() or not _has_libcuda(pid):
            return []
        seen = procfs.describe(pid, start, [], [])
        entry = Entry(seen.id, seen.command, seen.user, seen.container, (), None, 0)
        self._submit(self._look_for, entry)
        return [Change(pid, note="the driver is asked whether it is checkpointed; if so it is restored: see events")]

    def close(self, restore: bool = True) -> None:
        """Stop; with `restore` bring everybody back first, as far as that ends in time. Idempotent."""
        if restore:
            for entry in list(self._entries.values()):
                if entry.away:
                    self._submit(self._come, entry)
        wait(list(self._running), CLOSE_S if restore else 0)
        self._jobs.shutdown(wait=False, cancel_futures=True)
        left = [entry.id.pid for entry in self._entries.values() if entry.away]
        if restore and left:
            pids = ", ".join(map(str, left))
            following = f"start detshared again, then: detshare-ctl resume {left[0]}"
            self._say("error", left[0], f"PID {pids} is still in the driver's checkpoint: {following}")

    # -- of who was parked by its library -----------------------------------------------------------------------

    def deep(self) -> dict[ProcessId, Entry]:
        """Who is away so, or about to be or to come back."""
        with self._lock:
            self._forget_dead()
            return {process: entry for process, entry in self._entries.items() if entry.deep and entry.away}

    def take_rest(self, entry: Entry, lock_s: float) -> Future[None]:
        """Begin to take what a park left. OSError: it cannot be kept, and nothing is asked."""
        return self._take(self._leave, entry, lock_s)

    def move_rest(self, entry: Entry, lock_s: float, pairs: Sequence[str], gpu: str) -> Future[None]:
        """Begin to take what a park left to another GPU. OSError as `take_rest`."""
        entry.to = gpu
        return self._take(self._move, entry, lock_s, "home", pairs, gpu)

    def _take(self, job: Callable[..., None], entry: Entry, *args: object) -> Future[None]:
        with self._lock:
            self._entries[entry.id] = entry
            try:
                self._save()
            except OSError:
                self._entries.pop(entry.id)
                self._opens(entry.id)
                raise
            return self._submit(job, entry, *args)

    def take_up(self, entry: Entry) -> None:
        """One that an earlier daemon may have begun with: the driver is asked how it stands."""
        with self._lock:
            self._entries[entry.id] = entry
            self._keep()
            self._submit(self._settle, entry, True)

    def wake(self, entry: Entry) -> Future[None]:
        """Begin to bring one back."""
        return self._submit(self._come, entry)

    # -- jobs, on the thread ------------------------------------------------------------------------------------

    def _submit(self, job: Callable[..., None], entry: Entry, *args: object) -> Future[None]:
        try:
            future = self._jobs.submit(self._guarded, job, entry, *args)
        except RuntimeError:  # this daemon is ending
            future = Future()
            future.set_result(None)
            return future
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def _guarded(self, job: Callable[..., None], entry: Entry, *args: object) -> None:
        try:
            job(entry, *args)
        except Exception as error:
            log.exception("the driver's checkpoint of PID %d failed", entry.id.pid)
            self._say("error", entry.id.pid, f"an error in DetShare itself: {type(error).__name__}: {error}")

    def _ask(self, job: str, entry: Entry, lock_s: float = 0.0, pairs: Sequence[str] = ()) -> Answer:
        """Where nobody could say how it stands it is let go, if it is locked, and the driver asked again."""
        lock_ms = int(lock_s * 1000)
        answer = self._act(job, self._lock_file, entry.id, lock_ms=lock_ms, size=entry.size, pairs=pairs)
        if answer.state is not None or answer.left or job == "settle":
            return answer
        again = self._act("settle", self._lock_file, entry.id)
        return replace(answer, state=again.state)

    def _leave(self, entry: Entry, lock_s: float) -> None:
        answer = self._ask("park", entry, lock_s)
        if self._stands(entry, answer, "home") and entry.state == "parked":
            entry.parks += 1
            entry.park_ms = answer.seconds * 1000
            size = "its context" if entry.deep else text(entry.size) if entry.size else "its memory"
            said = f"parked by the driver's checkpoint: {size} left {', '.join(entry.gpus)} in {answer.seconds:.3g} s"
            until = f"; it waits until: detshare-ctl resume {entry.id.pid}"
            self._say("park", entry.id.pid, said if entry.deep else said + until)
        elif answer.state is not Driver.NONE:
            not_so = "stays parked, its context on the GPU" if entry.deep else "is not parked"
            self._say("park", entry.id.pid, f"{not_so}, nothing is lost: {answer.error or 'the driver refused'}")

    def _move(self, entry: Entry, lock_s: float, before: str, pairs: Sequence[str], gpu: str) -> None:
        mark = moved_mark(self._lock_file, *entry.id)
        mark.unlink(missing_ok=True)
        answer, old = self._ask("migrate", entry, lock_s, pairs), entry.gpus[0]
        there = answer.state is Driver.RUNNING and not answer.error
        there = there or (answer.state in _ON_GPU and mark.exists())  # its child was killed after the restore
        if there:
            self._arrived(entry)
        entry.to = ""
        stands = self._stands(entry, answer, before)
        mark.unlink(missing_ok=True)
        if not stands:
            return
        if entry.deep and not entry.away:  # what follows is its library's: who asked tells
            return
        if entry.state == "home" and there:
            entry.parks, entry.resume_ms = entry.parks + 1, answer.seconds * 1000
            took = f"by the driver's checkpoint in {answer.seconds:.3g} s"
            self._say("park", entry.id.pid, f"moved from {old} to {gpu} {took}")
            return
        stays = "stays in the driver's checkpoint" if entry.away else "stays where it was, and runs"
        why = answer.error or "the driver refused"
        self._say("park", entry.id.pid, f"is not moved, it {stays}; nothing is lost: {why}")

    def _arrived(self, entry: Entry) -> None:
        """It is on the GPU that it was to move to: before it runs there, its accounts follow."""
        old, entry.gpus, entry.to = entry.gpus[0], (entry.to,), ""
        try:
            self._moved(entry.id, old, entry.gpus[0])
        except OSError as error:
            self._say("error", entry.id.pid, f"that it is on {entry.gpus[0]} is not kept over a restart: {error}")

    def _come(self, entry: Entry) -> None:
        if not entry.away:
            return
        entry.state, before = "coming", entry.note
        answer = self._ask("resume", entry)
        if not self._stands(entry, answer):
            return
        if entry.state == "home":
            entry.resume_ms = answer.seconds * 1000
            runs = "its context is on the GPU again" if entry.deep else "runs again"
            self._say("park", entry.id.pid, f"{runs}, after {answer.seconds:.3g} s of the driver's restore")
        elif entry.note != before:
            why = answer.error or "the driver refused"
            self._say("error", entry.id.pid, f"stays in the driver's checkpoint, nothing is lost: {why}")

    def _settle(self, entry: Entry, tell: bool) -> None:
        answer, mark = self._ask("settle", entry), moved_mark(self._lock_file, *entry.id)
        if entry.to and answer.state in _ON_GPU and mark.exists():  # an earlier daemon was killed, the move was done
            self._arrived(entry)
        mark.unlink(missing_ok=True)
        if self._stands(entry, answer) and tell:
            stands = "is still in the driver's checkpoint" if entry.away else "runs: its checkpoint was not done"
            self._say("park", entry.id.pid, f"found again: it {stands}")

    def _look_for(self, entry: Entry) -> None:
        answer = self._ask("state", entry)
        if answer.state is Driver.CHECKPOINTED:
            with self._lock:
                entry.state = "parked"
                self._entries[entry.id] = entry
                self._save()
            self._come(entry)
        else:
            stands = answer.state.value if answer.state is not None else answer.error
            self._say("park", entry.id.pid, f"the driver has no checkpoint of it ({stands})")

    def _stands(self, entry: Entry, answer: Answer, before: str = "parked") -> bool:
        """Take over what the driver says; `before` where nothing was done. False where the process has ended, or is
        beyond help."""
        with self._lock:
            entry.note = answer.error
            match answer.state:
                case None if answer.left:
                    entry.state = before
                case Driver.CHECKPOINTED:
                    entry.state = "parked"
                case Driver.RUNNING:
                    entry.state = "home"
                case Driver.NONE:
                    self._entries.pop(entry.id, None)
                case Driver.FAILED:
                    entry.state = "home"
                    self._say("error", entry.id.pid, "its checkpoint failed in the driver: its calls of CUDA fail")
                case _:  # nobody knows: it stays in the journal, and `resume` asks again
                    entry.state = "parked"
                    self._say("error", entry.id.pid, f"nobody can say how it stands: {answer.error}")
            self._keep()
        if entry.deep and not entry.away:
            self._opens(entry.id)
        return answer.state not in (Driver.NONE, Driver.FAILED)


def _alive(process: ProcessId) -> bool:
    return procfs.start_time(process.pid) == process.start


def _has_libcuda(pid: int) -> bool:
    try:
        return "/libcuda.so" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False
