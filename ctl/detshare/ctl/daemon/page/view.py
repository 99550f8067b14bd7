# SPDX-License-Identifier: Apache-2.0
"""What browsers are told: a compact look at the machine, and after the first answer only what changed since.

Nothing is done, and nothing kept up to date, while nobody asks.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from detshare.ctl.core import words
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.gputime import SLOT_S, SLOTS, GpuTime
from detshare.ctl.core.snapshot import Event, Program, Snapshot, plain
from detshare.ctl.daemon.api import HttpError, Service
from detshare.ctl.daemon.page.history import LEVELS, SECONDS, Series, Shares, level
from detshare.ctl.daemon.page.rows import key_of, latency, memory_on, row, text

__all__ = ["MOST_EVENTS", "View"]

LEAST_S: Final = 0.25
"""between two looks for browsers, however many there are"""
MOST_EVENTS: Final = 200
"""in one answer"""
MOST_GONE: Final = 4096
"""programs that ended, which are remembered for who asks what changed"""
LEAST_SHARE: Final = 0.005
"""who has less has no lane"""
LANES: Final = 8
"""of a GPU's time line in tenths of seconds: those that have most"""


class _Known:
    """A program as browsers know it."""

    def __init__(self) -> None:
        self.row: dict[str, Any] = {}
        self.version = 0
        self.shares: dict[int, Shares] = {}
        self.memory = Series()
        self.latency = Series()


class _Gpu:
    """Sums over a GPU."""

    def __init__(self) -> None:
        self.share = Series()
        self.memory = Series()


class View:
    """One for all browsers of a daemon. For one thread. `clock`: seconds, as Snapshot.taken has them."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self.boot = secrets.token_hex(8)
        """another daemon has another one, and counts anew"""
        self._host = text(socket.gethostname(), 64)
        self._version = 0
        self._floor = 0
        """who knows less than that needs all"""
        self._known: dict[str, _Known] = {}
        self._gone: dict[str, int] = {}
        self._gpus: dict[str, _Gpu] = {}
        self._seen: Snapshot | None = None
        self._looked = float("-inf")
        self._second = 0

    def stir(self) -> None:
        """Something was changed: the next answer is to show it."""
        self._looked = float("-inf")

    def answer(self, boot: str, since: int, events: int) -> dict[str, Any]:
        """What changed since version `since` and event `events` of the daemon `boot`; all, where that is another one.

        ControlError where there was no look yet.
        """
        seen = self._refresh()
        full = boot != self.boot or not self._floor <= since <= self._version
        numbers = _numbers(seen)
        rows = [self._row(known, full) for known in self._known.values() if full or known.version > since]
        told = self._service.remembered()
        total = self._service.told
        fresh = min(total - events if not full and 0 <= events <= total else total, len(told), MOST_EVENTS)
        return {
            "boot": self.boot,
            "version": self._version,
            "full": full,
            "second": self._second,
            "seconds": SECONDS,
            "levels": LEVELS,
            "slot_s": SLOT_S,
            "machine": self._machine(seen),
            "gpus": [self._gpu(seen, gpu.uuid, numbers, full) for gpu in seen.gpus],
            "rows": rows,
            "gone": [] if full else [key for key, version in self._gone.items() if version > since],
            "events": [_event(each) for each in (told[-fresh:] if fresh else ())],
            "told": total,
        }

    def detail(self, pid: int) -> dict[str, Any]:
        """All that is known of a program. HttpError where there is none."""
        seen = self._refresh()
        program = next((each for each in seen.programs if each.id.pid == pid), None)
        if program is None:
            raise HttpError(404, f"show {pid}", "it holds no GPU any more", "choose another program")
        known, numbers = self._known[key_of(program)], _numbers(seen)
        data = program.to_json()
        names = {uuid: str(number) for uuid, number in numbers.items()}
        rotates = [each for each in seen.schedules if each.gpu in program.gpus and each.why]
        lines = [
            *words.gpu_times(data, names),
            *words.places(data, names),
            *(f"floor {each}" for each in words.floor(data, names)),
            *(f"GPU {names.get(each.gpu, '?')} rotates so because {each.why}" for each in rotates),
        ]
        return {
            "pid": pid,
            "start": program.id.start,
            "seconds": SECONDS,
            "share": {str(number): shares.to_json() for number, shares in known.shares.items()},
            "memory": known.memory.to_json(),
            "latency": known.latency.to_json(),
            "latency_of": latency(program)[1],
            "lines": [text(each) for each in lines],
            "warnings": [text(each) for each in words.warning(data, names)],
            "notes": [text(each) for each in program.notes],
            "decided": {text(what): text(who) for what, who in program.decided.items()},
            "limits": [
                {"text": text(each.text), "used": each.used, "limit": each.limit, "refused": each.refused}
                for each in program.limits
            ],
            "groups": [
                {
                    "gpu": numbers.get(each.gpu, -1),
                    "handle": each.handle,
                    "kind": each.kind.value,
                    "engine": text(each.engine, 16),
                    "channels": len(each.channels),
                    "slice_us": each.slice_us,
                    "level": each.level.name.lower() if each.level is not None else "",
                }
                for each in program.tsgs[:64]
            ],
        }

    def _refresh(self) -> Snapshot:
        now = self._clock()
        if self._seen is not None and now - self._looked < LEAST_S:
            return self._seen
        seen = self._service.snapshot()
        passed = int(now) - self._second if self._known or self._gpus else 0
        if passed > SECONDS:  # nobody looked for longer than is kept
            self._gpus.clear()
            for known in self._known.values():
                known.shares, known.memory, known.latency = {}, Series(), Series()
        self._take(seen, passed)
        self._seen, self._looked, self._second = seen, now, int(now)
        return seen

    def _take(self, seen: Snapshot, passed: int) -> None:
        """A look, so many seconds after the last one."""
        numbers = _numbers(seen)
        version = self._version + 1
        living: dict[str, _Known] = {}
        sums: dict[int, int] = {}
        for program in seen.programs:
            key = key_of(program)
            known = living[key] = self._known.get(key) or _Known()
            now = _shares(program, numbers, known, passed)
            for number, step in now:
                sums[number] = sums.get(number, 0) + step
            known.memory.add(program.memory_bytes, passed)
            known.latency.add(latency(program)[0], passed)
            made = row(program, numbers, now)
            if made != known.row:
                known.row, known.version, self._version = made, version, version
        for key in self._known.keys() - living.keys():
            self._gone[key], self._version = version, version
        for key in living.keys() & self._gone.keys():
            del self._gone[key]
        while len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))
        self._known = living
        for gpu in seen.gpus:
            kept = self._gpus.setdefault(gpu.uuid, _Gpu())
            kept.share.add(min(sums.get(numbers[gpu.uuid], 0) / LEVELS, 1.0), passed)
            kept.memory.add(sum(memory_on(gpu.uuid, each) for each in seen.programs), passed)

    @staticmethod
    def _row(known: _Known, full: bool) -> dict[str, Any]:
        if not full:
            return known.row
        return known.row | {"lately": {str(number): shares.text for number, shares in known.shares.items()}}

    def _machine(self, seen: Snapshot) -> dict[str, Any]:
        try:
            status = self._service.policy.engine.status()
            policy = {key: text(each) for key, each in words.policies(status).items()}
        except ControlError:
            policy = {"name": "", "failed": ""}
        return {
            "host": self._host,
            "backend": seen.backend,
            "proof": seen.proof,
            "driver": text(seen.driver, 40),
            "look_s": round(seen.seconds, 4),
            "age_s": round(max(0.0, self._clock() - seen.taken), 1),
            "limits": seen.backend == "kmod",
            "policy": policy,
            "warnings": [text(each) for each in seen.warnings],
        }

    def _gpu(self, seen: Snapshot, uuid: str, numbers: Mapping[str, int], full: bool) -> dict[str, Any]:
        gpu = next(each for each in seen.gpus if each.uuid == uuid)
        kept = self._gpus[uuid]
        newest = SECONDS if full else 1
        schedule = next((each for each in seen.schedules if each.gpu == uuid), None)
        return {
            "number": numbers[uuid],
            "uuid": uuid,
            "name": text(gpu.name, 80),
            "memory_bytes": gpu.memory_bytes,
            "rotation": text(words.schedule(plain(schedule))) if schedule is not None else "",
            "holder": text(schedule.holder, 80) if schedule is not None else "",
            "next": text(schedule.next, 80) if schedule is not None else "",
            "why": text(schedule.why) if schedule is not None else "",
            "share": kept.share.to_json(newest),
            "memory": kept.memory.to_json(newest),
            "fine": _fine(seen, uuid),
        }


def _numbers(seen: Snapshot) -> dict[str, int]:
    """GPU UUID -> the number that detshare-top shows."""
    return {gpu.uuid: gpu.minor for gpu in seen.gpus}


def _shares(program: Program, numbers: Mapping[str, int], known: _Known, passed: int) -> list[list[int]]:
    """[GPU, step] of what it has in this second of each; a GPU that it has nothing of any more goes on with 0."""
    shares: dict[int, tuple[float, GpuTime | None]] = {
        numbers[each.gpu]: (each.share, each) for each in program.gpu_time if each.gpu in numbers
    }
    if not shares and program.gpu_share is not None and program.gpus and program.gpus[0] in numbers:
        shares[numbers[program.gpus[0]]] = (program.gpu_share, None)
    for number in known.shares:
        shares.setdefault(number, (0.0, None))
    made = []
    for number, (share, time_) in sorted(shares.items()):
        made.append([number, known.shares.setdefault(number, Shares()).add(share, time_, passed)])
    return made


def _fine(seen: Snapshot, uuid: str) -> list[dict[str, Any]]:
    """The last seconds in slots of those that had most of a GPU, a step each."""
    found = [
        (each.share, program, each)
        for program in seen.programs
        for each in program.gpu_time
        if each.gpu == uuid and each.share >= LEAST_SHARE
    ]
    found.sort(key=lambda each: (-each[0], each[1].id))
    return [
        {"pid": program.id.pid, "start": program.id.start, "steps": [level(share) for share in time_.history[-SLOTS:]]}
        for _, program, time_ in found[:LANES]
    ]


def _event(event: Event) -> dict[str, Any]:
    return {"when": event.when, "kind": text(event.kind, 40), "pid": event.pid, "text": text(event.text)}
