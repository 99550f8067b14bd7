# SPDX-License-Identifier: Apache-2.0
"""Answers of the daemon as typed values. What a newer daemon tells besides stays in `raw`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GpuTime:
    """What a program had of one GPU over the last `seconds`, by the GPU's context-switch log."""

    gpu: str
    """UUID"""
    seconds: float
    share: float
    """0..1 of that time"""
    useful: float
    """0..1 of that time, less the restores of its context"""
    switches_s: float
    """runs a second"""
    history: tuple[float, ...]
    """share of each tenth of a second, oldest first"""
    stalled_s: float
    """seconds without progress although it has work; 0: it works, or has nothing to do"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> GpuTime:
        numbers = (data["seconds"], data["share"], data["useful"], data["switches_s"])
        return cls(data["gpu"], *numbers, tuple(data["history"]), data["stalled_s"], data)


@dataclass(frozen=True, slots=True)
class Place:
    """A program's place in the rotation of a GPU."""

    gpu: str
    """UUID"""
    tenant: str
    standing: str
    """holds, waits, rests, window"""
    next_s: float | None
    """seconds until its next turn; None: it has it, or nobody can say"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Place:
        return cls(data["gpu"], data["tenant"], data["standing"], data["next_s"], data)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rotation of one GPU."""

    gpu: str
    """UUID"""
    mode: str
    """free, turns, windows"""
    pattern: str
    """how the foreground comes: none, bursts, stream, full; unknown where what rotates does not tell"""
    holder: str
    """tenant that has its turn; empty: none"""
    next: str
    left_s: float | None
    why: str
    """the measurement that decided"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Schedule:
        words = (data["mode"], data["pattern"], data["holder"], data["next"])
        return cls(data["gpu"], *words, data["left_s"], data["why"], data)


@dataclass(frozen=True, slots=True)
class Program:
    """A process that uses a GPU."""

    pid: int
    command: str
    user: str
    container: str
    state: str
    """running, paused, gated, spatial, no-context, ...: see docs/develop/architecture.md"""
    priority: str | None
    """the class; None: not managed"""
    weight: int | None
    lane: str
    """spatial or temporal"""
    pctx: str
    """the member of the pool that it is bound to; empty: none"""
    gpus: tuple[str, ...]
    """UUIDs"""
    memory_bytes: int | None
    memory_limit: int | None
    gpu_share: float | None
    """0..1 of the last seconds on the GPU where it has most: by the context-switch log, else by NVML"""
    gpu_time: tuple[GpuTime, ...]
    """empty where the context-switch log is refused"""
    places: tuple[Place, ...]
    floor: float | None
    """share of time that it has at least while a higher class leaves nothing, of several GPUs the lowest"""
    decided: Mapping[str, str]
    """what was decided -> by whom"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Program:
        return cls(
            pid=data["pid"],
            command=data["command"],
            user=data["user"],
            container=data["container"],
            state=data["state"],
            priority=data["class"],
            weight=data["weight"],
            lane="spatial" if data.get("spatial") else "temporal",
            pctx=data.get("pctx", ""),
            gpus=tuple(data["gpus"]),
            memory_bytes=data["memory_bytes"],
            memory_limit=data.get("memory_limit"),
            gpu_share=data["gpu_share"],
            gpu_time=tuple(map(GpuTime.of, data.get("gpu_time") or ())),
            places=tuple(map(Place.of, data.get("places") or ())),
            floor=data.get("floor"),
            decided=dict(data.get("decided") or {}),
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine."""

    uuid: str
    minor: int
    name: str
    memory_bytes: int
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Gpu:
        return cls(data["uuid"], data["minor"], data["name"], data["memory_bytes"], data)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the machine."""

    backend: str
    proof: str
    """gpu, driver, model or unit: how far this may be believed"""
    driver: str
    gpus: tuple[Gpu, ...]
    programs: tuple[Program, ...]
    warnings: tuple[str, ...]
    schedules: tuple[Schedule, ...]
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Look:
        gpus = tuple(Gpu.of(each) for each in data["gpus"])
        programs = tuple(Program.of(each) for each in data["programs"])
        schedules = tuple(Schedule.of(each) for each in data.get("schedules") or ())
        seen = (data["backend"], data["proof"], data["driver"], gpus, programs, tuple(data["warnings"]), schedules)
        return cls(*seen, data)

    def program(self, pid: int) -> Program | None:
        """The one with this PID."""
        return next((each for each in self.programs if each.pid == pid), None)


@dataclass(frozen=True, slots=True)
class Result:
    """What a change did."""

    verb: str
    changed: tuple[int, ...]
    """PIDs; 0: something that is no process"""
    skipped: Mapping[int, str]
    """PID -> why it was left alone"""
    seconds: float
    """that the driver took"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Result:
        changed = tuple(each["pid"] for each in data["changed"])
        skipped = {each["pid"]: each["reason"] for each in data["skipped"]}
        return cls(data["verb"], changed, skipped, data["seconds"], data)


@dataclass(frozen=True, slots=True)
class Policy:
    """Who decides on what people left open."""

    name: str
    rule: str
    params: Mapping[str, Any]
    failed: str
    """empty: it works"""
    standing: int
    """decisions of it that stand"""
    gpus: Mapping[str, Policy]
    """UUID -> the policy that this GPU has of its own"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Policy:
        gpus = {str(each["uuid"]): cls.of(each) for each in data.get("gpus", ())}
        return cls(data["name"], data["rule"], dict(data["params"]), data["failed"] or "", data["standing"], gpus, data)


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of the log of decisions."""

    when: float
    """Unix seconds"""
    text: str
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Decision:
        return cls(data["when"], data["text"], data)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the daemon or the kernel module saw or did."""

    when: float
    """Unix seconds"""
    kind: str
    """daemon, attach, detach, change, policy, error, refused, ..."""
    pid: int | None
    text: str
    data: Mapping[str, Any]
    """what was told besides"""
    raw: Json = field(repr=False, hash=False)

    @classmethod
    def of(cls, data: Json) -> Event:
        return cls(data["when"], data["kind"], data["pid"], data["text"], dict(data.get("data") or {}), data)
