# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fake_steer import FakeSteer

from detshare.tools import results
from detshare.tools.bench.mix import gang, gang_pause, random_mix, saturated, smoke
from detshare.tools.bench.mix.figures import Back, Server
from detshare.tools.bench.mix.random_mix import KINDS, Troupe
from detshare.tools.bench.mix.saturated import Case, cases
from detshare.tools.bench.mix.stage import Played
from detshare.tools.bench.mix.standstill import Standstills
from detshare.tools.bench.mix.worker import Worker, start
from detshare.tools.bench.process import Program, ProgramError
from detshare.tools.bench.session import Options, Session
from detshare.tools.bench.steer import SteerError

FAKE = Path(__file__).resolve().parent / "fake_mix_worker.py"
AGAIN = Path(__file__).resolve().parent / "fake_again.py"


def session_of(tmp_path: Path, name: str = "mix", seconds: float = 0.5) -> Session:
    made = Session(Options(name, seconds, 1, tmp_path, budget=300.0))
    made.steer = FakeSteer(tmp_path / "run")
    return made


def test_a_request_counts_where_it_ends(tmp_path: Path) -> None:
    class Lines:
        def lines(self, _event: str) -> list[dict[str, object]]:
            early = {"at": [1.0, 1.5], "latency_us": [600_000.0, 1_000_000.0], "own_us": [1.0, 2.0], "dropped": 0}
            late = {"at": [2.9, 1.9], "latency_us": [200_000.0, 100_000.0], "own_us": [3.0, 4.0], "dropped": 5}
            return [early, late]

    found = Worker("graph", cast(Program, Lines())).requests(2.0, 3.0)
    assert (found.at, found.own_us, found.dropped) == ([1.5, 1.9], [2.0, 4.0], 5)


# -- saturated ----------------------------------------------------------------------------------------------------


def test_saturated_has_each_floor_and_the_default_for_one_and_two_backgrounds() -> None:
    found = cases()
    assert len({case.name for case in found}) == len(found)
    for backs in saturated.BACKS:
        for spaced in (False, True):
            mine = [case.floor for case in found if case.backs == backs and case.spaced is spaced]
            assert sorted(mine, key=str) == sorted([*saturated.FLOORS, None], key=str)
    assert set(cases(quick=True)) < set(found)
    assert saturated.needed_s(cases(quick=True), 6.0) < saturated.needed_s(found, 6.0)


def lc(rate: float) -> Server:
    return Server(int(10 * rate), 1700.0, 1800.0, 2000.0, 1700.0, rate, 0, 0.9, 0.9)


@pytest.mark.parametrize(
    ("rate", "useful", "met"),
    [(560.0, 0.049, [True, True]), (550.0, 0.03, [False, False]), (600.0, 0.0, [True, False])],
)
def test_a_floor_is_what_the_background_gets_and_all_that_the_server_loses(
    rate: float, useful: float, met: list[bool]
) -> None:
    seen = Played(0.0, 10.0, lc(rate), {"vit": Back(1.0, 0.5, useful, useful)})
    rows = list(saturated.rows(Case(False, ("vit",), 5), seen, lc(600.0), {"vit": Back(35.0, 0.03)}))
    assert [row.ok for row in rows if row.ok is not None] == met


def test_default_slicing_is_published_beside_it(tmp_path: Path) -> None:
    seen = Played(0.0, 10.0, lc(250.0), {"vit": Back(17.0, 0.1)})
    rows = list(saturated.rows(Case(True, ("vit",)), seen, lc(500.0), {"vit": Back(35.0, 0.03)}))
    assert [row.ok for row in rows if row.ok is not None] == []


def test_a_saturated_run_gives_floors_in_percent_and_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saturated, "command", lambda kind: [sys.executable, str(FAKE), "--kind", kind])
    monkeypatch.setattr(saturated, "cases", lambda _quick: [Case(False, ("vit",), 10), Case(True, ("vit", "jax"), 2)])
    with session_of(tmp_path, "mix-saturated", 2.0) as session:
        saturated.run(session, True)
        steer = session.steer
        assert isinstance(steer, FakeSteer)
        assert {"klass": "low", "floor": 10} in [each for _name, _pid, each in steer.told]
        assert steer.classes == {}
        assert results.check(session.write()) == []
    rows = {row.what: row for row in session.rows}
    assert rows["cases left out for a reason that was said"].value == 1  # JAX does not start here
    assert "graph back to back + vit: floor 10 %: requests" in rows


# -- gang ---------------------------------------------------------------------------------------------------------


def test_ranks_have_what_torchrun_gives_and_no_multicast() -> None:
    found = gang.environment(1, 4711)
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_PORT"]) == ("1", "2", "4711")
    assert found["NCCL_NVLS_ENABLE"] == "0"
    assert found["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == found["NVSHMEM_DISABLE_NVLS"] == "1"


def test_who_has_its_turn_is_read_from_its_places() -> None:
    def ps(standing: str) -> dict[str, object]:
        return {"programs": [{"pid": 7, "places": [{"standing": standing}]}, {"pid": 8}]}

    assert gang.holds(ps("holds"), {7})
    assert not gang.holds(ps("waits"), {7})
    assert not gang.holds(ps("holds"), {8})


def test_going_on_is_the_first_step_less_its_length() -> None:
    assert gang._gone_on([10.25, 10.30, 10.35], 10.0) == pytest.approx(0.2)
    assert gang._gone_on([10.01, 10.06], 10.0) == 0.0
    assert gang._gone_on([], 10.0) == gang.AFTER_SECONDS


def test_one_gpu_is_not_enough(tmp_path: Path) -> None:
    with session_of(tmp_path, "mix-gang") as session, pytest.raises(ProgramError, match="0 GPU"):
        gang.run(session)


class JobSteer(FakeSteer):
    """One whose job:PID stops and continues the processes of job A."""

    def __init__(self, run_dir: Path, lame: bool = False) -> None:
        super().__init__(run_dir)
        self.lame, self.ranks = lame, list[int]()

    def command(self, name: str, who: str) -> dict[str, Any]:
        assert who == f"job:{self.ranks[0]}"
        asked = self.ranks[: 1 if self.lame else None]
        for pid in asked:
            os.kill(pid, signal.SIGSTOP if name == "pause" else signal.SIGCONT)
        note = "between two collectives: each rank has ended 7" if name == "pause" else ""
        return {"changed": [{"pid": pid, "note": note} for pid in asked], "seconds": 0.002}


@pytest.mark.parametrize("lame", [False, True], ids=["whole", "a rank is left out"])
def test_a_job_that_is_paused_makes_no_step_and_goes_on(
    lame: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang, "start", lambda s, name, argv, env: start(s, name, [*argv, "--kind", "vit"], env))
    monkeypatch.setattr(gang, "SCRIPT", FAKE)
    monkeypatch.setattr(gang_pause, "BESIDE_S", 0.5)
    with session_of(tmp_path, "gang") as session:
        session.steer = steer = JobSteer(tmp_path / "run", lame)
        stage = gang.begin(session, serves=False)
        steer.ranks = [stage.workers[name].pid for name in gang.ranks("A")]
        if lame:
            with pytest.raises(SteerError, match="left out PID"):
                gang_pause.play(session, stage, 3, 1.0)
            assert all(worker.program.alive for worker in stage.workers.values())
            return
        gang_pause.play(session, stage, 3, 1.0, "spatial")
        found = {row.what: row for row in session.rows}
    assert found["pauses of a job of 2 ranks"].value == 4
    assert found["pause: from the first rank to the last, at most: p99"].value == pytest.approx(2.0)
    assert found["steps that ended while it was paused"].value == 0
    assert found["pauses between two collectives"].value == 4
    assert found["paused for 1 s: ranks that ended"].value == 0
    assert found["paused for 1 s: each rank's first step after"].value > 0


@pytest.mark.parametrize("knows", [True, False])
def test_ranks_that_nobody_told_of_are_waited_for(knows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[list[str], dict[str, str]]] = []

    def begun(session: Session, name: str, argv: list[str], env: dict[str, str]) -> Worker:
        given.append((argv, env))
        return start(session, name, [*argv[:2], "--kind", "vit"], env)

    monkeypatch.setattr(gang, "start", begun)
    monkeypatch.setattr(gang, "SCRIPT", FAKE)
    monkeypatch.setattr(gang_pause, "FIND_S", 0.3)
    with session_of(tmp_path, "gang-untold") as session:
        session.steer = steer = JobSteer(tmp_path / "run", False)
        stage = gang.begin(session, serves=False, told=False)
        assert all("WORLD_SIZE" not in env and "WORLD_SIZE=2" in argv for argv, env in given)
        jobs = {stage.workers[name].pid: f"root::{job}" for job in gang.JOBS for name in gang.ranks(job)}
        told = [{"pid": pid, "job": job if knows else ""} for pid, job in jobs.items()]
        monkeypatch.setattr(steer, "ps", lambda: {"programs": told})
        if knows:
            gang_pause.find(session, stage)
            assert {row.what: row.ok for row in session.rows}["jobs that are one by what their ranks share"]
        else:
            with pytest.raises(ProgramError, match="ranks are known as"):
                gang_pause.find(session, stage)


# -- random -------------------------------------------------------------------------------------------------------


def test_a_standstill_counts_from_the_last_beat_and_not_while_paused() -> None:
    still = Standstills(5.0)
    still.beat("a", 0.0)
    assert still.look(4.0) == []
    still.away("a")
    assert still.look(100.0) == []
    still.beat("a", 100.0)
    assert still.look(105.5) == ["a"]
    assert still.look(106.0) == []  # told once
    still.beat("a", 107.0)
    assert still.look(113.0) == ["a"]
    assert len(still.lockups) == 2
    assert (still.longest, still.whose) == (7.0, "a")


def test_a_beat_that_came_too_late_is_a_lockup_too() -> None:
    still = Standstills(5.0)
    still.beat("a", 0.0)
    still.beat("a", 9.0)
    assert still.lockups == ["a made no progress for 9.0 s"]


class RandomSteer(FakeSteer):
    """Has a life of its own to be taken."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.starts = self.kills = 0

    def start(self) -> None:
        super().start()
        self.starts += 1

    def kill(self) -> float:
        self.kills += 1
        return time.monotonic()


def troupe_of(session: Session) -> Troupe:
    return Troupe(session, random.Random(3), lambda kind: [sys.executable, str(AGAIN), "--kind", kind])


def test_random_acts_change_no_output_and_are_accounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_mix, "KINDS", KINDS[:3])
    with session_of(tmp_path, "mix-random") as session:
        session.steer = steer = RandomSteer(tmp_path / "run")
        troupe = troupe_of(session)
        troupe.begin()
        session.manage()
        for _ in range(60):
            troupe.look(time.monotonic())
            troupe.act(time.monotonic())
            time.sleep(0.01)
        victim = troupe.players[KINDS[0]]
        troupe.kill(victim)
        late = troupe.players[KINDS[0]].program
        late.ready(60)
        late.wait_for("digest", 60)
        troupe.kill_daemon()
        troupe.finish()
        troupe.report()
        written = session.write()
    rows = {row.what: row for row in session.rows}
    assert sum(troupe.done.values()) > 20
    assert steer.kills == troupe.done["daemon"] >= 1
    assert steer.starts == 1 + steer.kills
    assert rows["outputs that differ"].ok is True
    assert rows["programs that ended by themselves"].ok is True
    assert troupe.compared > 0
    assert troupe.off == []
    assert results.check(written) == []


def test_another_output_a_death_and_one_who_stays_off_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_mix, "KINDS", KINDS[:2])
    monkeypatch.setattr(random_mix, "FREE", 0.3)
    with session_of(tmp_path, "mix-random") as session:
        session.steer = RandomSteer(tmp_path / "run")
        troupe = troupe_of(session)
        troupe.begin()
        first, second = troupe.players.values()
        troupe.alone[first.kind] = "another"
        first.program.wait_for("digest", 60, time.monotonic())
        troupe.compare(first)
        assert troupe.differing
        second.program.end()
        troupe.look(time.monotonic())
        assert "ended by itself" in troupe.died[0]
        first.program.hold()  # as one whom nobody switched on again
        troupe.alone_again(time.monotonic(), "the daemon's death")
        assert troupe.off == [f"{first.kind} made no progress within 0.3 s of the daemon's death"]


# -- smoke --------------------------------------------------------------------------------------------------------


def test_smoke_has_a_line_for_each_workload_and_counts_what_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "command", lambda kind: [sys.executable, str(FAKE), "--kind", kind])
    monkeypatch.setattr(smoke, "again", lambda kind: [sys.executable, str(AGAIN), "--kind", kind])
    said: list[str] = []
    with session_of(tmp_path) as session:
        failed = smoke.smoke(session, 0.4, ("graph", "vit", "jax", "again-sums"), said.append)
    assert failed == 1  # JAX
    lines = {line.split(":")[0]: line for line in said}
    assert "back to back: p50" in lines["graph"]
    assert "INSTEAD since a GPU was not asked for" in lines["vit"]
    assert "two digests alike" in lines["again-sums"]
    assert "1 of 4 workloads do not work" in lines["smoke"]
