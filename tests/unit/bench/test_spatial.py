# SPDX-License-Identifier: Apache-2.0
"""The experiments on the runtime, without a GPU: what they start, what they count, and the targets they judge by."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from detshare.runtime.board import Policy, Tier, create
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.spatial import (
    compatibility,
    determinism,
    isolation,
    lane_choice,
    live_change,
    mps_faults,
    overhead,
    pages,
    pair,
)
from detshare.tools.bench.spatial.figures import Figures
from detshare.tools.bench.spatial.lanes import MPS, MPS_50, PLAIN, How, Lanes
from detshare.tools.bench.steer import SteerError

FAKE = [sys.executable, str(Path(__file__).resolve().parent / "fake_workload.py")]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(Options("isolation", 1.0, 2, tmp_path)) as made:
        made.sms = 132
        yield made


def judged(session: Session) -> dict[str, tuple[float, bool | None]]:
    """Rows with a target."""
    return {row.what: (row.value, row.ok) for row in session.rows if row.target is not None}


# -- how programs are started ---------------------------------------------------------------------------------------


class StoppedMps:
    """An MPS server that was asked to start."""

    environment = {"CUDA_MPS_PIPE_DIRECTORY": "/somewhere/pipe"}
    started = 0

    def start(self) -> None:
        self.started += 1


@pytest.mark.parametrize("how", [PLAIN, MPS, MPS_50, How("spatial", klass="high", sm=25), How("temporal", klass="low")])
def test_each_way_of_starting_has_its_command_and_environment(session: Session, how: How) -> None:
    lanes = Lanes(session)
    lanes._mps = mps = cast(Any, StoppedMps())
    command, env = lanes.command(how, ["train", "--fast"])
    assert command[-2:] == ["train", "--fast"]
    assert mps.started == (how.lane == "mps")
    assert env.get("CUDA_MPS_PIPE_DIRECTORY") == ("/somewhere/pipe" if how.lane == "mps" else None)
    assert env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == ("50" if how is MPS_50 else None)
    if how.lane in ("spatial", "temporal"):
        words = command[: command.index("--")]
        assert words[1:4] == ["-m", "detshare.tools.main", "run"]
        assert words[words.index("--lane") + 1] == how.lane
        assert words[words.index("--priority") + 1] == how.klass
        assert ("--sm" in words) is (how.sm is not None)
        assert words[words.index("--run-dir") + 1] == str(session.steer.run_dir)


def test_a_program_that_is_not_in_the_spatial_lane_stops_the_experiment(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, Any] | None] = [
        None,
        {"state": "time-sliced"},
        {"state": "spatial", "spatial": {"remaps": 3}},
    ]
    monkeypatch.setattr("detshare.tools.bench.spatial.lanes.SEEN_SECONDS", 0.2)
    monkeypatch.setattr(session.steer, "program", lambda _pid: shown[0] if len(shown) == 1 else shown.pop(0))
    assert Lanes(session).spatial(42) == {"remaps": 3}
    shown[:] = [{"state": "time-sliced"}]
    with pytest.raises(SteerError, match=r"42 is not in the spatial lane \(time-sliced\)"):
        Lanes(session).spatial(42)


def test_programs_that_warm_up_are_stopped_when_ready_and_end_well(session: Session) -> None:
    lanes = Lanes(session)
    programs = [lanes.start(name, PLAIN, [*FAKE, "fast"]) for name in ("one", "two")]
    lanes.warm(*programs)
    assert all(program._stopped for program in programs)
    for program in programs:
        program.go_on()
    summaries = lanes.end(*programs)
    assert [summary["event"] for summary in summaries] == ["summary", "summary"]
    assert not lanes._others


def test_a_program_that_dies_while_warming_up_is_told(session: Session) -> None:
    lanes = Lanes(session)
    with pytest.raises(ProgramError, match="no GPU for this test"):
        lanes.warm(lanes.start("dies", PLAIN, [*FAKE, "dies"]))


# -- isolation ------------------------------------------------------------------------------------------------------


def isolated() -> Figures:
    """What a good run gives, for BE kernels of 0.7 ms."""
    found = Figures()
    found.latencies(("alone",), [70.0, 110.0])
    found.latencies(("alone on the same SMs",), [170.0, 200.0])
    found.rate(("alone", "0.7 ms", "BE alone"), 1320.0)
    for scheme, p99, be in (("reserve", 230.0, 990.0), ("MPS", 750.0, 1300.0), ("MPS 50 %", 120.0, 700.0)):
        found.latencies((scheme, "0.7 ms"), [100.0, p99])
        found.rate((scheme, "0.7 ms", "BE"), be)
    found.rate(("reserve", "0.7 ms", "BE alone"), 1000.0)
    found.latencies(("reflex", "bursts", "0.7 ms", "first"), [600.0])
    found.latencies(("reflex", "bursts", "0.7 ms", "later"), [180.0])
    found.rate(("reflex", "bursts", "0.7 ms", "BE"), 1150.0)
    return found


def test_isolation_is_judged_by_the_issues_targets(session: Session) -> None:
    isolation.report(session, isolated(), 132)
    assert judged(session) == {
        "BE 0.7 ms: reserve: LC p99 against alone on the same SMs": (230.0, True),
        "BE 0.7 ms: reserve: LC p99 against MPS": (230.0, True),
        "BE 0.7 ms: reserve: BE against its share of the SMs": (990.0, True),  # of 1320 x 100 / 132
        "BE 0.7 ms: reflex, bursts: BE": (1150.0, True),
    }


def test_isolation_that_fails_is_shown_as_failed(session: Session) -> None:
    found = isolated()
    found.rounds["reserve", "0.7 ms"].clear()
    found.latencies(("reserve", "0.7 ms"), [251.0])
    found.rates["reserve", "0.7 ms", "BE"][:] = [949.0]
    found.rates["reflex", "bursts", "0.7 ms", "BE"][:] = [1121.0]
    isolation.report(session, found, 132)
    assert [ok for _value, ok in judged(session).values()] == [False, False, False, False]


def test_mps_below_600_us_is_no_measure(session: Session) -> None:
    found = isolated()
    found.rounds["MPS", "0.7 ms"].clear()
    found.latencies(("MPS", "0.7 ms"), [599.0])
    isolation.report(session, found, 132)
    [row] = [row for row in session.rows if row.what.endswith("against MPS")]
    assert (row.baseline, row.target, row.ok) == (599.0, None, None)


def test_isolation_without_a_scheme_reports_the_others(session: Session) -> None:
    found = isolated()
    del found.rounds["reserve", "0.7 ms"]
    isolation.report(session, found, 132)
    assert any(row.what == "BE 0.7 ms: MPS: LC p99" for row in session.rows)
    assert not any("reserve:" in row.what for row in session.rows)
    session.rows.clear()
    isolation.report(session, Figures(), 132)
    assert session.rows == []


def test_schemes_rotate_and_stop_with_the_budget(session: Session) -> None:
    names = list(isolation.STARTS)
    assert names[:3] == ["alone", "reserve", "reflex"]
    seen = list(isolation.schemes(session, cast(Any, None)))
    assert seen == names + names[1:] + names[:1]
    session.options = Options("isolation", 1.0, 2, session.options.out, budget=5.0)
    assert list(isolation.schemes(session, cast(Any, None))) == []


# -- pair -----------------------------------------------------------------------------------------------------------


def paired(spatial_p99: float = 2600.0, images: float = 2450.0) -> Figures:
    """A run with one token every 10 ms."""
    found = Figures()
    found.rate(pair.BE_ALONE, 3000.0)
    schemes = {"alone": (2300.0, 0.0), "spatial": (spatial_p99, images), "temporal": (2500.0, 2400.0)}
    schemes |= {"MPS": (7900.0, 2900.0), "MPS 50 %": (3400.0, 2200.0), "time-slicing": (7000.0, 2200.0)}
    schemes |= {"sweep: hold": (2600.0, 2450.0), "sweep: 8 SMs": (2640.0, 2500.0), "sweep: 64 SMs": (3400.0, 2900.0)}
    for name, (p99, rate) in schemes.items():
        found.latencies((name, "10 ms"), [p99])
        found.rate((name, "10 ms", "tokens"), 80.0)
        if name != "alone":
            found.rate((name, "10 ms", "BE"), rate)
    return found


def test_pair_is_judged_by_the_issues_targets(session: Session) -> None:
    pair.report(session, paired(), None)
    what = "a token every 10 ms: spatial"
    rows = {row.what: row for row in session.rows}
    bound = rows[f"{what}: BE against alone x (1 - that share)"]
    assert bound.baseline == pytest.approx(3000 * (1 - 80 * 2600e-6))
    strict = rows[f"{what}: BE against the same if tokens took LC's time alone"]
    assert strict.baseline == pytest.approx(3000 * (1 - 80 * 2300e-6))
    assert rows[f"{what}: token p99 against the best baseline (MPS 50 %)"].baseline == 3400.0
    assert [ok for _value, ok in judged(session).values()] == [True] * 4
    assert rows["sweep, a token every 10 ms: most images within 1.15x alone (8 SMs)"].value == 2500.0


def test_a_pair_that_misses_is_shown(session: Session) -> None:
    pair.report(session, paired(3500.0, 1950.0), None)
    assert [ok for _value, ok in judged(session).values()] == [False] * 4


def test_the_pair_is_judged_for_the_lane_that_auto_takes_too(session: Session) -> None:
    found = paired(3500.0, 1950.0)
    found.latencies(("temporal", "10 ms"), [2500.0] * 100)
    found.rate(("temporal", "10 ms", "tokens"), 100.0)
    found.rate(("temporal", "10 ms", "BE"), 2900.0)
    pair.report(session, found, "temporal")
    rows = {name: ok for name, (_value, ok) in judged(session).items() if "--lane auto (temporal)" in name}
    assert len(rows) == 4
    assert all(rows.values())


def test_the_order_of_the_pair_has_the_lanes_first_and_the_sweep_before_repeats(session: Session) -> None:
    done: list[str] = []
    bench = SimpleNamespace(scheme=done.append, sweep=lambda name: done.append(f"sweep {name}"))
    pair.work(session, cast(Any, bench))
    first = ["alone", "spatial", "temporal", "MPS", "MPS 50 %", "time-slicing"]
    assert done[:11] == [*first, "sweep hold", "sweep 8 SMs", "sweep 16 SMs", "sweep 32 SMs", "sweep 64 SMs"]
    assert done[11:] == first[1:] + first[:1]


# -- live-change ----------------------------------------------------------------------------------------------------

ALL, QUARTER = frozenset(range(132)), frozenset(range(32))
ALLOWED = {100: ALL, 25: QUARTER}


def kernel(at: float, sms: frozenset[int]) -> live_change.Kernel:
    return live_change.Kernel(at - 1e-5, at, sms)


def test_a_windows_kernels_get_the_latest_start_that_the_clocks_allow() -> None:
    window = {"offset_ns": [1_000_000_000, 1_000_004_000], "base": 500, "starts": [0.0, 10.5], "sets": [0, 1]}
    sets = [{"number": 0, "sms": [1, 2]}, {"number": 1, "sms": [3]}]
    found = live_change.kernels_of([window], sets)
    assert found[0] == live_change.Kernel(1.0000005, 1.0000045, frozenset({1, 2}))
    assert found[1].last == pytest.approx(1.000015)
    assert found[1].sms == frozenset({3})


def test_a_kernel_outside_counts_from_2_ms_after_the_return_until_the_next_command() -> None:
    changes = [live_change.Change(1.0, 1.01, 25), live_change.Change(2.0, 2.01, 100)]
    early, late, between, after = kernel(1.0119, ALL), kernel(1.0121, ALL), kernel(2.005, ALL), kernel(2.5, ALL)
    inside = kernel(1.5, frozenset({3, 4}))
    tried, broken = live_change.outside([early, inside, between, after], changes, ALLOWED)
    assert (tried, broken) == (2, [])
    tried, broken = live_change.outside([early, late, inside, after], changes, ALLOWED)
    assert tried == 3
    assert broken == [pytest.approx(0.0021)]
    assert live_change.last_outside([early, late, inside], changes[0], 2.0, QUARTER) == pytest.approx(0.0021)
    assert live_change.last_outside([inside], changes[0], 2.0, QUARTER) == 0.0


# -- determinism ----------------------------------------------------------------------------------------------------


def test_operators_that_differ_alone_are_not_judged_and_others_are() -> None:
    alone = [{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "2", "c": "4"}]
    shaky = determinism.unstable(alone)
    assert shaky == {"c"}
    seen = [{"a": "1", "b": "2", "c": "9"}, {"a": "1", "b": "5", "c": "3"}]
    assert determinism.changed(alone, seen, {"a", "b"}) == {"b"}
    assert determinism.changed(alone, alone, {"a", "b"}) == set()
    batches = [["x", "y"], ["x", "z"], ["y", "x"]]
    assert determinism.differ([["x", "y"], ["?", "?"]], batches) == 3
    assert determinism.sequences(batches) == 6


def test_shares_are_given_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(tmp_path))
    page = create(tmp_path / "7-99-0.policy")
    policy = Policy(page)
    policy.init()
    policy.write(tiers=(Tier(0, 0), Tier(1, 8), Tier(1, 32)), gate_us=7)
    before = policy.epoch
    program = cast(Any, SimpleNamespace(pid=7))
    with Session(Options("determinism", 1.0, 1, tmp_path)) as session, pages.Pages(session) as found:
        remapper = determinism.Remapper(found, random.Random(1))
        remapper.run([program], 0.5)
        with pytest.raises(SteerError, match="0 policy pages of 8"):
            found.use(8, 0)
    assert remapper.done == 50
    assert remapper.seconds >= 0.49
    assert (policy.epoch - before) // 2 == 50
    assert policy.read().gate_us == 7
    assert policy.read().tier_idle == policy.read().tier_busy


def test_the_control_must_differ(session: Session) -> None:
    def program(digests: dict[str, str], sha: str) -> Any:
        lines = {
            "cycle": [{"digests": digests}] * 2,
            "digest": [{"sequences": [sha]}] * 2,
            "ready": [{"sms": 66}],
        }
        quiet = {"go_on": lambda: None, "hold": lambda: None}
        return SimpleNamespace(name="x", lines=lambda event, _since=0.0: lines[event], **quiet)

    reference = ([{"a": "1"}, {"a": "1"}], [["s"]])
    for digest, ok in (("2", True), ("1", False)):
        session.rows.clear()
        programs = {"operators, MPS 50 %": program({"a": digest}, "t"), "decode, MPS 50 %": program({}, "t")}
        assert determinism.control(session, programs, reference, {"a"}) == int(digest == "2")
        assert judged(session) == {"MPS 50 %: operators whose bits changed": (float(digest == "2"), ok)}


# -- overhead, compatibility, MPS faults ----------------------------------------------------------------------------


def test_overhead_is_the_median_of_each_turns_ratio(session: Session) -> None:
    seen = {"without": [100.0, 200.0, 100.0], "with": [101.0, 200.0, 150.0], "plain": [90.0, 190.0, 100.0, 1.0]}
    assert overhead.report(session, "launch", "ns", seen) == pytest.approx(1.01)
    assert judged(session) == {"launch: with / without": (1.01, True)}
    assert overhead.report(session, "launch", "ns", {"without": [1.0], "with": []}) is None
    session.rows.clear()
    overhead.report(session, "launch", "ns", {"without": [100.0], "with": [101.2], "plain": [90.0]})
    assert judged(session) == {"launch: with / without": (1.012, False)}


def test_overheads_figures_come_from_windows() -> None:
    windows = [
        {"t0": 0.0, "t1": 1.0, "count": 10, "items": 640, "ns_per_launch": 3.0, "latency_us": [1.0, 5.0]},
        {"t0": 1.0, "t1": 2.0, "count": 10, "items": 640, "ns_per_launch": 4.0, "latency_us": [2.0]},
    ]
    assert overhead.ns_per_launch(windows) == 3.0
    assert overhead.token_us(windows) == 2.0
    assert overhead.ms_per_step(windows) == 100.0


SAME = compatibility.Outcome("abc", 0)


@pytest.mark.parametrize(
    ("plain", "shared", "lane", "good"),
    [
        ([SAME, SAME], SAME, True, True),
        ([SAME, SAME], compatibility.Outcome("abd", 0), True, False),
        ([SAME, SAME], compatibility.Outcome("abc", 1), True, False),
        ([SAME, SAME], None, True, False),
        ([SAME, SAME], SAME, False, False),
        ([SAME, compatibility.Outcome("abd", 0)], SAME, True, False),
        ([None, SAME], SAME, True, False),
    ],
)
def test_compatibility_needs_the_same_output_twice_without_and_once_with(
    session: Session, plain: list[Any], shared: Any, lane: bool, good: bool
) -> None:
    assert compatibility.report(session, "CuPy", plain, shared, lane, 5) is good
    assert all(ok for _value, ok in judged(session).values()) is good


def test_every_way_of_the_issue_is_a_program_of_compatibility() -> None:
    assert len(compatibility.PROGRAMS) == 10
    assert len({tuple(command) for command in compatibility.PROGRAMS.values()}) == 10


def test_mps_faults_count_what_went_wrong(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = mps_faults.Faults(session, cast(Any, None), [], 1)
    faults.during, faults.after = [210.0] * 100, [220.0] * 10
    faults.killed = {"kernel": 50, "hold": 50}
    faults.started, faults.servers = [0.5, 1.5], [10, 11]
    texts = ["the MPS server (PID 10) ended; taken along: 7 (tenant)", "detshared started"]
    monkeypatch.setattr(session.steer.client, "events", lambda: iter([{"text": text} for text in texts]))
    mps_faults.report(session, faults, [200.0] * 100, [205.0] * 100)
    assert all(ok for _value, ok in judged(session).values())
    session.rows.clear()
    faults.refused, faults.idle, faults.started, faults.servers = 1, 2, [5.5], [10, 11, 12]
    faults.killed["hold"] = 49
    faults.lost, faults.during, faults.after = 1, [250.0] * 100, [241.0] * 10
    mps_faults.report(session, faults, [200.0] * 100, [205.0] * 100)
    assert sum(ok is False for _value, ok in judged(session).values()) == 8


class Lost:
    """An LC that ended by itself."""

    pid, alive, code = 4711, False, 1

    def last_words(self) -> str:
        return "cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)"

    def lines(self, _event: str, since: float, _key: str) -> list[dict[str, Any]]:
        return [{"t0": since + 1.0, "t1": since + 2.0, "latency_us": [200.0, 210.0]}]


def test_an_lc_that_is_lost_leaves_its_last_words_and_gets_a_successor(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dropped: list[object] = []
    lanes = SimpleNamespace(drop=dropped.append, start=lambda *_: "another", ready=lambda *_: None)
    faults = mps_faults.Faults(session, cast(Any, lanes), ["lc"], 1)
    (tmp_path / "server.log").write_text("Server is handling a fatal GPU error.")
    monkeypatch.setattr(faults, "_mps", SimpleNamespace(adopt=lambda: False, log=tmp_path))
    faults.lc = lost = cast(Any, Lost())
    faults.kills = [1.4]  # between the two requests of the window, which begins 1 s after 0
    faults.look()
    assert (faults.lost, faults.lc, dropped) == (1, "another", [lost])
    assert faults.during == [200.0, 210.0]
    assert faults.after == [210.0]
    (kept,) = [line for line in session._raw if line["event"] == "lost"]
    assert kept["code"] == 1
    assert "700" in kept["words"]
    assert "fatal GPU error" in kept["server.log"]
    assert "No such file" in kept["control.log"]


def test_a_tenant_is_killed_once_it_has_work_in_flight(session: Session) -> None:
    counts = iter([0, 0, 3])
    lanes = SimpleNamespace(spatial=lambda _pid: {"in_flight": next(counts)})
    faults = mps_faults.Faults(session, cast(Any, lanes), [], 1)
    assert faults.flying(cast(Any, SimpleNamespace(pid=1))) == 3


def test_lane_choice_judges_short_work_by_its_tail_and_idle_sms_by_both_rates(session: Session) -> None:
    def rows(name: str, p99: dict[str, float], rates: dict[str, tuple[float, float]], taken: str) -> dict[str, Any]:
        session.rows.clear()
        found = Figures()
        for lane, value in p99.items():
            found.latencies((name, lane), [value] * 10)
            found.latencies((name, "alone", "program"), [50.0] * 10)
        for role in ("program", "background"):
            found.rate((name, "alone", role, "program"), 100.0)
        for lane, (program, background) in rates.items():
            found.rate((name, lane, "program"), program)
            found.rate((name, lane, "background"), background)
        kind = lane_choice.Kind(name, (), (), ("high", "low"), "spatial")
        lane_choice.Choice(session, cast(Any, None), found).report(kind, taken)
        return {row.what: row.ok for row in session.rows if row.target}

    tails, good = {"temporal": 300.0, "spatial": 150.0}, {"temporal": (50.0, 50.0), "spatial": (90.0, 60.0)}
    assert rows("short", tails, good, "spatial") == {
        "short: spatial lane: p99": True,
        "short: --lane auto took the spatial lane": True,
    }
    assert not any(rows("short", {"temporal": 150.0, "spatial": 300.0}, good, "temporal").values())
    assert all(rows("few blocks", {}, good, "spatial").values())
    assert session.rows[1].value == pytest.approx(1.5)
    assert not any(rows("few blocks", {}, {"temporal": (50.0, 50.0), "spatial": (40.0, 50.0)}, "temporal").values())
    assert list(rows("long", {}, good, "temporal").values()) == [False]
