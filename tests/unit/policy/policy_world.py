# SPDX-License-Identifier: Apache-2.0
"""A machine in memory that does the verbs of a policy, and an engine whose turns a test makes itself."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from detshare.ctl.backends.root.turns.floors import Floors
from detshare.ctl.core import verbs
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Change, ClassInfo, Event, Kind, Level, Outcome, Program, Skip, State, Tsg
from detshare.ctl.core.snapshot import Snapshot as Look
from detshare.ctl.core.work import Activity, Spatial
from detshare.ctl.policy.apply import Request
from detshare.ctl.policy.decisions.log import Log
from detshare.ctl.policy.engine import Engine
from detshare.ctl.policy.ledger import Ledger
from detshare.ctl.policy.registry import Loaded
from detshare.ctl.policy.types import Action, PCtx, Policy, Slice, Snapshot, TenantView

GPU = "GPU-00000000-1111-2222-3333-444444444444"


def program(pid: int, command: str = "train.py", *, busy: bool = False, lane: str = "temporal", **more) -> Program:
    tsg = Tsg(GPU, 5, 0xC1D00001, pid, 1, 2, 3, Kind.COMPUTE, "GR0", (1,), (), 2048)
    spatial = None
    if lane == "spatial":
        spatial = Spatial(
            132, "all 132 SMs", "held", 132, None, None, False, False, 2, True, 0, 0, 0, 0, int(busy), 0.0, 0
        )
    return Program(
        ProcessId(pid, pid * 10),
        command,
        "ann",
        "",
        State.SPATIAL if spatial else State.RUNNING,
        () if spatial else (tsg,),
        (GPU,),
        gpu_share=0.5 if busy else 0.0,
        spatial=spatial,
        **more,
    )


def activity(state: str, **more) -> Activity:
    return Activity(state, **more)


class World:
    """`performed`: verbs that the engine asked for; `refuse`: verbs that fail, with why."""

    def __init__(
        self, run_dir: Path, programs: Iterable[Program] = (), *, backend: str = "model", limit_s: float = 0.5
    ):
        run_dir.mkdir()
        self.run_dir = run_dir
        self.programs = {each.id.pid: each for each in programs}
        self.classes: list[ClassInfo] = []
        self.floors = Floors(run_dir, "model") if backend in ("root", "model") else None
        self.pool: tuple[PCtx, ...] = ()
        self.performed: list[Request] = []
        self.refuse: dict[str, str] = {}
        self.told: list[Event] = []
        self.attended: list[bool] = []
        """whether launches are to be heard at once, each time that changed"""
        self.gpus: tuple[Gpu, ...] = (Gpu(GPU, 0, "Fake H100", "0000:01:00.0", 80 << 30),)
        self.now = 1000.0
        self._options = (backend, limit_s)
        self.engine = self._make()

    def _make(self) -> Engine:
        backend, limit_s = self._options
        log = Log(self.run_dir / "decisions")
        log.open()
        return Engine(
            self._perform,
            self.told.append,
            backend=backend,
            decisions=log,
            ledger=Ledger(self.run_dir / "policy.json"),
            pool=lambda seen: {GPU: self.pool},
            attend=self.attended.append,
            limit_s=limit_s,
            clock=lambda: self.now,
        )

    def again(self) -> None:
        """As after kill -9: what was not written is lost, what was set stands."""
        self.engine.decisions.close()
        self.engine = self._make()

    def close(self) -> None:
        self.engine.stop()

    def _perform(self, requests: Sequence[Request]) -> list[Outcome | ControlError]:
        made: list[Outcome | ControlError] = []
        for each in requests:
            self.performed.append(each)
            if each.verb in self.refuse:
                made.append(ControlError(each.verb, self.refuse[each.verb], "nothing"))
                break
            made.append(self.do(each.verb, each.who, **each.args))
        return made

    def do(self, verb: str, who: str, **args) -> Outcome:
        """Carry out a verb on the programs, as a backend would."""
        verbs.request(verb, who, **args)  # BadRequest where no backend would be asked it
        if verb == "set-class":
            if self.floors is not None:
                numbers = {gpu.minor: gpu.uuid for gpu in self.gpus}
                floor = args.get("floor_permille")
                self.floors.set(who, None if floor is None else floor / 1000, numbers.get(args.get("gpu"), ""))
            return Outcome(verb, (Change(0, note=str(args)),))
        pid = int(who)
        if pid not in self.programs:
            return Outcome(verb, skipped=(Skip(pid, f"there is no process {pid}"),))
        old = self.programs[pid]
        match verb:
            case "set-slice":
                level = Level[args["level"].upper()]
                new = replace(old, tsgs=tuple(replace(t, slice_us=args["slice_us"], level=level) for t in old.tsgs))
            case "pause" | "hold":
                new = replace(old, state=State.GATED) if old.spatial is None else _spatial(old, held=True)
            case "resume":
                new = replace(old, state=State.RUNNING) if old.spatial is None else _spatial(old, held=False)
            case "release":
                back = tuple(replace(t, slice_us=2048, level=None) for t in old.tsgs)
                held = State.RUNNING if old.state is State.GATED else old.state  # a release opens gates, too
                new = replace(old, klass=None, tsgs=back, state=held)
            case "set-priority":
                new = replace(old, klass=args["class"])
            case "set-sm":
                percent = args["percent"]
                new = _spatial(old, percent=None if percent == 100 else percent, idle_sms=132 * percent // 100)
            case "bind":
                self.pool = tuple(
                    replace(m, bound=tuple({*m.bound, who} if m.name == args["pctx"] else {*m.bound} - {who}))
                    for m in self.pool
                )
                new = old
            case _:
                new = old
        self.programs[pid] = new
        return Outcome(verb, (Change(pid),))

    # -- driving --------------------------------------------------------------------------------------------------

    def look(self, after: float = 0.0) -> None:
        """A look at the machine, and a turn."""
        self.now += after
        seen = Look("model", "unit", "580.0", self.now, 0.001, self.gpus, tuple(self.programs.values()))
        floors = self.floors.rows(self.gpus) if self.floors is not None else ()
        self.engine.look(replace(seen, classes=tuple(self.classes), floors=floors))
        self.turn()

    def turn(self, after: float = 0.0) -> None:
        self.now += after
        self.engine.turn()
        while self.engine._calls:
            self.engine.turn()

    def busy(self, pid: int, busy: bool = True) -> None:
        self.programs[pid] = replace(self.programs[pid], gpu_share=0.5 if busy else 0.0)

    def hear(self, kind: str, pid: int) -> None:
        self.engine.hear(Event(time.time(), kind, pid, ""))

    def use(self, policy: Policy, name: str = "mine", **params: str) -> None:
        """Let this object decide."""
        self.engine._ask(lambda: self.engine._heirs.switch(Loaded(policy, name, params, "a test")))
        self.turn()

    def choose(self, name: str, **params: str) -> None:
        self.engine.choose(name, params)
        self.turn()

    def slices(self) -> dict[int, int]:
        return {pid: each.tsgs[0].slice_us for pid, each in self.programs.items() if each.tsgs}

    def verbs(self) -> list[tuple[str, str]]:
        return [(each.verb, each.who) for each in self.performed]


def _spatial(old: Program, **changes) -> Program:
    assert old.spatial is not None, f"PID {old.id.pid} is not in the spatial lane"
    return replace(old, spatial=replace(old.spatial, **changes))


def view(name: str, **more) -> TenantView:
    """A tenant as a policy sees it."""
    values = {
        "klass": "normal",
        "sms": 132,
        "slice_us": 2048.0,
        "level": 1,
        "gate_open": True,
        "active": False,
        "queued": 0,
        "in_flight_us": 0.0,
        "kind": "",
        "launches": 0,
        "lane": "temporal",
    }
    return TenantView(name=name, **values | more)


def snapshot(
    *tenants: TenantView, now_us: float = 0.0, lane: str = "temporal", pool: tuple[PCtx, ...] = ()
) -> Snapshot:
    return Snapshot(now_us, lane, 132, tenants, gpu=GPU, pool=pool)


def shorten(now: Snapshot, tenant: str) -> list[Action]:
    return [Slice(tenant, 300.0, 0, "it may wait")]


class Scripted(Policy):
    """Does what the test says: `script` maps a hook to a function of snapshot and tenant."""

    def __init__(self, **script) -> None:
        super().__init__()
        self.script = script
        self.calls: list[tuple[str, str | None]] = []
        self.tick_us = script.pop("tick_us", 0.0)

    def _play(self, hook: str, now: Snapshot, tenant: str | None) -> Iterable[Action]:
        self.calls.append((hook, tenant))
        made = self.script.get(hook)
        return () if made is None else made(now, tenant)

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        return self._play("on_attach", now, tenant)

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        return self._play("on_launch", now, tenant)

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        return self._play("on_completion", now, tenant)

    def on_congestion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        return self._play("on_congestion", now, tenant)

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        return self._play("on_tick", now, None)

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        return self._play("on_detach", now, tenant)
