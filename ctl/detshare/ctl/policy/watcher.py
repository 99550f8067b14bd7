# SPDX-License-Identifier: Apache-2.0
"""From looks and events to hooks that are to be called."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from detshare.ctl.core import snapshot
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.policy.edges import Edges
from detshare.ctl.policy.types import PCtx, TenantView
from detshare.ctl.policy.view import Viewer

__all__ = ["Due", "Watcher"]

CONGESTION_US: Final = 100_000.0
"""of a tenant without a deadline"""


class Due(NamedTuple):
    """A hook that is to be called."""

    gpu: str
    hook: str
    tenant: str | None
    since: float | None
    """seconds: since when it was known; None: that does not count"""


class Watcher:
    """For the engine's thread, but for `edges.hear`."""

    def __init__(
        self,
        viewer: Viewer,
        pool: Callable[[snapshot.Snapshot], Mapping[str, tuple[PCtx, ...]]],
        clock: Callable[[], float],
    ) -> None:
        self._viewer, self._pool, self._clock = viewer, pool, clock
        self.edges = Edges()
        self.calls: deque[Due] = deque()
        self._known: dict[str, dict[str, ProcessId]] = {}
        self._congested: set[tuple[str, str, float]] = set()

    def look(self, seen: snapshot.Snapshot, now: float) -> None:
        """Who came and went, who began and stopped to work, who waits too long."""
        before = {gpu: dict(self._viewer.tenants(gpu)) for gpu in self._viewer.gpus()}
        self._viewer.look(seen, now * 1e6, self._pool(seen))
        now = self._clock()  # who came and went is known from here on
        processes = self._viewer.processes
        known: dict[str, dict[str, ProcessId]] = {}
        for gpu in {*before, *self._viewer.gpus()}:
            mine, old, was = self._viewer.tenants(gpu), before.get(gpu, {}), self._known.get(gpu, {})
            known[gpu] = current = {name: processes[name] for name in mine}
            same = current == was  # nearly always: nobody of a thousand has to be compared one by one
            for name in () if same else was:
                if current.get(name) != was[name]:
                    self.calls.append(Due(gpu, "on_detach", name, now))
                    self._forget(name)
            for name, view in mine.items():
                last = old.get(name)
                if not same and was.get(name) != current[name]:
                    self.calls.append(Due(gpu, "on_attach", name, now))
                    if view.active:
                        self._edge(gpu, name, True, now)
                elif last is not None and last is not view and last.active != view.active:
                    self._edge(gpu, name, view.active, now)
                if view.active:
                    self._congestion(gpu, view, now)
                if view.wants_bytes:
                    self.calls.append(Due(gpu, "on_memory_pressure", name, None))
        self._known = known

    def drop(self, needless: Callable[[Due], bool]) -> None:
        """These hooks are not called any more."""
        kept = [each for each in self.calls if not needless(each)]
        self.calls.clear()
        self.calls.extend(kept)

    def _forget(self, name: str) -> None:
        self.edges.forget(name)
        self._congested = {key for key in self._congested if key[1] != name}

    def _congestion(self, gpu: str, view: TenantView, now: float) -> None:
        if view.in_flight_us <= (view.deadline_us or CONGESTION_US):
            return
        key = (gpu, view.name, round((now * 1e6 - view.in_flight_us) / 1000))
        if key not in self._congested:
            self._congested = {each for each in self._congested if each[:2] != key[:2]} | {key}
            self.calls.append(Due(gpu, "on_congestion", view.name, now))

    def take_edges(self, now: float) -> None:
        """What events said since the last time."""
        for name, active, since in self.edges.take(now):
            for gpu in self._viewer.edge(name, active):
                self._edge(gpu, name, active, since)

    def _edge(self, gpu: str, name: str, active: bool, since: float) -> None:
        self.edges.told(name, active, self._clock())
        self.calls.append(Due(gpu, "on_launch" if active else "on_completion", name, since))
