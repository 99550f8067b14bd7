# SPDX-License-Identifier: Apache-2.0
"""Who takes part in the turns of a GPU: background programs by tenant, and the foreground that they make room for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.root.turns.rotation import Tenant
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.gputime import Run
from detshare.ctl.core.snapshot import Program, State, Tsg

RANKS: Final[Mapping[str, int]] = {"high": 4, "normal": 3, "low": 2, "idle": 1}
WEIGHTED_RANK: Final = 3
"""a program with a weight is an equal of those at `normal`"""
BACKGROUND_RANK: Final = 2
"""from here down a program is background whoever else is there"""


@dataclass(frozen=True, slots=True)
class Member:
    """A background program on one GPU."""

    process: ProcessId
    tenant: str
    gpu: str
    rank: int
    weight: int
    floor: float
    tsgs: tuple[Tsg, ...]
    """its compute TSGs there; an MPS client's are its server's"""
    fixed: bool = False
    """an MPS server or a client of one: it is never switched off"""
    apart: Mapping[str, float] = field(default_factory=dict, hash=False)
    """GPU -> what its floor is there, where that GPU has one of its own for it"""

    def has_more(self, before: Member | None) -> bool:
        """Whether it has made channels since."""
        return bool(self._channels() - (before._channels() if before is not None else set()))

    def _channels(self) -> set[tuple[int, int]]:
        """By client, too: handles of one are those of the next."""
        return {(t.client, c) for t in self.tsgs for c in t.channels}


def tenant_of(members: Iterable[Member]) -> Tenant:
    """Programs of one tenant have their turn together: with the highest rank, weight and floor that one of them has.

    The floor is the highest on each of its GPUs, by the floors of that GPU.
    """
    group = list(members)
    gpus = frozenset(m.gpu for m in group)
    named = {gpu for m in group for gpu in m.apart} & gpus
    return Tenant(
        group[0].tenant,
        gpus,
        max(m.rank for m in group),
        max(m.weight for m in group),
        max(m.floor for m in group),
        {gpu: max(m.apart.get(gpu, m.floor) for m in group) for gpu in named},
    )


def by_program(runs: Iterable[Run], members: Collection[int]) -> dict[int, list[Run]]:
    """The runs of each member, PID -> runs in their order."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        pid = run[0]  # an index takes a third of an attribute's time
        if pid in members:
            found.setdefault(pid, []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class Cast:
    """All who take part: background, and per GPU the programs that are not."""

    background: tuple[Member, ...]
    foreground: Mapping[str, tuple[Program, ...]]
    strangers: frozenset[ProcessId] = frozenset()
    """those of the foreground that nobody manages"""


def rank_of(desired: Desired) -> int | None:
    """The rank of a program by what was asked for it; None: it takes no part."""
    if desired.klass is not None:
        return RANKS.get(desired.klass)
    return WEIGHTED_RANK if desired.weight is not None else None


def floor_of(desired: Desired, floors: Mapping[str, float]) -> float:
    """Its own floor, else its class's; a program with a weight and no class is an equal of those at `normal`."""
    if desired.floor is not None:
        return desired.floor
    return floors.get(desired.klass or "normal", 0.0)


def apart_of(desired: Desired, apart: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """GPU -> its floor there, of GPUs that have one of their own for its class; its own floor holds on each."""
    if desired.floor is not None:
        return {}
    klass = desired.klass or "normal"
    return {gpu: floors[klass] for gpu, floors in apart.items() if klass in floors}


def cast(
    programs: Iterable[Program], desired_state: Mapping[ProcessId, Desired], tenants: Mapping[ProcessId, str],
    floors: Mapping[str, float], apart: Mapping[str, Mapping[str, float]] | None = None,
) -> Cast:  # fmt: skip
    """Sort programs by GPU: background is whoever ranks below the highest there, `low` and `idle` in any case.

    `desired_state`, `tenants`: of an MPS client those of its server, whose work the log shows under a client's PID.
    `floors`: of classes; `apart`: those of GPUs that have some of their own.
    """
    by_gpu: dict[str, list[Program]] = defaultdict(list)
    for program in programs:
        for gpu in dict.fromkeys(t.gpu for t in program.compute):
            by_gpu[gpu].append(program)
    background: list[Member] = []
    foreground: dict[str, tuple[Program, ...]] = {}
    strangers: set[ProcessId] = set()
    for gpu, present in by_gpu.items():
        ranks = {p.id: rank_of(desired_state.get(p.id, Desired())) for p in present}
        top = max((rank for rank in ranks.values() if rank is not None), default=0)
        behind = [p for p in present if (rank := ranks[p.id]) is not None and rank < max(top, BACKGROUND_RANK + 1)]
        foreground[gpu] = tuple(p for p in present if p not in behind and p.state is not State.PAUSED)
        strangers |= {p.id for p in foreground[gpu] if ranks[p.id] is None}
        for program in behind:
            if program.state is State.PAUSED:
                continue
            desired, rank = desired_state.get(program.id, Desired()), ranks[program.id]
            assert rank is not None
            background.append(
                Member(
                    program.id,
                    tenants.get(program.id, str(program.id.pid)),
                    gpu,
                    rank,
                    desired.weight or 1,
                    floor_of(desired, floors),
                    tuple(t for t in program.compute if t.gpu == gpu and program.state is not State.MPS_CLIENT),
                    fixed=program.state in (State.MPS_SERVER, State.MPS_CLIENT),
                    apart=apart_of(desired, apart or {}),
                )
            )
    return Cast(tuple(background), foreground, frozenset(strangers))
