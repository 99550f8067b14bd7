# SPDX-License-Identifier: Apache-2.0
"""Two backends as one: `shim` serves the programs of the spatial lane, root, kmod or the model all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from detshare.ctl.backends.spatial.backend import ShimBackend, with_memory
from detshare.ctl.backends.spatial.checkpoints import Checkpoints
from detshare.ctl.backends.spatial.deep import Deep, answered
from detshare.ctl.backends.spatial.mover import Mover
from detshare.ctl.backends.spatial.mps_server import MpsServer
from detshare.ctl.backends.spatial.residence import AWAY
from detshare.ctl.core import select
from detshare.ctl.core.backend import Backend, BadRequest
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.snapshot import Change, Check, Event, Outcome, Program, Skip, Snapshot, State
from detshare.ctl.core.verb import Lane, Request
from detshare.ctl.core.verbs import request
from detshare.ctl.core.work import Parking

_PROCESSES: Final = ("kmod", "root")
"""backends whose programs are processes of this machine"""


def lanes(temporal: Backend, spatial: ShimBackend, run_dir: Path) -> Lanes:
    """Both, and the driver's checkpoint for programs of this machine that are not under the library."""
    if temporal.name not in _PROCESSES:
        return Lanes(temporal, spatial)
    opens = spatial.residence.shut.ask
    moved = spatial.residence.moves.moved
    made = Checkpoints(run_dir, opens=lambda process: opens(process, False), moved=moved)
    return Lanes(temporal, spatial, made)


class Lanes(Backend):
    """A backend for each lane. A PID belongs to the spatial lane as long as it has a board there."""

    def __init__(self, temporal: Backend, spatial: ShimBackend, checkpoints: Checkpoints | None = None) -> None:
        self._temporal = temporal
        self._spatial = spatial
        self._checkpoints = checkpoints
        self._server = MpsServer(temporal, spatial.servers) if temporal.name != "kmod" else None
        self._deep = Deep(spatial.residence, checkpoints) if checkpoints is not None else None
        deep = self._deep
        self._mover = Mover(spatial.residence, checkpoints, deep) if checkpoints is not None and deep else None
        self._programs: tuple[Program, ...] = ()
        self._gpus: tuple[Gpu, ...] = ()
        """both of the last look"""

    @property
    def name(self) -> str:
        return self._temporal.name

    def look(self, *, enforce: bool = True) -> Snapshot:
        seen = self._temporal.look(enforce=enforce)
        mine = {program.id: program for program in self._spatial.look().programs}
        if enforce and self._server is not None:
            self._server.follow(seen.programs, mine.values())
        merged = [_merged(program, mine.pop(program.id, None)) for program in seen.programs]
        self._gpus = seen.gpus
        self._spatial.beside = {program.id.pid for program in seen.programs}
        away = self._spatial.residence.all()
        placed = (self._placed(each) for each in (*merged, *mine.values()))
        self._programs = tuple(_housed(each, away.get(each.id)) for each in placed)
        known = self._checkpoints.add_to(self._programs) if self._checkpoints is not None else self._programs
        if self._deep is not None:
            known = tuple(self._deep.shown(each, away.get(each.id)) for each in known)
        if self._mover is not None:
            known = tuple(map(self._mover.shown, known))
        return replace(seen, programs=known)

    def stirs(self) -> bool:
        jobs = self._checkpoints is not None and self._checkpoints.stirs()
        jobs = jobs or (self._mover is not None and self._mover.stirs())
        return jobs or self._temporal.stirs() or self._spatial.stirs() or self._spatial.residence.stirs()

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {**self._temporal.table, **self._spatial.table}

    def do(self, request: Request) -> Outcome:
        verb, who = request.verb, request.who
        if verb.name == "park":
            return self._park(request)
        if verb.name == "migrate":
            return self._migrate(request)
        if verb.name == "pause":
            return self._pause(request)
        if verb.name in ("resume", "release"):
            stays = self._deep.resume(who) if self._deep is not None else []
            lazy = bool(request.args.get("lazy"))
            done = self._split(request, self._temporal.do)
            if verb.name == "resume":
                # those of the temporal lane: whose memory is away need not be paused
                done = with_memory(done, self._spatial.residence.resume(who, lazy))
            return answered(with_memory(done, Outcome.of(verb.name, self._restore(request))), stays)
        if verb.name == "bind":
            return self._split(request, self._ceiling)
        if verb.name == "set-memory":
            # `who` may be a tenant's name or a cgroup here, which only the kernel module knows
            mine = who.strip().isdecimal() and self._spatial.owns(who) and self._temporal.name != "kmod"
            return self._spatial.do(request) if mine else self._temporal.do(request)
        if verb.lane is Lane.TEMPORAL:
            return self._temporal.do(request)
        if verb.lane is Lane.SPATIAL or verb.name not in self._temporal.table:
            return self._spatial.do(request)
        return self._split(request, self._temporal.do)

    def _split(self, asked: Request, temporal: Callable[[Request], Outcome]) -> Outcome:
        """Do it in the lane of each program that `who` selects."""
        mine = self._spatial.owns(asked.who)
        if not mine:
            return temporal(asked)
        done = [self._spatial.do(asked)]
        if select.parse(asked.who).by is not select.By.PID:
            other = temporal(asked)
            # what the temporal backend says of programs that are the other lane's is not theirs
            changed = tuple(change for change in other.changed if change.pid not in mine)
            skipped = tuple(skip for skip in other.skipped if skip.pid and skip.pid not in mine)
            done.append(replace(other, changed=changed, skipped=skipped))
        answers: list[Change | Skip] = []
        for each in done:
            answers += each.changed
            answers += each.skipped
        return Outcome.of(asked.verb.name, answers, sum(each.seconds for each in done))

    def _pause(self, asked: Request) -> Outcome:
        """Of a job under the library: between two collectives, if its ranks come to such a point."""
        selector = select.parse(asked.who)
        ranks = [each.id for each in self._programs if selector.by is select.By.JOB and selector.matches(each)]
        meeting = self._spatial.meeting(ranks)
        if meeting is None:
            return self._split(asked, self._temporal.do)
        spatial = self._spatial.owns(asked.who) >= {rank.pid for rank in ranks}
        with meeting:
            done = self._spatial.do(asked) if spatial else self._split(asked, self._temporal.do)
            seconds = time.monotonic() - meeting.since if meeting.quiet else done.seconds
        changed = tuple(replace(each, note="; ".join(filter(None, (each.note, meeting.text)))) for each in done.changed)
        return replace(done, changed=changed, seconds=seconds)

    def _park(self, park: Request) -> Outcome:
        """The fast way for programs under the library, the driver's for all others."""
        residence = self._spatial.residence
        if self._checkpoints is None:
            return self._spatial.do(park)
        under = residence.processes()
        others = [program for program in self._programs if program.id not in under]
        driven = self._checkpoints.park(park.who, others, park.args.get("timeout"))
        if driven and not residence.selects(park.who):
            return Outcome.of("park", driven)
        args = {name: value for name, value in park.args.items() if name != "deep"}
        done = self._spatial.do(replace(park, args=args))
        if self._deep is not None and park.args.get("deep"):
            done = self._deep.park(done, park.args.get("timeout"))
        return Outcome.of("park", [*done.changed, *driven, *done.skipped], done.seconds)

    def _migrate(self, asked: Request) -> Outcome:
        selector = select.parse(asked.who)
        if selector.by is select.By.JOB:
            # NCCL makes no communicator of two ranks on one GPU
            raise BadRequest(f"{asked.who} is a job, and its ranks need a GPU each: migrate takes a rank by its PID")
        if self._checkpoints is None or self._mover is None:
            if self._spatial.owns(asked.who):
                return self._spatial.do(asked)
            why = f"backend {self.name} moves nobody: that takes a process, and a driver's checkpoint, of this machine"
            return Outcome.of("migrate", [Skip(selector.pid, why)])
        programs, gpus = self._checkpoints.add_to(self._programs), self._gpus
        gpu, timeout = asked.args["gpu"], asked.args.get("timeout")
        answers = self._mover.migrate(asked.who, programs, gpus, gpu, timeout)
        rest = [each for each in programs if not self._mover.takes(each)]
        answers += self._checkpoints.migrate(asked.who, rest, gpus, gpu, timeout)
        nobody = "no GPU program is selected: see which there are by detshare-ctl ps"
        return Outcome.of("migrate", answers or [Skip(selector.pid, nobody)])

    def _placed(self, program: Program) -> Program:
        """On the GPU that its boards are of, where it was moved or nobody else says."""
        mine = self._spatial.residence.gpus(program.id)
        moved = self._spatial.residence.moves.has_moved(program.id)
        return replace(program, gpus=mine) if mine and (moved or not program.gpus) else program

    def _restore(self, asked: Request) -> list[Change | Skip]:
        """Back from the driver's checkpoint."""
        if self._checkpoints is None:
            return []
        back = self._checkpoints.resume(asked.who)
        selector = select.parse(asked.who)
        if back or asked.verb.name != "resume" or selector.by is not select.By.PID:
            return back
        known = any(selector.matches(each) for each in self._programs) or self._spatial.residence.selects(asked.who)
        return [] if known else self._checkpoints.find(selector.pid)

    def _ceiling(self, bind: Request) -> Outcome:
        """What it is for a program of the temporal lane to be bound to a pCtx."""
        percent = self._spatial.pool.percent(bind.args["pctx"])
        return replace(self._temporal.do(request("set-ceiling", bind.who, percent=percent)), verb="bind")

    def kept(self, pid: int) -> Mapping[str, object]:
        return self._temporal.kept(pid)

    def alive(self, process: ProcessId) -> bool:
        # the model's processes are no processes of this machine, and the other way round
        return self._temporal.alive(process) or self._spatial.alive(process)

    def doctor(self) -> list[Check]:
        driven = self._checkpoints.doctor() if self._checkpoints is not None else []
        return [*self._temporal.doctor(), *self._spatial.doctor(), *driven]

    def drain_events(self) -> Sequence[Event]:
        driven = self._checkpoints.drain_events() if self._checkpoints is not None else []
        driven += self._mover.drain_events() if self._mover is not None else []
        return [*self._temporal.drain_events(), *self._spatial.drain_events(), *driven]

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        self._temporal.listen(tell, edge)

    def attend(self, on: bool) -> None:
        self._temporal.attend(on)

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._temporal.wake_by(wake)

    def apply_early(self) -> None:
        self._temporal.apply_early()

    def stand(self, rules: Mapping[str, str]) -> None:
        self._temporal.stand(rules)

    def close(self, restore: bool = True) -> None:
        try:
            if self._mover is not None:
                self._mover.close()
            if self._deep is not None:
                self._deep.close()
            if self._checkpoints is not None:
                self._checkpoints.close(restore)
            self._spatial.close(restore)
        finally:
            self._temporal.close(restore)


def _housed(program: Program, parking: Parking | None) -> Program:
    """With what its library says of its memory."""
    if parking is None or program.parking is not None:
        return program
    state = State.PARKED if parking.state in AWAY and program.state is State.RUNNING else program.state
    return replace(program, parking=parking, state=state)


def _merged(seen: Program, mine: Program | None) -> Program:
    """One process as both lanes see it: the driver's objects from one, state and class from the other."""
    if mine is None:
        return seen
    return replace(
        seen,
        state=mine.state,
        klass=mine.klass,
        gpus=mine.gpus or seen.gpus,
        memory_bytes=seen.memory_bytes if seen.memory_bytes is not None else mine.memory_bytes,
        gpu_memory=seen.gpu_memory or mine.gpu_memory,
        notes=(*mine.notes, *seen.notes),
        tenant=seen.tenant or mine.tenant,
        parking=mine.parking,
        spatial=mine.spatial,
    )
