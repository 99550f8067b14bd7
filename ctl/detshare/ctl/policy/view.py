# SPDX-License-Identifier: Apache-2.0
"""From looks at the machine to what policies see: one snapshot for each GPU, tenants that did not change unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from detshare.ctl.backends.spatial.pool import Member
from detshare.ctl.core import classes, snapshot
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.observed import Observed
from detshare.ctl.core.snapshot import Program, State
from detshare.ctl.core.work import Spatial
from detshare.ctl.policy.history import History
from detshare.ctl.policy.types import (
    Action,
    Bind,
    Gate,
    Move,
    PCtx,
    Reflex,
    Shape,
    Slice,
    Snapshot,
    TenantView,
)

__all__ = ["Viewer", "hour_of_day", "in_order", "missing", "pools"]

BUSY_SHARE: Final = 0.005
"""of the last second on the SMs: who has more counts as active where nothing better is known"""
MOST_SHAPES: Final = 15
"""of kernels; graphs are one more"""
ROTATING: Final = frozenset({"kmod", "root", "model"})
"""backends that give turns to the background and know weights and floors"""
DEFAULT_SLICE_US: Final = 2048.0
_LEVEL: Final = 1
_NOBODY: Final = ProcessId(0, 0)
_NO_TENANT: Final = frozenset({State.NOT_UNDERSTOOD, State.NO_CONTEXT})


def hour_of_day(unix: float) -> float:
    """Local time, 0 to 24, to the minute: finer would make each look another one."""
    at = time.localtime(unix)
    return at.tm_hour + at.tm_min / 60


def pools(rows: Iterable[Member]) -> dict[str, tuple[PCtx, ...]]:
    """GPU -> its pool as policies see it."""
    made: dict[str, tuple[PCtx, ...]] = {}
    for row in rows:
        seen = PCtx(row.name, row.sms, row.exclusive, tuple(map(str, row.bound)))
        made[row.gpu] = (*made.get(row.gpu, ()), seen)
    return made


def _shapes(spatial: Spatial) -> tuple[Shape, ...]:
    """What it launches most, by time; graphs, of which no grid is known, as one shape after them."""
    known = [("", each.blocks, each.threads, each.times) for each in spatial.shapes[:MOST_SHAPES]]
    if spatial.graphs is not None:
        known.append(("graph", 0, 0, spatial.graphs))
    # two digits of the count: that one more was timed is no news
    return tuple(
        Shape(name, blocks, threads, int(float(f"{t.count:.2g}")), t.p50_us, t.p90_us, t.p99_us)
        for name, blocks, threads, t in known
    )


def _grids(observed: Observed) -> tuple[Shape, ...]:
    """What it launches most, by number; two digits of it."""
    return tuple(
        Shape("", each.blocks, each.threads, int(float(f"{each.launches:.2g}")), 0.0, 0.0, 0.0)
        for each in observed.grids
    )


def _share(program: Program, gpu: str) -> float:
    """Of one GPU's time, 0 to 1: by the context-switch log where there is one, else by NVML, where it has most."""
    found = next((each.share for each in program.gpu_time if each.gpu == gpu), None)
    return (program.gpu_share or 0.0) if found is None else found


def _usage(program: Program) -> Callable[[float], float]:
    """Seconds -> its share of so many of the newest ones, of the GPU of its on which that is the largest."""
    usages = [_usage_of(program, gpu) for gpu in program.gpus]
    return lambda seconds: max(usage(seconds) for usage in usages)


def _usage_of(program: Program, gpu: str) -> Callable[[float], float]:
    mine = next((each for each in program.gpu_time if each.gpu == gpu), None)
    if mine is None or mine.alone:
        return lambda seconds: _share(program, gpu)
    return mine.lately


def missing(seen: snapshot.Snapshot, backend: str) -> frozenset[str]:
    """Which of MECHANISMS are not there; what programs have to bring counts as there while there are none."""
    found = {"rows"} if backend != "kmod" else set()
    if backend not in ROTATING:
        found.add("floors")
    programs = [each for each in seen.programs if each.state not in _NO_TENANT]
    if programs and not any(each.observed or each.spatial or each.activity for each in programs):
        found.add("launches")
    if programs and not any(each.requests for each in programs):
        found.add("requests")
    return frozenset(found)


def in_order(name: str) -> tuple[int, str]:
    """How tenants of a snapshot are sorted: by PID, so that a snapshot read from a log is equal to what it was."""
    return len(name), name


class Viewer:
    """Remembers what rates and ages need. Not for several threads.

    `hand`: the kinds of actions that a person has decided for a program. `deadlines`: of a request, microseconds.
    """

    def __init__(
        self,
        hand: Callable[[Program], tuple[str, ...]] = lambda program: (),
        deadlines: Mapping[ProcessId, float] | None = None,
        version: Callable[[], int] = lambda: 0,
        backend: str = "",
        mine: Callable[[Program], tuple[str, ...]] = lambda program: program.gpus,
    ) -> None:
        """`version`: another one whenever `hand` or `deadlines` may say something else. `mine`: of a program's GPUs
        those on which it is seen."""
        self._rows, self._floors = backend == "kmod", backend in ROTATING
        self._mine = mine
        self._hand, self._version = hand, version
        self._deadlines = {} if deadlines is None else deadlines
        self._pool: Mapping[str, tuple[PCtx, ...]] = {}
        self._placed: dict[str, dict[str, str]] = {}
        """GPU -> tenant -> pool member"""
        self._touched: set[str] = set()
        """tenants whose views were changed since the look"""
        self._history: dict[ProcessId, History] = {}
        self._views: dict[str, dict[str, TenantView]] = {}
        self.processes: dict[str, ProcessId] = {}
        """name -> the process that it means now"""
        self._gpus: dict[str, tuple[int, str]] = {}
        """UUID -> SMs and lane"""

    def look(self, seen: snapshot.Snapshot, now_us: float, pool: Mapping[str, tuple[PCtx, ...]] | None = None) -> None:
        """Take a look at the machine; `now_us` is the clock of the snapshots, `pool` the members of each GPU's."""
        self._pool = pool or {}
        self._placed = {
            gpu: {name: member.name for member in reversed(members) for name in member.bound}
            for gpu, members in self._pool.items()
        }
        version, now_s = self._version(), now_us / 1e6
        views: dict[str, dict[str, TenantView]] = {gpu.uuid: {} for gpu in seen.gpus}
        tenants = [program for program in seen.programs if program.state not in _NO_TENANT]
        tenants.sort(key=lambda program: program.id)
        self.processes = {str(program.id.pid): program.id for program in tenants}
        self._history = {p.id: self._history.get(p.id) or History() for p in tenants}
        sms: dict[str, int] = {}
        for program in tenants:
            for gpu in program.gpus:
                if program.spatial is not None:
                    sms[gpu] = program.spatial.sms
        for program in tenants:
            history, name = self._history[program.id], str(program.id.pid)
            still = history.calm and history.version == version and name not in self._touched
            if not (still and history.last == program):
                still = False
                history.last, history.version = program, version
            if still:
                history.rest(now_us)
            calm = True
            for gpu in self._mine(program):
                old = self._views.get(gpu, {}).get(name)
                if not (still and old is not None and old.pctx == self._placed.get(gpu, {}).get(name, "")):
                    made = self._view(program, gpu, history, now_us, sms.get(gpu, 0))
                    calm = calm and history.calm
                    old = old if old == made else made
                views.setdefault(gpu, {})[name] = old
            history.calm = history.calm and calm
            history.seen_at = now_s
        self._touched = set()
        self._gpus = {
            gpu: (
                sms.get(gpu, 0),
                "spatial" if mine and all(v.lane == "spatial" for v in mine.values()) else "temporal",
            )
            for gpu, mine in views.items()
        }
        self._views = views

    def _view(self, program: Program, gpu: str, history: History, now_us: float, sms: int) -> TenantView:
        spatial, activity = program.spatial, program.activity
        compute = [tsg for tsg in program.compute if tsg.gpu == gpu]
        slice_us = float(max((tsg.slice_us for tsg in compute), default=0)) or DEFAULT_SLICE_US
        level = next((int(tsg.level) for tsg in compute if tsg.level is not None), _LEVEL)
        shut = program.state in (State.PAUSED, State.GATED)
        share = _share(program, gpu)
        active = share > BUSY_SHARE or any(each.gpu == gpu and each.stalled_s > 0 for each in program.gpu_time)
        launches = graphs = queued = 0
        held_ms = used_us = 0.0
        shapes: tuple[Shape, ...] = ()
        delays = standing = reflex = None
        blocks = 0
        if spatial is not None:
            active, queued, shut = spatial.in_flight > 0, spatial.in_flight, spatial.held
            launches, graphs, held_ms = spatial.launches, spatial.graph_launches, spatial.held_ms
            standing = spatial.idle_sms
            reflex = None if spatial.busy_sms == spatial.idle_sms else spatial.busy_sms
            blocks, shapes = spatial.blocks, _shapes(spatial)
            delays = history.delays(now_us / 1e6, spatial.delays)
        elif activity is not None:
            active = activity.state != "idle" or activity.waiting > 0
            queued, used_us, held_ms = activity.waiting or int(active), float(activity.used_us), activity.wait_ms
            launches = activity.kicks
            shut = "order" in activity.reasons
        elif active:
            queued = 1
        if spatial is None and (observed := program.observed) is not None:
            launches, graphs = observed.launches, observed.graph_launches
            blocks, shapes = observed.blocks, _grids(observed)
        if activity is None:
            used_us = history.used(now_us, _usage(program), open_=not shut)
        rates = history.rates(now_us / 1e6, launches, graphs, held_ms)
        moving: tuple[int, ...] = ()
        if spatial is not None and active:
            moving = (launches, graphs)
        elif activity is not None and activity.waiting:
            moving = (activity.waits,)
        history.calm = not (active or any(rates) or share or program.requests) and delays is None
        setting = classes.CLASSES.get(program.klass or "")
        parking = program.parking if program.parking is not None and program.parking.way == "fast" else None
        requests, floor = program.requests, program.floors.get(gpu, program.floor)
        return TenantView(
            name=str(program.id.pid),
            klass=program.klass or "",
            sms=standing or sms,
            slice_us=slice_us,
            level=int(setting.level) if setting is not None and not compute else level,
            gate_open=not shut,
            active=active,
            queued=queued,
            in_flight_us=history.age(now_us, moving),
            kind="",
            launches=launches,
            lane="spatial" if spatial is not None else "temporal",
            standing_sms=standing,
            reflex_sms=reflex,
            weight=program.weight,
            deadline_us=self._deadlines.get(program.id),
            delay_p50_us=None if delays is None else delays.p50_us,
            delay_p99_us=None if delays is None else delays.p99_us,
            held_share=rates[2],
            launches_per_s=rates[0],
            graph_launches=graphs,
            graph_launches_per_s=rates[1],
            blocks=blocks,
            used_us=used_us,
            shapes=shapes,
            group=program.tenant or program.container,
            pid=program.id.pid,
            command=program.command[:200],
            residence=parking.state if parking is not None else "",
            parkable_bytes=parking.parkable_bytes if parking is not None else 0,
            wants_bytes=parking.wants_bytes if parking is not None else 0,
            idle_us=1e6 * parking.idle_s if parking is not None else 0.0,
            home_us=1e6 * parking.home_s if parking is not None else 0.0,
            copy_us=1e3 * (parking.park_ms + parking.resume_ms) if parking is not None else 0.0,
            by_hand=self._hand(program),
            pctx=self._placed.get(gpu, {}).get(str(program.id.pid), ""),
            floor=None if floor is None else round(100 * floor, 2),
            requests=0 if requests is None else requests.count,
            request_p50_us=0.0 if requests is None else round(1e6 * requests.p50_s, 1),
            request_p99_us=0.0 if requests is None else round(1e6 * requests.p99_s, 1),
            request_window_us=0.0 if requests is None else 1e6 * requests.seconds,
            request_age_us=0.0 if requests is None else 1e6 * requests.age_s,
        )

    def edge(self, name: str, active: bool) -> list[str]:
        """An event said that a tenant began or stopped working: the GPUs on which that is news."""
        changed = []
        for gpu, mine in self._views.items():
            view = mine.get(name)
            if view is not None and view.active != active:
                mine[name] = replace(view, active=active, queued=int(active), in_flight_us=0.0)
                self._touched.add(name)
                changed.append(gpu)
        return changed

    def begin(self, now_us: float, names: Iterable[str]) -> None:
        """A policy begins with these: GPU time counts from here on, however long ago the last look was."""
        for name in names:
            if (history := self._history.get(self.processes.get(name, _NOBODY))) is not None:
                history.rest(now_us)

    def change(self, gpu: str, name: str, **values: object) -> None:
        """What an action did, until the next look shows it."""
        view = self._views.get(gpu, {}).get(name)
        if view is not None:
            self._touched.add(name)
            self._views[gpu][name] = replace(view, **values)  # type: ignore[arg-type]

    def acted(self, gpu: str, action: Action, now_us: float) -> None:
        """What an action did, until the next look shows it."""
        match action:
            case Slice(tenant, slice_us, level):
                self.change(gpu, tenant, slice_us=slice_us, level=level)
            case Bind(tenant, sms):
                self.change(gpu, tenant, standing_sms=sms, sms=sms, pctx="")
            case Move(tenant, pctx):
                self.change(gpu, tenant, pctx=pctx)
            case Gate(tenant, is_open):
                self.change(gpu, tenant, gate_open=is_open)
                if (history := self._history.get(self.processes.get(tenant, _NOBODY))) is not None:
                    history.gate(now_us, open_=is_open)
            case Reflex(tenant, busy_sms):
                self.change(gpu, tenant, reflex_sms=busy_sms)

    def by_name(self) -> Mapping[str, tuple[TenantView, ...]]:
        """GPU -> its tenants."""
        return {gpu: tuple(mine.values()) for gpu, mine in tuple(self._views.items())}

    def gpus(self) -> Iterable[str]:
        """UUIDs of the last look."""
        return tuple(self._views)

    def tenants(self, gpu: str) -> Mapping[str, TenantView]:
        """By name."""
        return self._views.get(gpu, {})

    def snapshot(self, gpu: str, now_us: float, unix: float) -> Snapshot:
        """What a policy sees of one GPU."""
        sms, lane = self._gpus.get(gpu, (0, "temporal"))
        return Snapshot(
            now_us=now_us,
            lane=lane,
            sms=sms,
            tenants=tuple(self._views.get(gpu, {}).values()),
            gpu=gpu,
            hour=hour_of_day(unix),
            pool=self._pool.get(gpu, ()),
            rows=self._rows,
            floors=self._floors,
        )
