# SPDX-License-Identifier: Apache-2.0
"""What `detshare run` asks of the daemon before it becomes the program: a lane, and what was asked for in it.

One JSON object in one packet each way:
  {"run": ["python", "serve.py"], "lane": "auto", "class": "high", "sm": 25, "memory": 8589934592, "tenant": "red"}
  {"lane": "spatial", "why": "...", "notes": ["..."], "observe": false, "environment": {"NAME": "value"}}
or {"error": {"asked", "stopped", "next"}}, with "again": true where it may be asked again soon.
Whatever is answered, the program starts.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from detshare.ctl.core import accounts, classes, procfs, sizes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.errors import ControlError
from detshare.runtime.mps import Mps, MpsError
from detshare.runtime.profiles import LANES, Lane, Profiles, choose, key, known
from detshare.runtime.reflexes import DEFAULT_CLASS, Desired
from detshare.runtime.runs import Run
from detshare.runtime.tenants import Tenants
from detshare.runtime.tiers import check_percent

ASKED: Final = "detshare run"
PRIORITY: Final = "CUDA_MPS_CLIENT_PRIORITY"
"""of an MPS client from its start on, 0 normal and 1 below (MPS guide): where both wait, its blocks go last"""
_BELOW: Final = ("low", "idle")
_FIELDS: Final = ("run", "lane", "class", "sm", "memory", "tenant", "park", "park_after")
COMMAND_BYTES: Final = 12_000
"""of a command in the packet, which holds 16384"""
_CHARACTER: Final = 12
"""bytes of one in JSON at most: beyond the first plane it is written as two"""
LONGEST_IDLE: Final = 86400.0
"""seconds that a program may be idle before it is parked"""

_IDLE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h|)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}

Steer = Callable[[int, str | None, int | None, str], Sequence[str]]
"""sets class, memory limit and tenant of a PID in the temporal lane; gives what could not be done"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be meant."""

    command: tuple[str, ...]
    lane: str
    klass: str | None
    percent: int | None
    memory: int | None
    tenant: str
    park: bool = False
    """its memory can leave the GPU"""
    park_after: float | None = None
    """and does so after so many seconds without work"""

    @classmethod
    def parse(cls, data: bytes) -> Request:
        """BadRequest where it is none."""
        try:
            body: Any = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or set(body) - set(_FIELDS):
            raise BadRequest(f"the request is no JSON object with some of {', '.join(_FIELDS)}")
        command, lane, klass, tenant = body.get("run"), body.get("lane"), body.get("class"), body.get("tenant", "")
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise BadRequest("run is the command as a list of strings")
        if lane not in LANES:
            raise BadRequest(f"lane is one of {', '.join(LANES)}")
        if klass is not None:
            if not isinstance(klass, str):
                raise BadRequest("class is a string")
            classes.setting(klass)
        percent = None if body.get("sm") is None else check_percent(body["sm"])
        memory = None if body.get("memory") is None else sizes.check(body["memory"])
        after = None if body.get("park_after") is None else check_idle(body["park_after"])
        park = after is not None or body.get("park") is True
        return cls(tuple(command), lane, klass, percent, memory, check_name(tenant) if tenant else "", park, after)

    def pack(self) -> bytes:
        """The packet; the command is cut where it would not fit."""
        words, room = [], COMMAND_BYTES
        for word in self.command:
            size = len(json.dumps(word)) + 2
            if size > room:
                words.append(word[: room // _CHARACTER])
                break
            words.append(word)
            room -= size
        body: dict[str, Any] = {"run": words, "lane": self.lane, "class": self.klass, "sm": self.percent}
        body |= {"memory": self.memory, "tenant": self.tenant, "park": self.park, "park_after": self.park_after}
        return json.dumps(body).encode()


def check_idle(seconds: object) -> float:
    """Seconds without work. BadRequest otherwise."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= LONGEST_IDLE:
        given = str(seconds)[:24]
        raise BadRequest(f"a program is parked after 0.1 to {LONGEST_IDLE:g} seconds without work, not {given}")
    return float(seconds)


def idle(text: str) -> float:
    """Seconds of what a person typed: 30s, 500ms, 5m or 30. BadRequest otherwise."""
    found = _IDLE.fullmatch(text.strip())
    if found is None:
        raise BadRequest(f"{text[:24]!r} is no time: write 30s, 500ms or 5m")
    return check_idle(float(found[1]) * _UNITS[found[2]])


def check_name(name: object) -> str:
    """A tenant's name that fits the boards' message. BadRequest otherwise."""
    checked = accounts.check_tenant(name)
    if len(checked.encode()) > 63:
        raise BadRequest(f"tenant {checked[:20]!r}... is longer than 63 bytes")
    return checked


class Admission:
    """Answers such requests. `answer` may take some seconds; several threads may call it."""

    def __init__(self, tenants: Tenants, mps: Mps, mps_lock: threading.Lock, profiles: Profiles, steer: Steer) -> None:
        self._tenants = tenants
        self._mps = mps
        self._mps_lock = mps_lock
        self._profiles = profiles
        self._steer = steer

    def answer(self, data: bytes, pid: int, uid: int, gid: int) -> dict[str, Any]:
        """The answer to a request of this process."""
        try:
            return self._decide(Request.parse(data), pid, uid, gid)
        except BadRequest as error:
            return ControlError(ASKED, str(error), "see detshare run --help", usage=True).to_json()
        except ControlError as error:
            return error.to_json()

    def _decide(self, asked: Request, pid: int, uid: int, gid: int) -> dict[str, Any]:
        start = procfs.start_time(pid)
        if start is None:
            raise ControlError(ASKED, f"there is no process {pid} in the daemon's pid namespace", "run it on the host")
        notes: list[str] = []
        klass, memory = asked.klass, asked.memory
        if uid not in (0, os.geteuid()) and klass == "high":
            notes.append(f"class high is given by root only; it runs with class {DEFAULT_CLASS}")
            klass = None
        name = key(asked.command)
        lane, why = asked.lane, "it was asked for"
        if lane == Lane.AUTO:
            profile = self._profiles.get(name)
            lane, why = choose(name, profile)
            if known(profile):
                lane, why = self._beside(pid, klass or DEFAULT_CLASS, lane, why)
        if lane == Lane.SPATIAL:
            problem = self._spatial(uid, gid)
            if problem:
                lane, why = Lane.TEMPORAL, f"not in the spatial lane: {problem}"
        if lane == Lane.TEMPORAL:
            if asked.percent is not None:
                notes.append("a share of the SMs needs the spatial lane; it has all of them")
            if uid in (0, os.geteuid()):
                notes += self._steer(pid, klass, memory, asked.tenant)
            elif klass is not None or memory is not None:
                notes.append("class and memory limit of the temporal lane are set by root only; it has neither")
        desired = Desired(klass or DEFAULT_CLASS, asked.percent, memory, park_after=asked.park_after)
        observed = lane == Lane.TEMPORAL
        # the library is in programs of the temporal lane for their profile, or so that their memory can leave
        seen = asked.lane == Lane.AUTO or asked.park
        if not observed or seen:
            tenant = asked.tenant or f"run-{pid}"
            text = " ".join(asked.command)[:4096]
            self._tenants.announce(Run(pid, start, uid, tenant, text, name, observed, desired))
        environment = {} if observed else {**self._mps.environment, PRIORITY: "1" if desired.klass in _BELOW else "0"}
        return {"lane": lane, "why": why, "notes": notes, "observe": observed and seen, "environment": environment}

    def _beside(self, pid: int, klass: str, lane: str, why: str) -> tuple[str, str]:
        """Programs that run at once are in one lane, whatever their own runs showed: those of two lanes have slices of
        a millisecond by turns, and an MPS server is never off. Only class high goes before others from another lane."""
        runs = [run for run in self._tenants.runs() if run.pid != pid]
        temporal, spatial = [run for run in runs if run.observed], [run for run in runs if not run.observed]
        if lane == Lane.SPATIAL and klass != "high" and temporal:
            return Lane.TEMPORAL, f"{temporal[0].tenant} is in the temporal lane"
        if lane == Lane.TEMPORAL and klass == "high":
            below = [run for run in spatial if run.desired.klass != "high"]
            if below:
                return Lane.SPATIAL, f"{below[0].tenant}, whose class is lower, is in the spatial lane"
        elif lane == Lane.TEMPORAL and spatial and not temporal and all(run.desired.klass != "high" for run in spatial):
            return Lane.SPATIAL, f"{spatial[0].tenant} is in the spatial lane"
        return lane, why

    def _spatial(self, uid: int, gid: int) -> str:
        """Have an MPS server for this user; what stops it, or empty."""
        if uid != os.geteuid() and os.geteuid() != 0:
            return f"the daemon runs as uid {os.geteuid()} and serves that user only"
        with self._mps_lock:
            try:
                problem = self._mps.make_ready(uid, gid, lambda: self._tenants.working(2.0))
            except MpsError as error:
                return f"{error.stopped}; next: {error.next_step}"
        return f"the MPS server takes no newcomer now ({problem}); next: detshare-ctl doctor" if problem else ""
