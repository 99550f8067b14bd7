# SPDX-License-Identifier: Apache-2.0
"""The binding table: which pCtx each program is on, as boards and kernel say it; so it survives whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core import config
from detshare.ctl.core.snapshot import Program, Snapshot

__all__ = ["OTHER", "REST", "Binding", "bindings"]

REST: Final = "rest"
"""in place of a shared pCtx, for who runs on what an exclusive one, or a reserve, leaves"""
OTHER: Final = ""
"""a share of its own, that is none of the pool"""


@dataclass(frozen=True, slots=True)
class Binding:
    """One program on one GPU."""

    gpu: str
    pid: int
    start: int
    pctx: str
    lane: str
    """spatial: a set of SMs; temporal: a ceiling, whichever SMs these are"""
    set: str
    """full, first:32, rest:32; empty in the temporal lane"""
    exclusive: bool = False


def bindings(
    now: Snapshot, rules: config.Pool, set_of: Callable[[str, int], str]
) -> tuple[Binding, ...]:
    """`set_of`: GPU and percent to the set of SMs that this is there; empty where that is not known."""
    made = []
    for program in now.programs:
        for uuid in program.gpus:
            if program.spatial is not None:
                made.append(_spatial(program, uuid, rules, set_of))
            elif program.compute:
                percent = 100 if program.activity is None else program.activity.ceiling or 100
                name = f"{percent}%" if percent in rules.tiers else OTHER
                made.append(Binding(uuid, *program.id, name, "temporal", ""))
    return tuple(made)


def _spatial(program: Program, uuid: str, rules: config.Pool, set_of: Callable[[str, int], str]) -> Binding:
    spatial = program.spatial
    assert spatial is not None
    name = OTHER
    if spatial.exclusive:
        name = spatial.exclusive
    elif spatial.idle_set.startswith("rest:"):
        name = REST
    else:
        wanted = 100 if spatial.percent is None else spatial.percent
        first = [wanted] if wanted in rules.tiers else []
        name = next((f"{each}%" for each in (*first, *rules.tiers) if set_of(uuid, each) == spatial.idle_set), OTHER)
    return Binding(uuid, *program.id, name, "spatial", spatial.idle_set, bool(spatial.exclusive))
