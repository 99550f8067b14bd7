# SPDX-License-Identifier: Apache-2.0
"""A policy at work in the simulator: loaded from a file, called at events, its actions checked and carried out."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from detshare.ctl.policy.types import Action, Bind, Gate, Policy, Preempt, Reflex, Slice
from detshare.ctl.sim.errors import SimError

if TYPE_CHECKING:
    from detshare.ctl.sim.engine import Engine
    from detshare.ctl.sim.tenants import Tenant

__all__ = ["Reins", "load_policy"]


def load_policy(path: Path) -> Policy:
    """An object of the one subclass of `Policy` that the file defines; SimError where there is none or it fails."""
    spec = importlib.util.spec_from_file_location(f"detshare_policy_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SimError(f"policy {path}: is no Python file; name a file that defines a subclass of Policy")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SimError(f"policy {path}: cannot be loaded: {type(error).__name__}: {error}") from error
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Policy) and each.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise SimError(f"policy {path}: defines {len(found)} subclasses of Policy; it must define one")
    try:
        made: Policy = found[0]()
    except Exception as error:
        raise SimError(f"policy {path}: {found[0].__name__}() raised {type(error).__name__}: {error}") from error
    return made


class Reins:
    """Calls the hooks of a policy and carries out what it asks for."""

    def __init__(self, policy: Policy, engine: Engine) -> None:
        self._policy, self._engine = policy, engine
        self._tick = policy.tick_us if policy.tick_us > 0 else math.inf
        self.done = 0
        self.refused: list[str] = []
        """one line for each action that was not carried out"""

    def attach(self, tenant: Tenant) -> None:
        """A tenant came."""
        self._ask("on_attach", tenant)

    def launched(self, tenant: Tenant) -> None:
        """An idle tenant got work, or a server another step."""
        self._ask("on_launch", tenant)

    def completed(self, tenant: Tenant) -> None:
        """A run ended."""
        self._ask("on_completion", tenant)

    def due(self, now: float) -> float:
        """Ticks and congestion that are due now; the moment of the next."""
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
        return following

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
            problem = self._carry_out(action)
            if problem is None:
                self.done += 1
            else:
                self.refused.append(f"{self._engine.now:.1f} us: {hook}: {action!r}: {problem}")

    def _carry_out(self, action: Action) -> str | None:
        """None, or why not."""
        if not isinstance(action, Bind | Slice | Gate | Preempt | Reflex):
            return "is no action"
        tenant = next((each for each in self._engine.tenants if each.name == action.tenant), None)
        if tenant is None:
            return "there is no such tenant"
        lane, sms = self._engine.lane, self._engine.gpu.sms
        match action:
            case Bind(sms=wanted):
                if lane.name != "spatial" or not 1 <= wanted <= sms:
                    return f"needs the spatial lane and 1 to {sms} SMs"
                tenant.sms = wanted
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
            case Preempt():
                if not lane.preempt(tenant, self._engine.now):
                    return "needs the temporal lane"
        return None
