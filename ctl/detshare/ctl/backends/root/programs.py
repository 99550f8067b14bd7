# SPDX-License-Identifier: Apache-2.0
"""From openers and what was adopted of them to programs: who owns what, who shares a TSG, in which state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.root.adopt import Adoption
from detshare.ctl.core.driver import Opener, ProcessId, Usage
from detshare.ctl.core.procfs import MPS_COMM
from detshare.ctl.core.snapshot import Kind, Level, Program, State, Tsg


@dataclass(frozen=True, slots=True)
class MpsGroup:
    """Processes whose kernels run in one TSG. `server` owns it; None where it cannot be seen."""

    server: ProcessId | None
    members: frozenset[ProcessId]


def mps_groups(
    openers: list[Opener], adoptions: Mapping[ProcessId, Adoption], owner: Mapping[int, ProcessId]
) -> dict[ProcessId, MpsGroup]:
    """The MPS group of each process that is in one: they share a compute TSG, and one of them says MPS."""
    sharing: dict[tuple[str, str, int], set[ProcessId]] = defaultdict(set)
    for process, adoption in adoptions.items():
        for tsg in adoption.tsgs:
            if tsg.kind is Kind.COMPUTE and owner.get(tsg.client) == process:
                sharing[tsg.gpu, tsg.engine, tsg.tsg_id].add(process)
    comm = {opener.id: opener.comm for opener in openers}
    groups: dict[ProcessId, MpsGroup] = {}
    for members in sharing.values():
        servers = [p for p in members if comm.get(p, "").startswith(MPS_COMM)]
        clients = [p for p in members if adoptions[p].mps]
        if servers or clients:
            others = [p for p in members if not adoptions[p].mps]
            server = servers[0] if servers else (others[0] if others else None)
            groups |= {p: MpsGroup(server, frozenset(members)) for p in members}
    return groups


def at_work_on(tsgs: Iterable[Tsg], opened: Iterable[str]) -> tuple[str, ...]:
    """GPUs (UUIDs) that a program computes on; of one that computes on none, those that it opened."""
    return tuple(dict.fromkeys(t.gpu for t in tsgs if t.kind is Kind.COMPUTE and t.gpu)) or tuple(dict.fromkeys(opened))


def _state(adoption: Adoption, opener: Opener, group: MpsGroup | None, paused: bool, tsgs: tuple[Tsg, ...]) -> State:
    if group is not None:
        return State.MPS_SERVER if group.server == opener.id else State.MPS_CLIENT
    if adoption.mps:
        return State.MPS_CLIENT
    if not tsgs:
        return State.NO_CONTEXT if adoption.understood else State.NOT_UNDERSTOOD
    return State.PAUSED if paused else State.RUNNING


def build(
    opener: Opener,
    adoption: Adoption,
    *,
    job: str,
    owner: Mapping[int, ProcessId],
    group: MpsGroup | None,
    desired: Desired,
    paused: bool,
    usage: Usage,
    uuids: Mapping[int, str],
    level: Callable[[ProcessId, Tsg], Level | None],
) -> Program:
    """The Program of an opener. `paused`: the journal says so; `uuids`: GPU minor -> UUID; `level`: what we gave."""
    process = opener.id
    mine = [t for t in adoption.tsgs if owner.get(t.client) == process]
    tsgs = tuple(replace(t, level=given) if (given := level(process, t)) is not None else t for t in mine)
    notes = list(adoption.notes)
    makers = {owner[c] for _, c in adoption.clients if c in owner} - {process}
    notes += [f"shares descriptors with PID {maker.pid}, which owns what they reach" for maker in sorted(makers)]
    if group is not None and group.members - {process}:
        others = ", ".join(str(p.pid) for p in sorted(group.members - {process}))
        notes.append(f"MPS: one TSG with PID {others}; slices act on all of them, pausing would hang them")
    every = dict.fromkeys([t.gpu for t in tsgs if t.gpu] + [uuids[m] for _, m in opener.device_fds if m in uuids])
    parts = [usage.instance[process.pid, g] for g in every if (process.pid, g) in usage.instance]
    notes += [f"on MIG instance {part.uuid} ({part.profile})" for part in parts]
    memory = {g: usage.memory_bytes[process.pid, g] for g in every if (process.pid, g) in usage.memory_bytes}
    share = [usage.gpu_share[process.pid, g] for g in every if (process.pid, g) in usage.gpu_share]
    return Program(
        id=process,
        command=opener.command,
        user=opener.user,
        container=opener.container,
        job=job,
        state=_state(adoption, opener, group, paused, tsgs),
        tsgs=tsgs,
        gpus=at_work_on(tsgs, every),
        klass=desired.klass,
        weight=desired.weight,
        memory_bytes=sum(memory.values()) if memory else None,
        gpu_memory=memory,
        gpu_share=max(share) if share else None,
        adopted_ms=round(1000 * adoption.seconds, 2) if adoption.seconds else None,
        notes=tuple(dict.fromkeys(notes)),
    )
