# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_steer import FakeSteer  # type: ignore[import-not-found]

from detshare.tools import results
from detshare.tools.bench import cli
from detshare.tools.bench.mix import run as mixes
from detshare.tools.bench.mix import verdict
from detshare.tools.bench.mix.cells import (
    ALONE,
    DEFAULT,
    MPS_PRIORITY,
    MPS_SHARES,
    OURS,
    Cell,
    chosen,
    plan,
    weightings,
)
from detshare.tools.bench.mix.figures import Back, Measured, Reading, Server, back, integrate, longest_gap, readings
from detshare.tools.bench.mix.gauges import Gauge, Gauges, cpu_seconds
from detshare.tools.bench.mix.store import CellsError, Store, load
from detshare.tools.bench.mix.watch import Watch
from detshare.tools.bench.mix.worker import BACKGROUNDS, SERVERS
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session

FAKE = Path(__file__).resolve().parent / "fake_mix_worker.py"
ALL = (*SERVERS, *BACKGROUNDS)


# -- planning -----------------------------------------------------------------------------------------------------


def test_each_server_meets_one_to_four_backgrounds_in_three_weightings_and_every_baseline() -> None:
    cells = plan(ALL)
    assert len({cell.name for cell in cells}) == len(cells)
    for server in SERVERS:
        for count in (1, 2, 3, 4):
            mine = [cell for cell in cells if cell.server == server and len(cell.backgrounds) == count]
            assert [cell.weights for cell in mine if cell.scheme == OURS] == weightings(count)
            for scheme in (DEFAULT, MPS_PRIORITY, MPS_SHARES):
                assert sum(cell.scheme == scheme for cell in mine) == 1
    alone = {cell.programs[0] for cell in cells if cell.scheme == ALONE}
    assert alone == set(ALL)
    assert weightings(4) == [(1, 1, 1, 1), (1, 2, 3, 4), (4, 1, 1, 1)]


def test_what_cannot_run_here_is_replaced_by_the_next() -> None:
    cells = plan([name for name in ALL if name not in ("gpt2", "eager")])
    assert all("gpt2" not in cell.programs and cell.server != "eager" for cell in cells)
    assert {len(cell.backgrounds) for cell in cells if cell.server and cell.backgrounds} == {1, 2, 3, 4}
    assert not any(len(cell.backgrounds) > 1 for cell in plan(["graph", "vit"]))


def test_patterns_and_what_is_done_leave_the_rest_with_its_baselines() -> None:
    cells = plan(ALL)
    some = chosen(cells, ["graph + vit: *"])
    assert {cell.mix for cell in some} == {"graph", "vit", "graph + vit"}
    assert [cell.scheme for cell in some][:2] == [ALONE, ALONE]
    done = [cell.name for cell in some if cell.scheme != DEFAULT]
    assert [cell.name for cell in chosen(cells, ["graph + vit: *"], done)] == [
        "graph: alone",
        "vit: alone",
        "graph + vit: default slicing",
    ]
    assert chosen(cells, [], [cell.name for cell in cells]) == []
    assert [cell.name for cell in chosen(cells, ["fft: alone"])] == ["fft: alone"]


def test_the_time_that_is_said_counts_each_cell_and_each_start() -> None:
    asked = mixes.Asked(seconds=10.0)
    cells = [Cell("graph", ("vit",), DEFAULT), Cell("", ("vit",), ALONE), Cell("graph", ("vit",), MPS_SHARES)]
    assert mixes.needed_s(cells, asked) == pytest.approx(24.0 + 3 * asked.overhead + 2 * mixes.START + mixes.END)


# -- figures ------------------------------------------------------------------------------------------------------


def test_the_longest_gap_counts_the_ends_of_the_interval() -> None:
    assert longest_gap([1.0, 1.5, 4.0, 99.0], 1.0, 5.0) == 2.5
    assert longest_gap([], 1.0, 5.0) == 4.0
    assert longest_gap([2.0], 1.0, 5.0) == 3.0


def test_readings_count_that_lie_in_the_interval_with_all_their_seconds() -> None:
    some = [Reading(at, 2.0, at / 100, at / 200) for at in (11.0, 12.0, 13.0, 14.0, 15.0)]
    found = integrate(some, 10.0, 14.0)
    assert found is not None
    assert (found.share, found.useful) == (pytest.approx(0.13), pytest.approx(0.065))
    short = integrate(some, 11.5, 12.5)
    assert short is not None
    assert short.share == pytest.approx(0.12)
    assert integrate(some, 20.0, 30.0) is None


def test_readings_are_of_the_gpu_that_is_named_or_the_busiest() -> None:
    one = {"gpu": "A", "seconds": 1.0, "share": 0.2, "useful": 0.1}
    ps = {"taken": 5.0, "programs": [{"pid": 7, "gpu_time": [one, {**one, "gpu": "B", "share": 0.5}]}, {"pid": 8}]}
    assert readings(ps)[7].share == 0.5
    assert readings(ps, "A")[7].share == 0.2
    assert 8 not in readings(ps)


def test_a_background_has_a_rate_and_a_gap() -> None:
    found = back([1.0, 2.0, 4.0], 1.0, 5.0, None)
    assert (found.rate, found.gap_s, found.share) == (0.75, 2.0, None)


class Frozen:
    """A daemon whose log stands still after some looks."""

    def __init__(self, fresh: int) -> None:
        self.left, self.asked = fresh, 0

    def ps(self) -> dict[str, Any]:
        self.asked += 1
        self.left = max(0, self.left - 1)
        log = {"gpu": "A", "seconds": 0.01, "share": 0.5, "useful": 0.4, "switches_s": self.left}
        said = [f"the log of GPU {self.asked % 2} is refused"]
        return {"taken": time.monotonic(), "programs": [{"pid": 7, "gpu_time": [log]}], "warnings": said}


@pytest.mark.parametrize(("fresh", "known"), [(4, True), (1, False)])
def test_a_log_that_nobody_reads_any_more_says_nothing(
    fresh: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detshare.tools.bench.mix.watch.EVERY", 0.02)
    frozen = Frozen(fresh)
    begin = time.monotonic()
    with Watch(frozen.ps) as watch:
        while frozen.asked < 8:
            time.sleep(0.01)
    assert (watch.of(7, begin, time.monotonic()) is not None) is known
    assert [*watch.warnings] == ["the log of GPU 1 is refused", "the log of GPU 0 is refused"]


# -- verdicts -----------------------------------------------------------------------------------------------------


def of(cell: Cell, p99: float, backs: dict[str, Back], share: float | None = 0.1, run: str = "r") -> Measured:
    server = Server(1000, p99 / 1.1, p99, 2 * p99, p99, 50.0, 0, share, share) if cell.server else None
    return Measured(cell.name, run, cell.mix, cell.scheme, cell.weights, 20.0, server, backs, 20.0)


def stored(tmp_path: Path, *cells: Measured) -> Store:
    return Store(tmp_path / "cells.jsonl", cells)


def verdicts(store: Store) -> dict[str, bool | None]:
    return {row.what: row.ok for row in verdict.rows(store)}


def test_clocks_stand_beside_those_alone_and_a_daemon_that_only_senses_has_a_limit(tmp_path: Path) -> None:
    graph, cell = Cell("graph", (), ALONE), Cell("graph", ("vit",), DEFAULT)
    ours = replace(cell, scheme=OURS, weights=(1,))
    quiet, hot = Gauge(1980.0, 1965.0, 400.0, 0.002), Gauge(1700.0, 1500.0, 700.0, 0.02, 0.011)
    cells = [
        replace(of(graph, 1600.0, {}), gauge=quiet),
        replace(of(cell, 1800.0, {"vit": Back(9.0, 0.1)}), gauge=hot),
        replace(of(ours, 1700.0, {"vit": Back(9.0, 0.1)}), gauge=hot),
    ]
    stored(tmp_path, *cells)
    assert load(tmp_path / "cells.jsonl")[1].gauge == hot
    found = {row.what: row for row in verdict.rows(stored(tmp_path, *cells))}
    clock = found["graph + vit: default slicing: SM clock, median"]
    assert (clock.value, clock.baseline) == (1700.0, 1980.0)
    assert found["graph + vit: default slicing: the daemon's CPU time"].ok is False
    assert found["graph + vit: DetShare 1: the daemon's CPU time"].ok is None
    assert found["graph + vit: default slicing: reading the switch log"].ok is False
    assert "graph: alone: reading the switch log" not in found


def test_without_a_gpu_the_gauges_say_the_cpu_time_only() -> None:
    marks: list[str] = []
    spent = iter(({"main": 1.0, "sensor": 2.0}, {"main": 1.5, "sensor": 2.25, "late": 0.5}))
    seen: dict[str, Any] = {}

    def mark(event: str, **fields: Any) -> None:
        marks.append(event)
        seen.update(fields)

    with Gauges(os.getpid(), mark, lambda: next(spent)) as gauges:
        before = cpu_seconds(os.getpid())
        while cpu_seconds(os.getpid()) < before + 0.02:
            pass
    assert gauges.seen.daemon_cpu > 0
    assert marks == ["gauges"]
    assert seen["threads"] == {"main": 0.5, "sensor": 0.25, "late": 0.5}
    assert (gauges.seen.sensor_cpu or 0) > 0
    assert cpu_seconds(None) == 0.0


TWO = ("vit", "gpt2")


def alone(run: str = "r", lc: str = "graph", p99: float = 2000.0) -> list[Measured]:
    found = [of(Cell(lc, (), ALONE), p99, {}, run=run)]
    return found + [of(Cell("", (name,), ALONE), 0, {name: Back(10.0, 0.1)}, run=run) for name in TWO]


def test_a_cell_that_keeps_all_targets_and_one_that_misses_each(tmp_path: Path) -> None:
    cell = Cell("graph", TWO, OURS, (1, 2))
    good = of(cell, 2200.0, {"vit": Back(3.0, 0.4, 0.31, 0.30), "gpt2": Back(5.9, 0.3, 0.61, 0.60)})
    found = verdicts(stored(tmp_path, *alone(), good))
    judged = {what: ok for what, ok in found.items() if ok is not None}
    assert len(judged) == 4
    assert all(judged.values()), judged
    bad = replace(of(cell, 2400.0, {"vit": Back(3.0, 1.4, 0.31, 0.20), "gpt2": Back(5.9, 0.3, 0.61, 0.60)}), run="r")
    judged = {what: ok for what, ok in verdicts(stored(tmp_path, *alone(), bad)).items() if ok is not None}
    assert len(judged) == 4
    assert not any(judged.values()), judged


def test_default_slicing_and_mps_are_published_and_not_judged(tmp_path: Path) -> None:
    some = of(Cell("graph", TWO, DEFAULT), 9000.0, {"vit": Back(3.0, 5.0), "gpt2": Back(0.0, 20.0)})
    found = verdicts(stored(tmp_path, *alone(), some))
    assert set(found.values()) == {None}
    assert any("longest without progress (gpt2)" in what for what in found)


def test_short_requests_may_take_a_third_of_a_millisecond_more() -> None:
    assert verdict.limit_us(1000.0) == 1300.0
    assert verdict.limit_us(2000.0) == pytest.approx(2300.0)


def test_an_eager_server_is_held_to_the_better_of_its_limit_and_default_slicing(tmp_path: Path) -> None:
    backs = {"vit": Back(4.7, 0.1, 0.4, 0.4), "gpt2": Back(4.7, 0.1, 0.4, 0.4)}
    default = of(Cell("eager", TWO, DEFAULT), 7000.0, {name: Back(4.8, 0.1) for name in TWO})
    ours = of(Cell("eager", TWO, OURS, (1, 1)), 7100.0, backs)
    found = verdict.rows(stored(tmp_path, *alone(lc="eager", p99=6900.0), default, ours))
    p99 = next(row for row in found if "DetShare" in row.what and "p99" in row.what)
    assert p99.ok is False  # 1.15 x 6900 would allow it
    assert p99.target == "<= 7000"
    together = next(row for row in found if "DetShare" in row.what and "together" in row.what)
    assert (together.baseline, together.ok) == (pytest.approx(0.96), True)


def test_alone_counts_for_its_own_run_only(tmp_path: Path) -> None:
    cell = of(Cell("graph", TWO, OURS, (1, 1)), 2200.0, {name: Back(4.0, 0.1, 0.4, 0.4) for name in TWO}, run="other")
    found = verdicts(stored(tmp_path, *alone(), cell))
    assert found[f"{cell.cell}: p99 of 1000 requests"] is None


def test_without_the_log_no_share_is_claimed(tmp_path: Path) -> None:
    cell = of(Cell("graph", TWO, OURS, (1, 1)), 2200.0, {name: Back(4.0, 0.1) for name in TWO}, share=None)
    found = verdicts(stored(tmp_path, *alone(), cell))
    assert not any("by the log" in what for what in found)
    assert any("no context-switch log" in what for what in found)


# -- the file of cells --------------------------------------------------------------------------------------------


def test_cells_come_back_as_they_were_and_a_cut_line_is_passed_over(tmp_path: Path) -> None:
    cell = of(Cell("graph", TWO, OURS, (1, 2)), 2200.0, {"vit": Back(3.0, 0.4, 0.3, 0.3)})
    store = stored(tmp_path, *alone())
    store.add(cell)
    assert load(store.path) == [*alone(), cell]
    with store.path.open("a") as stream:
        stream.write('{"cell": "cut')
    assert load(store.path)[-1] == cell
    store.path.write_text('{"cell": "cut\n{}\n')
    with pytest.raises(CellsError, match="line 1 is no cell"):
        load(store.path)


# -- the command --------------------------------------------------------------------------------------------------


def test_the_list_says_how_long_it_takes_and_a_wrong_pattern_is_bad_usage(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["mix", "--quick", "--list"])
    assert done.exit_code == 0
    assert "cells, about" in done.output
    assert CliRunner().invoke(cli.bench, ["mix", "--cells", "no such cell", "--list"]).exit_code == 2
    junk = tmp_path / "junk.jsonl"
    junk.write_text("one\ntwo\n")
    done = CliRunner().invoke(cli.bench, ["mix", "--resume", str(junk)])
    assert done.exit_code == 2
    assert "line 1" in done.output


# -- a run with programs that sleep -------------------------------------------------------------------------------


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixes, "command", lambda kind: [sys.executable, str(FAKE), "--kind", kind])


def session_of(tmp_path: Path, steer: FakeSteer, budget: float = 100.0) -> Session:
    made = Session(Options("mix", 1.0, 1, tmp_path, budget=budget))
    made.steer = steer
    return made


def test_a_run_measures_its_cells_steers_and_writes(tmp_path: Path, fakes: None) -> None:
    steer = FakeSteer(tmp_path / "run")
    asked = mixes.Asked(1.0, 10.0, patterns=("graph + vit + gpt2: DetShare 1:2", "jax"), settle=0.1)
    path = tmp_path / "raw" / "mix-cells.jsonl"
    with session_of(tmp_path, steer) as session:
        mixes.run(session, asked, path)
        written = session.write()
    cells = {cell.cell: cell for cell in load(path)}
    weighted = cells["graph + vit + gpt2: DetShare 1:2"]
    assert weighted.server is not None
    assert weighted.server.count > 3
    assert weighted.server.share == pytest.approx(0.102)
    assert weighted.back["gpt2"].useful == pytest.approx(2 * (weighted.back["vit"].useful or 0.0))
    priorities = [each for name, _pid, each in steer.told if name == "set-priority"]
    assert {"klass": "high"} in priorities
    assert {"klass": "low", "weight": 2} in priorities
    assert steer.classes == {}  # all released
    assert results.check(written) == []
    # JAX does not start: the mix of four is none of these, and its cells are another mix
    assert not any("jax" in name for name in cells)
    resumed = mixes.Asked(1.0, 10.0, patterns=asked.patterns, resumed=tuple(cells.values()))
    assert [cell.name for cell in chosen(plan(BACKGROUNDS[:4]), resumed.patterns, cells)] == []


def test_an_older_daemon_gets_class_and_weight_one_by_one_and_it_is_noted(tmp_path: Path, fakes: None) -> None:
    steer = FakeSteer(tmp_path / "run", old=True, logged=False)
    path = tmp_path / "cells.jsonl"
    with session_of(tmp_path, steer) as session:
        mixes.run(session, mixes.Asked(0.5, 10.0, patterns=("graph + vit + gpt2: DetShare 1:2",), settle=0.1), path)
    last = load(path)[-1]
    assert "takes no weight" in last.notes[0]
    assert ("set-weight", {"weight": 2}) in [(name, each) for name, _pid, each in steer.told]


def test_a_budget_that_is_used_up_ends_the_run_with_what_there_is(
    tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([1000.0] * 4)
    monkeypatch.setattr(Session, "left", property(lambda _self: next(left, 0.0)))
    path = tmp_path / "cells.jsonl"
    with session_of(tmp_path, FakeSteer(tmp_path / "run")) as session:
        mixes.run(session, mixes.Asked(0.3, 10.0, patterns=("graph + vit + gpt2: D*",), settle=0.1), path)
    assert [cell.cell for cell in load(path)] == [
        "graph: alone",
        "vit: alone",
        "gpt2: alone",
        "graph + vit + gpt2: DetShare 1:1",
    ]


def test_a_resumed_run_keeps_what_was_measured_and_measures_alone_anew(tmp_path: Path, fakes: None) -> None:
    before = [*alone("earlier"), of(Cell("graph", TWO, OURS, (1, 1)), 2200.0, {n: Back(4.0, 0.1) for n in TWO})]
    asked = mixes.Asked(0.3, 10.0, patterns=("graph + vit: def*", "graph + vit + gpt2: DetShare 1:1"), settle=0.1)
    path = tmp_path / "cells.jsonl"
    with session_of(tmp_path, FakeSteer(tmp_path / "run")) as session:
        mixes.run(session, replace(asked, resumed=tuple(before)), path)
        assert results.check(session.write()) == []
    kept = load(path)
    assert kept[: len(before)] == before
    assert [cell.cell for cell in kept[len(before) :]] == ["graph: alone", "vit: alone", "graph + vit: default slicing"]
    assert sum(row.what.startswith("graph + vit + gpt2: DetShare 1:1: p99") for row in session.rows) == 1


def test_a_run_in_which_nothing_could_be_measured_is_an_error(tmp_path: Path, fakes: None) -> None:
    asked = mixes.Asked(1.0, 10.0, patterns=("graph + vit: D*",))
    with (
        session_of(tmp_path, FakeSteer(tmp_path / "run"), 1.0) as session,
        pytest.raises(ProgramError, match="no cell"),
    ):
        mixes.run(session, asked, tmp_path / "cells.jsonl")
