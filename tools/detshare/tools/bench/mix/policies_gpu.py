# SPDX-License-Identifier: Apache-2.0
"""policies-gpu: each policy that DetShare brings, on a mix where it makes a difference.

Beside each, in the same run and on the same programs: default slicing (nothing is set) and policy `static` (the same
classes, nobody changes anything). The programs are plain ones in the temporal lane; for `tpot-first`, which needs to
see launches, they are in the spatial lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from detshare.tools.bench.mix.figures import Back, Server
from detshare.tools.bench.mix.run import END, START, keep
from detshare.tools.bench.mix.stage import LATE, Played, Stage, Wanted
from detshare.tools.bench.mix.worker import Worker, command, rest, start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Session
from detshare.tools.bench.spatial.lanes import How, Lanes
from detshare.tools.bench.stats import deviation
from detshare.tools.bench.steer import SteerError
from detshare.tools.results import Row

__all__ = ["CASES", "Case", "chosen", "needed_s", "rows", "run", "schemes"]

DEFAULT, STATIC = "default slicing", "static"
SERVER = "graph"
LEARN = 6.0
"""seconds from the beginning of a mix to its interval: policies look at windows of seconds"""
ALONE_SECONDS = 3.0
SPATIAL = "spatial-"
CAP = 25
GOAL_MS = 25.0


@dataclass(frozen=True)
class Case:
    """A policy and its mix. `classes`: of each program in the order of its start, "" for none."""

    policy: str
    why: str
    classes: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    spacing: float | None = None
    """a request is due every so many times its own time; None: every 20 ms; 0: back to back"""
    goal_ms: float | None = None
    """of the server's requests, at p99"""
    lane: str = "temporal"
    learn: float = LEARN
    """seconds from the policy's beginning to its interval"""
    name: str = ""
    """what its rows begin with; empty: its policy"""

    @property
    def title(self) -> str:
        """What its rows begin with."""
        return self.name or self.policy

    @property
    def server(self) -> str:
        """Its server's name, "" where it has none."""
        return next((name for name in self.classes if name.removeprefix(SPATIAL) == SERVER), "")

    @property
    def backs(self) -> tuple[str, ...]:
        """All others."""
        return tuple(name for name in self.classes if name != self.server)


CASES = (
    Case(
        "static",
        "what people set stands: the server is high, two backgrounds are low",
        {SERVER: "high", "vit": "low", "gpt2": "low"},
    ),
    Case(
        "slo-aware",
        f"a p99 of {GOAL_MS:g} ms is stated and told: the background of a saturated server gets what that leaves",
        {SERVER: "high", "vit": "low"},
        spacing=1.5,
        goal_ms=GOAL_MS,
        learn=24.0,
    ),
    Case(
        "slo-aware",
        "the same beside one whose gaps serve nobody: the floor of its background grows while the p99 is held",
        {SERVER: "high", "vit": "low"},
        spacing=1.2,
        goal_ms=GOAL_MS,
        learn=24.0,
        name="slo-aware, saturated",
    ),
    Case(
        "strict",
        "a saturated server is high: the floors of normal and low are theirs and no more",
        {SERVER: "high", "vit": "normal", "gpt2": "low"},
        spacing=0.0,
    ),
    Case(
        "fair",
        "three equals without a class: long turns by weight cost fewer switches",
        {"vit": "", "gpt2": "", "fft": ""},
        {"unit_ms": "10"},
    ),
    Case(
        "cost-aware",
        "off-peak the background has long slices beside a server that is high",
        {SERVER: "high", "vit": "low", "gpt2": "low"},
        {"peak_from": "0", "peak_to": "0"},
    ),
    Case(
        "cost-aware",
        "the same beside a server that leaves nothing: its floors are a quarter of the time",
        {SERVER: "high", "vit": "low", "gpt2": "low"},
        {"peak_from": "0", "peak_to": "0"},
        spacing=0.0,
        name="cost-aware, saturated",
    ),
    Case(
        "token-bucket",
        f"class low has {CAP} % of the GPU, on an idle one too",
        {"vit": "low"},
        {"low": str(CAP)},
    ),
    Case(
        "tpot-first",
        "a server of CUDA graphs, back to back, beside one of large grids, in the spatial lane without classes",
        {SPATIAL + SERVER: "", SPATIAL + "vit": ""},
        {"tpot_ms": "4"},
        spacing=0.0,
        lane="spatial",
    ),
)


def chosen(names: tuple[str, ...]) -> list[Case]:
    """The cases of these policies, all without names."""
    return [case for case in CASES if not names or case.policy in names]


def schemes(case: Case) -> tuple[str, ...]:
    """What is compared, the policy last; for `static` it is the same."""
    beside = (DEFAULT,) if case.policy == STATIC else (DEFAULT, STATIC)
    return (*beside, case.policy) if case.lane == "temporal" else (STATIC, case.policy)


def needed_s(some: list[Case], seconds: float) -> float:
    """Seconds for these."""
    each = seconds + LATE + 1.0
    start_s = START * (2 if any(case.lane == "spatial" for case in some) else 1)
    played = sum(each * len(schemes(case)) + _learning(case) for case in some)
    return start_s + END + 5 * (ALONE_SECONDS + LEARN) + played


def _learning(case: Case) -> float:
    """Seconds from all beginnings to the intervals."""
    return (len(schemes(case)) - 1) * LEARN + case.learn


def _share(one: Back, alone: Back | None) -> float | None:
    """By the log where it says, else by steps against alone."""
    if one.useful is not None:
        return one.useful
    return one.rate / alone.rate if alone is not None and alone.rate else None


def _shares(seen: Played, alone: Mapping[str, Back]) -> list[float] | None:
    found = [_share(one, alone.get(name.removeprefix(SPATIAL))) for name, one in seen.back.items()]
    return [each for each in found if each is not None] if None not in found else None


def rows(case: Case, found: Mapping[str, Played], alone: Mapping[str, Back], server: Server | None) -> list[Row]:
    """What each scheme showed. Targets are of what the policy promises; `server`: alone at the same pace."""
    made: list[Row] = []
    for scheme, seen in found.items():
        what, mine = f"{case.title}: {scheme}", scheme == case.policy and case.policy != STATIC
        other = None if not mine else found.get(STATIC) or found.get(DEFAULT)
        shares = _shares(seen, alone)
        if seen.server is not None:
            base = None if server is None else server.p99
            target = f"<= {1000 * case.goal_ms:g}" if mine and case.goal_ms is not None else None
            made.append(
                Row(f"{what}: server: p99 of {seen.server.count} requests", seen.server.p99, "us", base, target)
            )
            made.append(Row(f"{what}: server: p50", seen.server.p50, "us", None if server is None else server.p50))
            made.append(Row(f"{what}: server", seen.server.rate, "requests/s"))
        for name, one in seen.back.items():
            made.append(
                Row(
                    f"{what}: {name}",
                    one.rate,
                    "steps/s",
                    alone[bare].rate if (bare := name.removeprefix(SPATIAL)) in alone else None,
                )
            )
        if shares:
            made.append(Row(f"{what}: background together", sum(shares), "of the GPU"))
            made += _promises(case, what, shares, None if other is None else _shares(other, alone), mine)
    return made


def _promises(case: Case, what: str, shares: list[float], static: list[float] | None, mine: bool) -> list[Row]:
    """What a policy says that it does, where figures can tell."""
    if not mine:
        return []
    together, before = sum(shares), None if static is None else sum(static)
    match case.policy:
        case "token-bucket":
            return [Row(f"{what}: distance from the cap", abs(together - CAP / 100), "", None, "<= 0.05")]
        case "fair" if together > 0:
            made = [
                Row(
                    f"{what}: greatest distance from an equal part",
                    deviation(shares, [1] * len(shares)),
                    "",
                    None,
                    "<= 0.1",
                )
            ]
            return (
                made
                if before is None
                else [*made, Row(f"{what}: together against static", together, "", before, ">= 1 x baseline")]
            )
        case "slo-aware" | "cost-aware" if before is not None:
            return [Row(f"{what}: background against static", together, "", before, "> 1 x baseline")]
    return []


@dataclass
class Bench:
    """One run."""

    session: Session
    stage: Stage
    own_us: float = 0.0
    alone: dict[str, Back] = field(default_factory=dict)
    servers: dict[float, Server] = field(default_factory=dict)
    """alone, by period in ms"""

    def period(self, case: Case) -> float:
        """ms between two requests; 0: back to back."""
        return 20.0 if case.spacing is None else round(case.spacing * self.own_us / 1000, 3)

    def server_alone(self, period: float) -> Server | None:
        """The plain server at that pace, measured once."""
        if period not in self.servers:
            seen = self.stage.play(f"{SERVER} every {period:g} ms: alone", ALONE_SECONDS, SERVER, (), None, period)
            if seen.server is not None:
                self.servers[period] = seen.server
        return self.servers.get(period)

    def one(self, case: Case, scheme: str, period: float) -> Played:
        """One scheme of a case. ProgramError, SteerError."""
        steer, name = self.session.steer, case.server
        self.stage.settle = case.learn if scheme == case.policy else LEARN
        steer.policy(
            case.policy if scheme == case.policy else STATIC, dict(case.params) if scheme == case.policy else {}
        )
        wanted = None
        if scheme != DEFAULT:
            decides = "policy" if scheme == case.policy and scheme != STATIC else "hand"
            wanted = {who: Wanted(klass, decides=decides) for who, klass in case.classes.items() if klass}
        before = steer.policy_status()["counts"]
        goal = case.goal_ms is not None and scheme == case.policy
        if goal:
            steer.deadline(self.stage.workers[name].pid, 1000 * (case.goal_ms or 0.0))
        try:
            return self.stage.play(
                f"{case.title}: {scheme}", self.session.options.seconds, name, case.backs, wanted, period
            )
        finally:
            status = steer.policy_status()
            self.session.mark("policy", case=case.title, scheme=scheme, status=status)
            if scheme == case.policy and scheme != STATIC:
                self.session.row(
                    f"{case.title}: actions that it took", status["counts"]["actions"] - before["actions"], "actions"
                )
                if status["counts"]["refused"] > before["refused"]:
                    self.session.say(f"{case.title}: refused: {status['refused'][-1]['text'][:300]}")
            if goal:
                steer.deadline(self.stage.workers[name].pid, None)

    def case(self, case: Case) -> None:
        """All schemes of a case, with its rows."""
        missing = [name for name in case.classes if name not in self.stage.workers]
        if missing:
            raise ProgramError(f"{', '.join(missing)} did not start")
        period = self.period(case) if case.server else 0.0
        server = self.server_alone(period) if case.server and SERVER in self.stage.workers else None
        found: dict[str, Played] = {}
        try:
            for scheme in schemes(case):
                found[scheme] = self.one(case, scheme, period)
        finally:
            made = rows(case, found, self.alone, server)
            keep(self.session, made)
            for row in made:
                self.session.say(f"{row.what}: {row.value:.5g} {row.unit}")


def run(session: Session, names: tuple[str, ...]) -> None:
    """The whole experiment."""
    some = chosen(names)
    needed = needed_s(some, session.options.seconds)
    session.say(f"{len(some)} policies need about {needed:.0f} s of the {session.options.budget:.0f} s")
    with Lanes(session) as lanes:
        environment = {"DETSHARE_RUN_DIR": str(session.steer.run_dir)}
        kinds = (SERVER, *dict.fromkeys(name for case in some for name in case.backs if not name.startswith(SPATIAL)))
        started = [
            start(session, kind, command(kind, *(("--observe", "detshare") if kind == SERVER else ())), environment)
            for kind in kinds
        ]
        stage = Stage(session, warm(session, started), settle=LEARN)
        bench = Bench(session, stage)
        session.steer.policy(STATIC)
        if SERVER in stage.workers:
            told = stage.workers[SERVER].program.lines("ready")[0].get("observes")
            session.say(f"the server {'tells' if told else 'does NOT tell'} the daemon its latencies")
            own = bench.server_alone(0.0)
            bench.own_us = 0.0 if own is None else own.own_p50
        for kind in kinds[1:]:
            if kind in stage.workers:
                bench.alone[kind] = stage.play(f"{kind}: alone", ALONE_SECONDS, "", [kind]).back[kind]
        left_out = 0
        for index, case in enumerate(some):
            room = len(schemes(case)) * (session.options.seconds + 2.0) + _learning(case) + END
            if session.left < room + (START if case.lane == "spatial" else 0.0):
                session.say(f"the budget is used up: {', '.join(each.title for each in some[index:])} left out")
                left_out += len(some) - index
                break
            try:
                if case.lane == "spatial":
                    spatial(lanes, stage, case)
                bench.case(case)
            except (ProgramError, SteerError) as error:
                session.say(f"left out: {case.title}: {error}")
                left_out += 1
        session.row("policies left out for a reason that was said", left_out, "policies", None, "== 0")
        for worker in stage.workers.values():
            session.drop(worker.program)


def spatial(lanes: Lanes, stage: Stage, case: Case) -> None:
    """Start a case's programs in the spatial lane. SteerError where the runtime stepped aside."""
    how = How("spatial")
    made: list[Worker] = []
    for name in case.classes:
        argv, more = lanes.command(how, command(name.removeprefix(SPATIAL)))
        made.append(start(lanes.session, name, argv, more))
    ready = warm(lanes.session, made)
    try:
        for worker in ready.values():
            for pid in worker.program.programs:
                lanes.spatial(pid)
    except SteerError:
        rest(lanes.session, ready.values())
        lanes.session.drop(*(worker.program for worker in ready.values()))
        raise
    stage.workers.update(ready)
