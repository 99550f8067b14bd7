# SPDX-License-Identifier: Apache-2.0
"""The pool of pCtxs of each GPU: sets of SMs, made by the configuration, that programs are bound to.

Shared ones are tiers, named by their percent. An exclusive one is a set that one program has to itself: while it is
bound, everybody else in the spatial lane runs on the rest. Nothing here is kept: boards and kernel hold what is bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from detshare.ctl.core import config
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.bindings import REST, Binding, bindings
from detshare.ctl.core.snapshot import Snapshot
from detshare.runtime.tiers import Gpu, Kind, Tier, of_percent

__all__ = ["Member", "Pool", "tier_name"]

_MARK: Final = "%"


@dataclass(frozen=True, slots=True)
class Member:
    """A pCtx of one GPU."""

    gpu: str
    name: str
    set: str
    """full, first:32 or rest:32; empty while the GPU's size is not known"""
    sms: int
    """0 while the GPU's size is not known: no program of the spatial lane was there yet"""
    percent: int | None = None
    """of a shared one"""
    exclusive: bool = False
    bound: tuple[int, ...] = ()
    """PIDs"""
    note: str = ""
    """why nobody can be bound to it now; empty: somebody can"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tier_name(percent: int) -> str:
    """The name of a shared pCtx."""
    return f"{percent}{_MARK}"


def set_text(tier: Tier) -> str:
    """A tier as detshare.runtime.tiers.parse() takes it."""
    return "full" if tier.kind is Kind.FULL else f"{tier.kind.name.lower()}:{tier.sms}"


class Pool:
    """The pools of all GPUs, by one configuration."""

    def __init__(self, rules: config.Pool = config.Pool()) -> None:  # noqa: B008  frozen
        self._rules = rules
        self._sizes: dict[str, Gpu] = {}

    def learn(self, now: Snapshot) -> None:
        """Remember the sizes of GPUs that programs of the spatial lane told."""
        for program in now.programs:
            if program.spatial is not None and program.spatial.step and program.gpus:
                spatial = program.spatial
                self._sizes[program.gpus[0]] = Gpu(program.gpus[0], spatial.sms, spatial.step)

    def members(self, uuid: str, gpu: Gpu | None = None) -> tuple[Member, ...]:
        """The configured pCtxs of a GPU, exclusive ones first; nobody is bound."""
        gpu = gpu or self._sizes.get(uuid)
        made = []
        for wanted in self._rules.exclusive:
            if wanted.gpu in ("", uuid):
                tier = exclusive_tier(wanted.sms, gpu) if gpu is not None else None
                made.append(_member(uuid, wanted.name, tier, gpu, exclusive=True))
        for percent in self._rules.tiers:
            tier = of_percent(percent, gpu) if gpu is not None else None
            made.append(_member(uuid, tier_name(percent), tier, gpu, percent=percent))
        return tuple(made)

    def find(self, name: str, gpu: Gpu) -> Member:
        """A pCtx of a GPU by its name. BadRequest where there is none."""
        members = self.members(gpu.uuid, gpu)
        for member in members:
            if member.name == name:
                return member
        known = ", ".join(member.name for member in members)
        raise BadRequest(f"there is no pCtx {ascii(name)[:40]} on {gpu.uuid}; its pool has {known}")

    def percent(self, name: str) -> int:
        """The share that a shared pCtx is, whatever the GPU. BadRequest where the name is none of a shared one."""
        for percent in self._rules.tiers:
            if tier_name(percent) == name:
                return percent
        if any(each.name == name for each in self._rules.exclusive):
            lane = "detshare run --lane spatial"
            raise BadRequest(f"{name} is exclusive: it takes a program of the spatial lane ({lane})")
        known = ", ".join([*(each.name for each in self._rules.exclusive), *map(tier_name, self._rules.tiers)])
        raise BadRequest(f"there is no pCtx {ascii(name)[:40]}; the pool has {known}")

    def rows(self, now: Snapshot) -> tuple[Member, ...]:
        """Every pCtx of every GPU with who is bound to it."""
        self.learn(now)
        bound = self.bindings(now)
        found: list[Member] = []
        for uuid in dict.fromkeys([gpu.uuid for gpu in now.gpus] + [gpu for p in now.programs for gpu in p.gpus]):
            mine = [binding for binding in bound if binding.gpu == uuid]
            members = list(self.members(uuid))
            rest = next((binding.set for binding in mine if binding.pctx == REST), "")
            owner = next((binding for binding in mine if binding.exclusive), None)
            if not rest and owner is not None:
                rest = owner.set.replace("first:", "rest:")
            if rest and (gpu := self._sizes.get(uuid)) is not None:
                tier = Tier(Kind.REST, int(rest.partition(":")[2]))
                members.append(_member(uuid, REST, tier, gpu))
            for member in members:
                pids = tuple(binding.pid for binding in mine if binding.pctx == member.name)
                found.append(replace(member, bound=pids, note=_note(member, pids, owner)))
        return tuple(found)

    def bindings(self, now: Snapshot) -> tuple[Binding, ...]:
        """Which pCtx each program with a context is on."""
        self.learn(now)
        return bindings(now, self._rules, lambda uuid, percent: self._set_of(uuid, percent))

    def placed(self, now: Snapshot) -> Snapshot:
        """The same with the pCtx of each program."""
        where: dict[tuple[int, int], list[str]] = {}
        for binding in self.bindings(now):
            where.setdefault((binding.pid, binding.start), []).append(binding.pctx)
        programs = tuple(
            replace(program, pctx=",".join(dict.fromkeys(where[program.id]))) if program.id in where else program
            for program in now.programs
        )
        return replace(now, programs=programs)

    def _set_of(self, uuid: str, percent: int) -> str:
        gpu = self._sizes.get(uuid)
        return "" if gpu is None else set_text(of_percent(percent, gpu))

    def to_json(self, now: Snapshot) -> dict[str, Any]:
        """The answer to GET /v1/pool."""
        return {
            "pool": [member.to_json() for member in self.rows(now)],
            "bindings": [asdict(binding) for binding in self.bindings(now)],
            "parked": [
                {"pid": program.id.pid, "state": program.parking.state, "bytes": program.parking.parked_bytes}
                for program in now.programs
                if program.parking is not None and program.parking.state != "home"
            ],
            "kept": [
                {"pid": program.id.pid, "bytes": program.parking.kept_bytes}
                for program in now.programs
                if program.parking is not None and program.parking.kept_bytes
            ],
        }


def exclusive_tier(sms: int, gpu: Gpu) -> Tier:
    """The smallest set of so many SMs that leaves a rest."""
    return Tier(Kind.FIRST, min(gpu.largest, -(-sms // gpu.step) * gpu.step))


def _member(
    uuid: str, name: str, tier: Tier | None, gpu: Gpu | None, *, percent: int | None = None, exclusive: bool = False
) -> Member:
    if tier is None or gpu is None:
        return Member(uuid, name, "", 0, percent, exclusive)
    return Member(uuid, name, set_text(tier), tier.size(gpu.sms), percent, exclusive)


def _note(member: Member, pids: Iterable[int], owner: Binding | None) -> str:
    if member.exclusive:
        return f"PID {', '.join(map(str, pids))} has it to itself" if pids else ""
    if owner is not None and member.name != REST:
        return f"its SMs are {owner.pctx}'s while PID {owner.pid} is bound there: programs run on the rest"
    return ""
