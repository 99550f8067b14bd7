# SPDX-License-Identifier: Apache-2.0
"""A job that is paused as one, on the stand-in driver: daemon, detshare run, libdetshare.so, two ranks on two GPUs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from builds import FAKECUDA, ROOT, made, once
from spatial_lane import Lane, end_mps

from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.backends.spatial.lanes import Lanes
from detshare.ctl.client import Client, ClientError
from detshare.ctl.core import procfs
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Change, Check, Event, Outcome, Program, Snapshot, State
from detshare.ctl.core.verbs import request
from detshare.runtime import meeting
from detshare.runtime.board import Policy
from tests.patience import ended, run, until

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("DETSHARE_TEST_GANGS", "10"))
"""pauses of a job; a thousand were tried by hand"""
DRAIN_S = 0.05
"""much longer than what a rank has queued"""


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collective; with it the library and the stand-in driver."""
    made("runtime")
    driver = made("fakecuda")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'tests' / 'fakecuda'}"]

    def build(folder: Path) -> Path:
        out = folder / "gang.so"
        run(["gcc", *flags, str(HERE / "gang.c"), "-o", str(out), f"-L{driver}", "-lcuda"], check=True)
        return out

    return once(tmp_path_factory, "gang", build)


class Ranks:
    """Two ranks under `detshare run`, of whatever daemon is in that folder."""

    def __init__(self, folder: Path, control: Path, plugin: Path) -> None:
        self.folder, self.file = folder, folder / "gang"
        self.file.write_bytes(bytes(4096))
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(FAKECUDA),
            "FAKECUDA_PLUGINS": str(plugin),
            "GANG_FILE": str(self.file),
            "DETSHARE_BOARD_DIR": str(folder / "boards"),
            "DETSHARE_MPS_CONTROL": str(control),
        }
        self.ranks: list[subprocess.Popen[str]] = []

    def start(self, *ways: str, lane: Sequence[str] = ("--lane", "spatial")) -> None:
        for rank in range(2):
            job = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
            command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(self.folder)]
            command += [*lane, "--", sys.executable, str(HERE / "gang_client.py"), *ways]
            environment = self.environment | job | {"FAKECUDA_UUID_SEED": str(rank)}
            self.ranks.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment))
        until(lambda: self.begun()[0] > 20)

    @property
    def who(self) -> str:
        return f"job:{self.ranks[0].pid}"

    def begun(self) -> tuple[int, int]:
        """Collectives that each rank's GPU has begun."""
        words = struct.unpack("4Q", self.file.read_bytes()[:32])
        return words[0], words[2]

    def stands(self) -> tuple[int, int]:
        """The same, once nothing moves any more; all begun by both have ended."""
        until(self._rests)
        words = struct.unpack("4Q", self.file.read_bytes()[:32])
        assert (words[1], words[3]) == (min(words[0], words[2]),) * 2
        return words[0], words[2]

    def _rests(self) -> bool:
        before = self.file.read_bytes()
        time.sleep(DRAIN_S)
        return self.file.read_bytes() == before

    def goes_on(self) -> bool:
        before = self.begun()
        return bool(until(lambda: min(self.begun()) > max(before) + 20))

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


class Job(Ranks):
    """With a daemon of their own."""

    def __init__(self, folder: Path, control: Path, plugin: Path) -> None:
        super().__init__(folder, control, plugin)
        self.client = Client(folder)
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
        command += ["--run-dir", str(folder)]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=self.environment)
        until(lambda: self.daemon.poll() is not None or self.client.alive())

    def start(self, *ways: str, lane: Sequence[str] = ("--lane", "spatial")) -> None:
        super().start(*ways, lane=lane)
        until(lambda: all(self.held(rank.pid) is False for rank in self.ranks))

    def held(self, pid: int) -> bool | None:
        found = next((each for each in self.client.programs()["programs"] if each["pid"] == pid), None)
        return None if found is None else bool(found["spatial"]["held"])

    def verb(self, name: str, who: object) -> dict[str, Any]:
        return self.client.verb(name, str(who))

    def stopped(self) -> bool:
        """Whether ranks have a number of collectives beyond which they wait."""
        pages = (self.folder / "boards").glob("*.policy")
        return any(Policy(bytearray(page.read_bytes())).get("collectives_from") for page in pages)

    def close(self) -> None:
        super().close()
        if self.daemon.poll() is None:
            self.daemon.terminate()
            ended(self.daemon)


@pytest.fixture
def job(folder: Path, control: Path, plugin: Path) -> Iterator[Job]:
    made = Job(folder, control, plugin)
    yield made
    made.close()
    end_mps(folder, control)


def notes(answer: dict[str, Any]) -> set[str]:
    assert len(answer["changed"]) == 2, answer
    return {change["note"].split("; ")[1] for change in answer["changed"]}


@pytest.mark.parametrize("ways", [(), ("graph",)], ids=["kernels", "graphs"])
def test_a_job_is_paused_between_two_collectives(job: Job, ways: tuple[str, ...]) -> None:
    job.start(*ways)
    dice = random.Random(7)

    def met() -> bool:
        time.sleep(dice.uniform(0.0, 0.02))
        answer = job.verb("pause", job.who)
        (note,) = notes(answer)
        stands = job.stands()
        between = note.startswith("between")  # a machine that runs nothing for half a second comes to no such point
        if between:
            assert note == f"between two collectives: each rank has ended {stands[0]}", (note, stands)
            assert stands[0] == stands[1]
        job.verb("resume", job.who)
        job.goes_on()
        return between

    for _ in range(ROUNDS):
        until(met)


def test_ranks_that_are_paused_one_by_one_stand_within_a_collective(job: Job) -> None:
    """What the test above would see if ranks did not meet."""
    job.start()
    dice = random.Random(7)

    def apart() -> bool:
        for rank in job.ranks:
            job.verb("pause", rank.pid)
            time.sleep(dice.uniform(0.0, 0.005))
        first, second = job.stands()
        for rank in job.ranks:
            job.verb("resume", rank.pid)
        job.goes_on()
        return first != second

    until(apart)


def test_ranks_that_come_to_no_common_point_are_paused_all_the_same(job: Job) -> None:
    job.start()
    job.ranks[1].send_signal(signal.SIGSTOP)
    until(lambda: job.begun()[0] > job.begun()[1])
    answer = job.verb("pause", job.who)
    assert notes(answer) == {"maybe within a collective: its ranks came to no common point within 0.5 s"}
    job.ranks[1].send_signal(signal.SIGCONT)
    assert all(job.held(rank.pid) for rank in job.ranks)
    job.verb("resume", job.who)
    job.goes_on()


def test_a_daemon_that_is_killed_while_ranks_meet_stops_nobody(job: Job) -> None:
    job.start()
    job.ranks[1].send_signal(signal.SIGSTOP)

    def ask() -> None:
        with contextlib.suppress(ClientError):
            job.verb("pause", job.who)

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: job.stopped() or not asking.is_alive())
    job.daemon.kill()
    ended(job.daemon)
    asking.join()
    job.ranks[1].send_signal(signal.SIGCONT)
    job.goes_on()


class Switches(Backend):
    """A temporal lane that stops and continues processes."""

    name = "root"

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.stood: list[tuple[int, int]] = []
        """collectives that each rank had begun when the first was stopped"""

    def look(self, *, enforce: bool = True) -> Snapshot:
        programs = []
        for rank in self._ranks.ranks:
            start = procfs.start_time(rank.pid)
            assert start is not None
            programs.append(Program(ProcessId(rank.pid, start), "python train.py", "ann", "", State.RUNNING))
        return Snapshot("root", "unit", "", 0.0, 0.0, (), tuple(programs))

    def stirs(self) -> bool:
        return False

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {"pause": self.pause, "resume": self.resume}

    def pause(self, who: str) -> Outcome:
        self.stood.append(self._ranks.stands())
        return self._signal("pause", signal.SIGSTOP)

    def resume(self, who: str) -> Outcome:
        return self._signal("resume", signal.SIGCONT)

    def _signal(self, verb: str, number: signal.Signals) -> Outcome:
        for rank in self._ranks.ranks:
            rank.send_signal(number)
        return Outcome.of(verb, [Change(rank.pid) for rank in self._ranks.ranks], 0.001)

    def alive(self, process: ProcessId) -> bool:
        return procfs.start_time(process.pid) == process.start

    def doctor(self) -> list[Check]:
        return []

    def drain_events(self) -> Sequence[Event]:
        return []

    def close(self, restore: bool = True) -> None:
        pass


def test_ranks_of_the_temporal_lane_are_switched_off_between_two_collectives(
    lane: Lane, control: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "SECONDS", 60.0)
    ranks = Ranks(lane.folder, control, plugin)
    try:
        ranks.start(lane=("--lane", "temporal", "--park"))
        switches = Switches(ranks)
        lanes = Lanes(switches, ShimBackend(lane.service))
        for _ in range(5):
            lanes.look()
            done = lanes.do(request("pause", ranks.who))
            (first, second) = switches.stood.pop()
            assert first == second
            assert {change.note for change in done.changed} == {f"between two collectives: each rank has ended {first}"}
            assert done.seconds >= DRAIN_S  # since the first had no work left
            lanes.do(request("resume", ranks.who))
            ranks.goes_on()
    finally:
        ranks.close()
