# SPDX-License-Identifier: Apache-2.0
"""``tpot-first``: the next token of who decodes goes before the first token of who waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from detshare.ctl.policy.shipped.asked import Asked
from detshare.ctl.policy.shipped.decoding import Decoding
from detshare.ctl.policy.types import Action, Bind, Policy, Preempt, Slice, Snapshot, TenantView

__all__ = ["TpotFirst"]

LESS: Final = 0.7
MORE: Final = 1.15
"""a look at tokens that come too late, or early enough, changes the part of those in prefill by these"""
EARLY: Final = 0.85
"""of the time allowed: below it there is room for more prefill"""
MOST: Final = 2.0
"""times the decoder's slice: its level gives it more turns than prefill has"""
ENDLESS: Final = 10.0  # times the patience: who works longer without a pause is no prefill


class TpotFirst(Policy):
    """Rule: who decodes has long slices on the highest level; who is in prefill beside it gets what tokens leave over.

    Phases are recognised from launches (phases.py); a training without a class counts as in prefill. A decoder launches
    a graph for each token of its batch, so the time between two is measured ten times a second. While it is above
    `margin` of `tpot_ms` the slices of those in prefill shrink from look to look, down to `shortest_us`; while it is
    well below they grow again, at most to twice those of the decoder, `decode_us`.
    In the spatial lane SMs do, at most to `prefill_percent`. A prefill older than `patience_ms` gets back what it had;
    ten times that is none. A decoder without graphs cannot be timed: beside it those in prefill have a quarter.

    Source: TPOT-First of the DetShare paper (arXiv 2603.15042) in words; recognition and controller are ours.
    Limits: prefill and decode of one process take turns by themselves: there only others can make way. Launches are
    counted where the runtime or eBPF sees them. A server that prefills with graphs looks as if it decoded. Who was
    given a class, weight or slice by hand keeps it in the temporal lane.
    """

    tick_us = 100_000.0
    lacks = {"launches": "nobody sees launches (daemon.launches = true makes eBPF do so): no phase is known"}

    @dataclass(frozen=True)
    class Params:
        """Times in the unit that their name ends with. margin: of the limit, for batches grow between two looks."""

        tpot_ms: float = 50.0
        margin: float = 0.9
        decode_us: float = 20_000.0
        shortest_us: float = 1000.0
        patience_ms: float = 2000.0
        linger_ms: float = 1000.0
        prefill_percent: float = 50.0

        def __post_init__(self) -> None:
            if self.tpot_ms <= 0 or not 0 < self.margin <= 1:
                raise ValueError("tpot_ms must be above 0, margin above 0 and at most 1")
            if not 200 <= self.shortest_us <= self.decode_us <= 1_000_000:
                raise ValueError("shortest_us must be at least 200, decode_us at least that and at most 1000000")
            if self.patience_ms <= 0 or self.linger_ms < 0 or not 0 < self.prefill_percent <= 100:
                raise ValueError("patience_ms and prefill_percent (at most 100) must be above 0, linger_ms at least 0")

    def __init__(self, params: Params | None = None) -> None:
        super().__init__(params)
        self._asked = Asked()
        self._gpus: defaultdict[str, Decoding] = defaultdict(Decoding)

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Nothing is known of it, or any more."""
        self._gpus[now.gpu].forget(tenant)
        if not self._elsewhere(tenant):
            self._asked.forget(tenant)
        return ()

    on_detach = on_attach

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """Another phase, another balance."""
        view = now.tenant(tenant)
        return self._balance(now) if view is not None and self._gpus[now.gpu].look(now, view) else ()

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """Who does what, how fast tokens come, who waited too long, who is at rest."""
        for view in now.tenants:
            self._gpus[now.gpu].look(now, view)
        self._adjust(now)
        return self._balance(now)

    def phase(self, now: Snapshot, tenant: str) -> str:
        """Of a tenant on a GPU; empty where it has none."""
        return self._gpus[now.gpu].phase.get(tenant, "")

    def _elsewhere(self, tenant: str) -> bool:
        """Whether it is steered on some GPU: what is set for a program holds on all of its."""
        return any(tenant in each.steered for each in self._gpus.values())

    def _adjust(self, now: Snapshot) -> None:
        here = self._gpus[now.gpu]
        worst = here.slowest(now)
        allowed = self.params.margin * self.params.tpot_ms * 1000
        if worst > allowed:
            here.part = max(self.params.shortest_us / self.params.decode_us, here.part * LESS)
        elif 0 < worst < EARLY * allowed and any(each.active and here.inside(each) for each in now.tenants):
            here.part = min(MOST, here.part * MORE)

    def _balance(self, now: Snapshot) -> Iterator[Action]:
        here = self._gpus[now.gpu]
        decoders = here.decoders(now.now_us - self.params.linger_ms * 1000)
        busy = bool(decoders) and any(map(here.inside, now.tenants))
        part = here.part if any(each.graph_launches for each in now.tenants if each.name in decoders) else 0.25
        for view in now.tenants:
            lane = now.lane_of(view)
            if busy and lane == "temporal" and view.name in decoders:
                here.steered.add(view.name)
                yield from self._asked.put(view, Slice(view.name, self.params.decode_us, 2, "decodes: goes first"))
            elif not busy or not here.inside(view):
                yield from self._back(now, view, "prefill and decode are not beside each other")
            elif 1 <= view.in_flight_us / (1000 * self.params.patience_ms) < ENDLESS:
                yield from self._back(now, view, f"in prefill for {view.in_flight_us / 1e6:.1f} s: long enough")
            elif lane == "temporal":
                here.steered.add(view.name)
                yield from self._shrink(view, part, f"{', '.join(sorted(decoders))} decodes: {part:.0%} for prefill")
            elif lane == "spatial":
                here.steered.add(view.name)
                sms = max(1, int(now.sms * self.params.prefill_percent / 100 * min(1.0, part)))
                yield from self._asked.put(view, Bind(view.name, sms, f"{part:.0%} beside who decodes"))

    def _back(self, now: Snapshot, view: TenantView, why: str) -> Iterator[Action]:
        self._gpus[now.gpu].steered.discard(view.name)
        if not self._elsewhere(view.name):
            yield from self._asked.back(view, why)

    def _shrink(self, view: TenantView, part: float, why: str) -> Iterator[Action]:
        slice_us = max(self.params.shortest_us, round(part * self.params.decode_us, -2))
        changed = self._asked.put(view, Slice(view.name, slice_us, 1, why))
        yield from changed
        if changed and view.active and slice_us < view.slice_us:
            yield Preempt(view.name, why)
