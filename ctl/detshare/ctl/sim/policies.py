# SPDX-License-Identifier: Apache-2.0
"""A policy at work in the simulator: loaded from a file, called at events, its actions checked and carried out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy import registry
from detshare.ctl.policy.types import Action, Bind, ClassRow, Gate, Move, Park, Policy, Preempt, Reflex, Slice
from detshare.ctl.sim.errors import SimError

if TYPE_CHECKING:
    from detshare.ctl.sim.engine import Engine
    from detshare.ctl.sim.tenants import Tenant

__all__ = ["AT_ONCE", "DAEMON", "Pace", "Reins", "load_policy"]


def load_policy(spec: str | Path, params: Mapping[str, str] | None = None) -> Policy:
    """A new policy object, by its name or its file, as a daemon loads it; SimError where it cannot be had."""
    try:
        return registry.load(str(spec), params).policy
    except ControlError as error:
        raise SimError(str(error)) from error


@dataclass(frozen=True)
class Pace:
    """How fast a policy hears and acts. Times in microseconds."""

    delay_us: float = 0.0
    """from an event to its actions in force"""
    between_us: float = 0.0
    """at least so long between two on_launch of one tenant, and between two on_completion; what comes sooner is lost"""
    steps: bool = True
    """on_launch for each step of a server; else only when an idle tenant gets work, on_completion when it has none"""


AT_ONCE: Final = Pace()
DAEMON: Final = Pace(1000.0, 100_000.0, False)
"""what a daemon gives: edges, ten a second at most, and a call of the driver to carry out"""


class Reins:
    """Calls the hooks of a policy and carries out what it asks for."""

    def __init__(self, policy: Policy, engine: Engine, pace: Pace = AT_ONCE) -> None:
        self._policy, self._engine, self._pace = policy, engine, pace
        self._tick = policy.tick_us if policy.tick_us > 0 else math.inf
        self._told: dict[tuple[str, str], float] = {}
        """when a hook was called last for a tenant"""
        self._waiting: deque[tuple[float, str, Action]] = deque()
        self.done = 0
        self.refused: list[str] = []
        """one line for each action that was not carried out"""

    def attach(self, tenant: Tenant) -> None:
        """A tenant came."""
        self._ask("on_attach", tenant)

    def launched(self, tenant: Tenant, was_idle: bool) -> None:
        """An idle tenant got work, or a server another step."""
        if (was_idle or self._pace.steps) and self._due("on_launch", tenant):
            self._ask("on_launch", tenant)

    def completed(self, tenant: Tenant) -> None:
        """A run ended."""
        if (self._pace.steps or not tenant.queue) and self._due("on_completion", tenant):
            self._ask("on_completion", tenant)

    def pressed(self, tenant: Tenant) -> None:
        """It waits for GPU memory."""
        self._ask("on_memory_pressure", tenant)

    def _due(self, hook: str, tenant: Tenant) -> bool:
        now, key = self._engine.now, (hook, tenant.name)
        if self._pace.between_us and now - self._told.get(key, -math.inf) < self._pace.between_us:
            return False
        self._told[key] = now
        return True

    def due(self, now: float) -> float:
        """Ticks, congestion and delayed actions that are due now; the moment of the next."""
        if now >= self._tick:
            self._tick = max(self._tick + self._policy.tick_us, math.nextafter(now, math.inf))
            self._ask("on_tick", None)
        following = self._tick
        for tenant in self._engine.tenants:
            if not tenant.congestion_us or not tenant.queue or tenant.congested is tenant.queue[0]:
                continue
            limit = tenant.queue[0].asked + tenant.congestion_us
            if limit <= now:
                tenant.congested = tenant.queue[0]
                self._ask("on_congestion", tenant)
            else:
                following = min(following, limit)
        while self._waiting and self._waiting[0][0] <= now:
            _, hook, action = self._waiting.popleft()
            self._try(hook, action)
        return min(following, self._waiting[0][0]) if self._waiting else following

    def _ask(self, hook: str, tenant: Tenant | None) -> None:
        arguments = () if tenant is None else (tenant.name,)
        try:
            actions: Iterable[Action] = list(getattr(self._policy, hook)(self._engine.snapshot(), *arguments) or ())
        except Exception as error:
            name = type(self._policy).__name__
            raise SimError(
                f"policy {name}: {hook} raised {type(error).__name__}: {error}; mend it and run again"
            ) from error
        for action in actions:
            if self._pace.delay_us:
                self._waiting.append((self._engine.now + self._pace.delay_us, hook, action))
            else:
                self._try(hook, action)

    def _try(self, hook: str, action: Action) -> None:
        problem = self._carry_out(action)
        if problem is None:
            self.done += 1
        else:
            self.refused.append(f"{self._engine.now:.1f} us: {hook}: {action!r}: {problem}")

    def _carry_out(self, action: Action) -> str | None:
        """None, or why not."""
        if isinstance(action, ClassRow):
            return (
                self._engine.rows.write(action) if self._engine.lane.name == "temporal" else "needs the temporal lane"
            )
        if not isinstance(action, Bind | Move | Slice | Gate | Preempt | Park | Reflex):
            return "is no action"
        tenant = next((each for each in self._engine.tenants if each.name == action.tenant), None)
        if tenant is None:
            return "there is no such tenant"
        lane, sms = self._engine.lane, self._engine.gpu.sms
        match action:
            case Bind(sms=wanted):
                if lane.name != "spatial" or not 1 <= wanted <= sms:
                    return f"needs the spatial lane and 1 to {sms} SMs"
                self._leave(tenant)
                tenant.sms = wanted
            case Move(pctx=name):
                return self._move(tenant, name)
            case Reflex(busy_sms=wanted):
                if lane.name != "spatial" or (wanted is not None and not 0 <= wanted <= sms):
                    return f"needs the spatial lane and 0 to {sms} SMs"
                tenant.reflex = wanted
            case Slice(slice_us=wanted, level=level):
                if lane.name != "temporal" or not 1 <= wanted <= 100_000_000 or level not in (0, 1, 2):
                    return "needs the temporal lane, 1 us to 100 s and a level of 0 to 2"
                tenant.slice_us, tenant.level = wanted, level
            case Gate(open=wanted):
                if lane.name == "mps":
                    return "MPS without the runtime has no gates"
                tenant.gate_open = wanted
            case Park(room_for=other):
                if self._engine.memory is None:
                    return "no tenant has memory that could leave"
                return self._engine.memory.park(tenant, other, self._engine.now)
            case Preempt():
                if not lane.preempt(tenant, self._engine.now):
                    return "needs the temporal lane"
        return None

    def _leave(self, tenant: Tenant) -> None:
        member = self._engine.pool.get(tenant.pctx)
        if member is not None:
            bound = tuple(each for each in member.bound if each != tenant.name)
            self._engine.pool[member.name] = replace(member, bound=bound)
        tenant.pctx = ""

    def _move(self, tenant: Tenant, name: str) -> str | None:
        member = self._engine.pool.get(name)
        if self._engine.lane.name != "spatial" or member is None:
            return (
                f"needs the spatial lane and a member of the pool ({', '.join(self._engine.pool) or 'which is empty'})"
            )
        if member.exclusive and {*member.bound} - {tenant.name}:
            return f"{name} is exclusive, and {member.bound[0]} is on it"
        self._leave(tenant)
        self._engine.pool[name] = replace(member, bound=(*self._engine.pool[name].bound, tenant.name))
        tenant.pctx, tenant.sms = name, member.sms
        return None
