# SPDX-License-Identifier: Apache-2.0
"""The suites beside the field: plans, verdicts, a run with programs that sleep, the page."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detshare.tools import results
from detshare.tools.bench.field import overview, report, verdict
from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, failed, plan
from detshare.tools.bench.field.cli import field
from detshare.tools.bench.field.pairs import pairs
from detshare.tools.bench.field.programs import PROGRAMS
from detshare.tools.bench.field.suites import SUITES, Suite
from detshare.tools.bench.field.systems import ALONE, AUTO, Default, System, SystemMissing, Temporal, shipped
from detshare.tools.bench.mix.figures import Back, Figure, Measured, Server
from detshare.tools.bench.mix.stage import Stage
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.mix.worker import start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.steer import SteerError
from tests.patience import comes

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

FAKE = Path(__file__).resolve().parents[1] / "bench" / "fake_mix_worker.py"
SMALL = Suite("field-tally", "a test", ("graph",), (("vit",), ("gpt2", "fft")), load=0.2)
QUICK = Pace(requests=40, least=0.4, most=1.0, alone=0.4, overhead=0.4, start=2.0, end=0.5)


class NoServer(Default):
    name, group = "a server that is missing", "missing"

    def begin(self, session: Session) -> None:
        raise SystemMissing("there is none here")


# -- plans --------------------------------------------------------------------------------------------------------


def test_tallys_matrix_has_36_pairs_under_each_way_and_all_twelve_alone() -> None:
    suite = SUITES["field-tally"]
    cells = plan(suite, shipped())
    assert len({cell.name for cell in cells}) == len(cells)
    for system in shipped():
        assert sum(cell.system == system.name for cell in cells) == 36
    assert sum(cell.system == ALONE for cell in cells) == 12
    assert {cell.system for cell in cells[:12]} == {ALONE}, "what all are compared with comes first"


def test_every_program_has_a_script_and_says_what_it_stands_for() -> None:
    for suite in SUITES.values():
        for name in (*suite.servers, *(each for some in suite.backgrounds for each in some)):
            program = PROGRAMS[name]
            assert Path(program.argv[1]).is_file()
            assert program.stands


def test_what_is_done_is_not_measured_again_and_patterns_choose() -> None:
    suite = SUITES["field-tally"]
    cells = plan(suite, shipped(), ["llama-infer + gpt2-train"])
    assert [cell.name for cell in cells[:2]] == [f"llama-infer: {ALONE}", f"gpt2-train: {ALONE}"]
    assert len(cells) == 2 + len(shipped())
    left = plan(suite, shipped(), ["llama-infer + gpt2-train"], [cell.name for cell in cells[:3]])
    assert [cell.name for cell in left] == [cell.name for cell in cells[3:]]


# -- a run --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def argv(self: object) -> list[str]:
        return [sys.executable, str(FAKE), "--kind", self.kind]  # type: ignore[attr-defined]

    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", property(argv))


def measured(
    tmp_path: Path,
    systems: Sequence[System],
    resumed: Sequence[Measured] = (),
    budget: float = 100.0,
    suite: Suite = SMALL,
) -> tuple[FakeSteer, list[Measured], Path]:
    steer = FakeSteer(tmp_path / "run")
    path = tmp_path / "raw" / "field-tally-cells.jsonl"
    with Session(Options("field-tally", 1.0, 1, tmp_path, budget=budget)) as session:
        session.steer = steer  # type: ignore[assignment]
        runs.run(session, runs.Asked(suite, tuple(systems), (), tuple(resumed), QUICK, 0.05), path)
        written = session.write()
    return steer, load(path), written


def test_a_run_measures_each_way_and_what_fails_is_a_result(tmp_path: Path, fakes: None, committed: None) -> None:
    steer, cells, written = measured(tmp_path, (Default(), Temporal(), NoServer()))
    by_name = {cell.cell: cell for cell in cells}
    alone = by_name["graph: alone"]
    assert alone.server is not None
    # a request sleeps 2 ms: at a load of a fifth one is due each 10 ms
    assert 9.0 < alone.period_ms < 60.0
    beside = by_name["graph + gpt2 + fft: DetShare temporal"]
    assert beside.server is not None
    assert beside.period_ms == alone.period_ms
    assert beside.server.p999 is not None
    assert list(beside.server.answers) == list(alone.server.answers)
    assert sum(beside.server.answers.values()) >= beside.server.count
    assert set(beside.back) == {"gpt2", "fft"}
    assert failed(by_name["graph + vit: a server that is missing"]) == "there is none here"
    told = [each for name, _pid, each in steer.told if name == "set-priority"]
    assert told.count({"klass": "high"}) == 2, "default slicing is not steered"
    assert steer.classes == {}
    assert results.check(written) == []
    rows = {row["what"]: row for row in json.loads(written.read_text())["rows"]}
    assert rows["default slicing: mixes measured"]["value"] == 2
    changed = rows["graph + gpt2 + fft: DetShare temporal: answers that differ from those alone"]
    assert (changed["value"], changed["target"]) == (0, "== 0")
    assert rows["graph + vit: a server that is missing: failed: there is none here"]["value"] == 1
    assert rows["DetShare's better lane against default slicing, p99: better"]["value"] in (0, 1, 2)


def test_no_daemon_runs_before_the_first_way_that_is_ours(tmp_path: Path, fakes: None) -> None:
    steer, cells, _ = measured(tmp_path, (Default(),))
    assert not steer.told
    assert {cell.scheme for cell in cells} == {ALONE, "default slicing"}


def test_a_later_run_goes_on_with_what_is_left(tmp_path: Path, fakes: None) -> None:
    _, first, _ = measured(tmp_path, (Default(),))
    _, cells, _ = measured(tmp_path, (Default(), Temporal()), first)
    assert [cell.cell for cell in cells[: len(first)]] == [cell.cell for cell in first]
    assert {cell.scheme for cell in cells[len(first) :]} == {"DetShare temporal"}
    period = next(cell.period_ms for cell in cells if cell.cell == "graph: alone")
    assert all(cell.period_ms == period for cell in cells if cell.server is not None)


def test_poisson_arrivals_are_the_same_each_time(tmp_path: Path) -> None:
    with Session(Options("field-tally", 1.0, 1, tmp_path)) as session:
        served = warm(session, [start(session, "graph", [sys.executable, str(FAKE), "--kind", "graph"])])["graph"]
        runs_of = []
        for seed in (7, 7, 8):
            begin = time.monotonic()
            served.go(period_ms=10.0, poisson=seed)
            served.answered()
            comes(lambda begin=begin: len(served.requests(begin, time.monotonic()).at) >= 12)
            served.stop()
            served.answered()
            at = served.requests(begin, time.monotonic()).at
            runs_of.append([later - earlier for earlier, later in pairwise(at)][:10])
    assert runs_of[0] == pytest.approx(runs_of[1], abs=1e-5)
    assert runs_of[0] != pytest.approx(runs_of[2], abs=1e-3)
    assert max(runs_of[0]) > 3 * min(runs_of[0])


def test_a_server_that_cannot_be_steered_is_a_failed_cell(
    tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: FakeSteer, name: str, pid: int, **arguments: object) -> dict[str, object]:
        raise SteerError("not today")

    monkeypatch.setattr(FakeSteer, "verb", refuse)
    _, cells, _ = measured(tmp_path, (Default(), Temporal()))
    assert {failed(cell) for cell in cells if cell.scheme == "DetShare temporal"} == {"not today"}


def test_a_server_slower_than_the_first_look_is_given_more_time(
    tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    play = Stage.play

    def slow(self: Stage, what: str, seconds: float, *rest: Any, **more: Any) -> Any:
        if what.endswith("back to back"):
            asked.append(seconds)
            if len(asked) < 3:
                raise ProgramError("graph: it finished no request")
        return play(self, what, seconds, *rest, **more)

    monkeypatch.setattr(Stage, "play", slow)
    _, cells, _ = measured(tmp_path, (Default(),))
    assert asked == pytest.approx([QUICK.alone, 4 * QUICK.alone, 16 * QUICK.alone])
    assert {failed(cell) for cell in cells} == {""}


def test_a_daemon_that_does_not_start_again_fails_only_what_is_left(
    tmp_path: Path, fakes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Temporal):
        name, launches = "DetShare counting", True

    real = FakeSteer.start

    def start(self: FakeSteer) -> None:
        if self.config is not None:
            raise SteerError("no eBPF here")
        real(self)

    monkeypatch.setattr(FakeSteer, "start", start)
    _, cells, _ = measured(tmp_path, (Default(), Temporal(), Counting()))
    assert len({cell.cell for cell in cells}) == len(cells), "no cell is there twice"
    assert {failed(cell) for cell in cells if cell.scheme == "DetShare counting"} == {"no eBPF here"}
    assert {failed(cell) for cell in cells if cell.scheme != "DetShare counting"} == {""}


# -- verdicts -----------------------------------------------------------------------------------------------------


def cell(mix: str, system: str, p99: float, rate: float, back: float | None = None) -> Measured:
    _server, *others = mix.split(" + ")
    served = Server(1000, p99 / 2, p99, 2 * p99, p99 / 2, rate, p999=1.5 * p99)
    backs = {name: Back(back or 0.0, 0.1) for name in others}
    return Measured(f"{mix}: {system}", "r", mix, system, (), 5.0, served, backs, 10.0)


ALONES = [
    cell("s", ALONE, 1000.0, 100.0),
    Measured(f"b: {ALONE}", "r", "b", ALONE, (), 2.0, None, {"b": Back(10.0, 0.1)}),
    Measured(f"c: {ALONE}", "r", "c", ALONE, (), 2.0, None, {"c": Back(10.0, 0.1)}),
]


def test_overhead_throughput_and_fairness_are_over_alone() -> None:
    one = verdict.shown([*ALONES, cell("s + b", "MPS", 1500.0, 90.0, 5.0)])[0]
    assert one.overhead == pytest.approx(50.0)
    assert one.stp == pytest.approx(1.4)
    assert one.fairness == pytest.approx(1.4**2 / (2 * (0.81 + 0.25)))


def test_the_better_lane_counts_and_no_mix_is_left_out() -> None:
    cells = [
        *ALONES,
        cell("s + b", "MPS", 1500.0, 90.0, 5.0),
        cell("s + b", "DetShare temporal", 1600.0, 90.0, 5.0),
        cell("s + b", "DetShare spatial", 1050.0, 90.0, 4.0),
        cell("s + c", "MPS", 1020.0, 90.0, 5.0),
        cell("s + c", "DetShare temporal", 1200.0, 90.0, 5.0),
    ]
    p99, throughput = verdict.against(verdict.shown(cells))
    assert (p99.better, p99.equal, p99.worse) == (1, 0, 1)
    assert p99.first == "s + c, by 18 %"
    assert (throughput.better, throughput.equal, throughput.worse) == (0, 1, 1)
    assert throughput.first == "s + b, by 7 %"
    rows = {row.what: row for row in verdict.rows(cells, SMALL)}
    kept = rows["DetShare's better lane: mixes with a p99 overhead of at most 7.2 %"]
    assert (kept.value, kept.baseline, kept.ok) == (1, 2, False)


def test_every_figure_that_both_have_is_compared_and_each_has_its_better_side() -> None:
    def probe(way: str, **values: float) -> Measured:
        units = {"launch": "us", "copy": "GB/s", "fairness of 4": "", "outputs of sums": "", "GPU memory left": "MiB"}
        some = tuple(Figure(what, value, units[what]) for what, value in values.items())
        return Measured(f"p: {way}", "r", "p", way, (), 1.0, None, figures=some)

    def trainings(way: str, rate: float) -> Measured:
        return Measured(f"b + c: {way}", "r", "b + c", way, (), 2.0, None, {"b": Back(rate, 0.1), "c": Back(rate, 0.1)})

    theirs = {"launch": 10.0, "copy": 50.0, "fairness of 4": 1.0, "outputs of sums": 2.0, "GPU memory left": 0.0}
    cells = [
        *ALONES,
        cell("s + b", "MPS", 1500.0, 90.0, 5.0),
        cell("s + b", "DetShare temporal", 1600.0, 99.0, 5.0),
        trainings("MPS", 6.0),
        trainings("DetShare temporal", 5.0),
        probe("MPS", **theirs),
        probe("DetShare temporal", **{**theirs, "launch": 20.0, "copy": 60.0, "GPU memory left": 2.0}),
        probe("DetShare spatial", **{**theirs, "launch": 9.0}),
        probe(AUTO, **{**theirs, "launch": 1.0}),
    ]
    found = {(each.mix, each.figure): each for each in pairs(cells)}
    assert found["s + b", "p99"].worse
    assert found["s + b", "throughput"].better
    side = found["b + c", "throughput"]
    assert (side.worse, side.loss) == (True, pytest.approx(1 / 6))
    sides = {mix: (each.better, each.worse, each.mine) for (mix, figure), each in found.items() if "probe" in figure}
    assert sides == {
        "p: launch": (True, False, "DetShare spatial"),
        "p: copy": (True, False, "DetShare temporal"),
        "p: fairness of 4": (False, False, "DetShare temporal"),
        "p: GPU memory left": (False, False, "DetShare spatial"),
    }
    alone = {each.mix: each for each in pairs(cells, "DetShare temporal") if "probe" in each.figure}
    assert alone["p: launch"].worse
    assert alone["p: GPU memory left"].loss == 1.0, "something where they have nothing"


def test_what_auto_chose_is_judged_by_the_better_lane_and_is_none_itself() -> None:
    cells = [
        *ALONES,
        cell("s + b", "DetShare temporal", 1200.0, 90.0, 5.0),
        cell("s + b", "DetShare spatial", 1100.0, 90.0, 5.0),
        cell("s + b", AUTO, 1150.0, 90.0, 5.0),
        cell("s + c", "DetShare temporal", 1200.0, 90.0, 5.0),
        cell("s + c", AUTO, 1300.0, 90.0, 5.0),
    ]
    some = verdict.shown(cells)
    assert verdict.best(some)["s + b"].system == "DetShare spatial"
    rows = {row.what: row for row in verdict.rows(cells, SMALL)}
    row = rows["--lane auto: mixes with a p99 within 5 % of the better lane's, or below it"]
    assert (row.value, row.baseline, row.ok) == (1, 2, False)


def test_a_mix_without_its_server_alone_is_not_shown() -> None:
    assert verdict.shown([cell("s + b", "MPS", 1500.0, 90.0, 5.0)]) == []


# -- the page and the command line --------------------------------------------------------------------------------


def some_cells() -> list[Measured]:
    lost = replace(cell("s + c", "MPS", 1.0, 1.0, 1.0), server=None, back={}, notes=("<b>no</b> server",))
    return [
        *ALONES,
        cell("s + b", "MPS", 1500.0, 90.0, 5.0),
        cell("s + b", "DetShare temporal", 1020.0, 99.0, 4.0),
        lost,
    ]


def test_the_page_is_whole_escapes_and_hides_nothing(tmp_path: Path) -> None:
    suite = replace(SMALL, servers=("s",), backgrounds=(("b",), ("c",)))
    text = report.page(some_cells(), suite, "cells.jsonl")
    assert "&lt;b&gt;no&lt;/b&gt; server" in text
    assert "<b>no" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "+50.0 %" in text
    assert '<th scope="col">changed</th>' not in text, "no server told its answers"
    told = [
        replace(each, server=replace(each.server, answers={"a": 9})) if each.server else each for each in some_cells()
    ]
    assert '<th scope="col">changed</th>' in report.page(told, suite, "cells.jsonl")
    kept = json.loads(text.split('id="cells">')[1].split("</script>")[0])
    assert len(kept) == len(some_cells())


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(field, ["plan", "--system", "nothing"]).exit_code == 2
    assert run(field, ["plan", "--peer", "XSched"]).exit_code == 2
    assert run(field, ["plan", "--cells", "no such cell"]).exit_code == 2
    planned = json.loads(run(field, ["plan", "--system", "MPS", "--json"]).output)
    assert len(planned["cells"]) == 48
    assert planned["programs"]["yolo-infer"]["stands"] == "YOLOv6m"
    assert "  kill: a background killed" in run(field, ["plan", "--suite", "field-gvb"]).output
    cells = tmp_path / "cells.jsonl"
    cells.write_text("".join(json.dumps(each.to_json()) + "\n" for each in some_cells()))
    out = tmp_path / "field.html"
    done = run(field, ["report", str(cells), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_text().startswith("<!doctype html>")
    table = json.loads(run(field, ["report", str(cells), "--json"]).output)
    assert table[0]["system"] == "MPS"
    (tmp_path / "raw").mkdir()
    assert run(field, ["overview", str(tmp_path / "raw")]).exit_code == 1
    assert not (tmp_path / "raw" / "field.html").exists(), "no page of a folder without cells"
    (tmp_path / "raw" / "field-tally-cells.jsonl").write_text(cells.read_text())
    over = run(field, ["overview", str(tmp_path)])
    assert over.output == f"{tmp_path / 'field.html'}: 1 of {len(SUITES)} suites, {len(some_cells())} cells\n"
    assert "&lt;b&gt;no&lt;/b&gt; server" in (tmp_path / "field.html").read_text(), "what failed is there"
    refused = replace(some_cells()[-1], cell="s + b: MIG", mix="s + b", scheme="MIG", notes=("MIG is off",))
    part = overview.Part(SUITES["field-tally"], (*some_cells(), refused), "raw/cells.jsonl")
    assert "<td>MIG</td><td>field-tally</td><td>none</td>" in overview.page([part]), "a way that was refused is there"
    missing = run(field, ["report", str(cells), "--out", str(tmp_path / "no" / "x.html")])
    assert missing.exit_code == 1
    cells.write_text("junk\nmore\n")
    assert run(field, ["report", str(cells)]).exit_code == 1
