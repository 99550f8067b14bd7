# SPDX-License-Identifier: Apache-2.0
"""What people are told of a rotation: who holds the turn, who waits, for how long."""

from __future__ import annotations

from detshare.ctl.backends.root.turns.foreground import Foreground
from detshare.ctl.backends.root.turns.members import Member
from detshare.ctl.backends.root.turns.rotation import Rotation, turn_order
from detshare.ctl.core.gputime import Mode, Place, Schedule, Standing

__all__ = ["place", "schedule"]


def schedule(gpu: str, rotation: Rotation, fore: Foreground, now: float, slice_us: int) -> Schedule:
    """The rotation of a GPU. `slice_us`: what its holder's slice is."""
    states = {k: s for k, s in rotation.states.items() if gpu in s.tenant.gpus}
    grant = next((rotation.grants[k] for k in states if k in rotation.grants), None)
    order = _order(rotation, gpu)
    alone = len(states) < 2 and not fore.full
    return Schedule(
        gpu=gpu,
        mode=Mode.WINDOWS if fore.full else (Mode.FREE if alone else Mode.TURNS),
        pattern=fore.pattern,
        holder=grant.key if grant is not None else "",
        next=order[0] if order else "",
        left_s=round(max(0.0, grant.until - now), 3) if grant is not None and order else None,
        slice_us=slice_us,
        gap_us=round(fore.gap_us, 1),
        floor=max((s.tenant.floor_on(gpu) for s in states.values()), default=0.0),
        why=fore.why,
    )


def place(member: Member, rotation: Rotation, fore: Foreground, now: float) -> Place:
    """A program's place in the rotation of its GPU. `fore`: that GPU's foreground."""
    if member.fixed:
        return Place(member.gpu, member.tenant, Standing.HOLDS)
    uses = member.gpu in rotation.states[member.tenant].tenant.gpus
    standing = rotation.standing(member.tenant) if uses else Standing.RESTS
    wait = _wait(member, rotation, fore, now) if standing is Standing.WAITS else None
    return Place(member.gpu, member.tenant, standing, wait)


def _order(rotation: Rotation, gpu: str) -> list[str]:
    """Tenants that wait for a GPU, the next one first."""
    states = rotation.states
    found = [k for k, s in states.items() if gpu in s.tenant.gpus and not s.rests]
    waiting = [key for key in found if key not in rotation.grants]
    return sorted(waiting, key=lambda k: (-states[k].tenant.rank, turn_order(states[k], rotation.now)))


def _wait(member: Member, rotation: Rotation, fore: Foreground, now: float) -> float | None:
    order, states = _order(rotation, member.gpu), rotation.states
    if fore.full or member.tenant not in order:
        return None
    held = [g.until for k, g in rotation.grants.items() if member.gpu in states[k].tenant.gpus]
    before = order[: order.index(member.tenant)]
    left = max((until - now for until in held), default=0.0)
    return round(max(0.0, left) + sum(rotation.length(states[k]) for k in before), 3)
