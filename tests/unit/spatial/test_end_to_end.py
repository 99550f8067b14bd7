# SPDX-License-Identifier: Apache-2.0
"""Everything at once, on the stand-in driver: daemon, MPS stand-in, detshare run, libdetshare.so, a CUDA program."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builds import FAKECUDA, LIBRARY, ROOT, made, once
from spatial_lane import end_mps

from detshare.ctl.client import Client
from tests.patience import ended, run, until

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
SWITCHES = int(os.environ.get("DETSHARE_TEST_SWITCHES", "100"))
"""of the policy; a thousand were tried by hand"""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in driver, the library, and the kernel that tells its SMs; gives the plugin's path."""
    made("runtime")
    driver = made("fakecuda")
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'tests' / 'fakecuda'}"]

    def build(folder: Path) -> Path:
        out = folder / "census.so"
        linked = [f"-L{driver}", "-lcuda"]
        run(["gcc", *flags, str(HERE / "census.c"), "-o", str(out), *linked], check=True)
        return out

    return once(tmp_path_factory, "plugin", build)


class Machine:
    """A daemon, and programs under `detshare run`."""

    def __init__(self, folder: Path, control: Path, plugin: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(FAKECUDA),
            "FAKECUDA_PLUGINS": str(plugin),
            "FAKECUDA_SMS": "132",
            "DETSHARE_BOARD_DIR": str(folder / "boards"),
            "DETSHARE_MPS_CONTROL": str(control),
        }
        self.client = Client(folder)
        self.programs: list[Census] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
        command += ["--run-dir", str(self.folder)]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=self.environment)
        until(lambda: self.daemon.poll() is not None or self.client.alive())

    def run(self, *options: str, ahead: int = 0) -> Census:
        """`ahead`: as the client has it."""
        program = Census(self, *options, ahead=ahead)
        self.programs.append(program)
        return program

    def seen(self, pid: int) -> dict[str, object] | None:
        return next((p for p in self.client.programs()["programs"] if p["pid"] == pid and p["spatial"]), None)

    def close(self) -> None:
        for program in self.programs:
            program.process.kill()
            program.process.communicate()
        if self.daemon.poll() is None:
            self.daemon.terminate()
            ended(self.daemon)


class Census:
    """A program that tells on which SMs its kernels run."""

    def __init__(self, machine: Machine, *options: str, ahead: int = 0) -> None:
        command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(machine.folder), *options]
        command += ["--", sys.executable, str(HERE / "census_client.py"), str(ahead)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=machine.environment)

    def line(self) -> tuple[int, int, int]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert len(words) == 3, self.process.communicate()[1]
        return int(words[0]), int(words[1]), int(words[2])

    def after(self, moment: int, lines: int = 20) -> list[tuple[int, int]]:
        """(SMs, highest) of kernels that were launched after a moment."""
        found: list[tuple[int, int]] = []
        while len(found) < lines:
            begun, sms, highest = self.line()
            if begun >= moment:
                found.append((sms, highest))
        return found

    def until(self, true: Callable[[int], bool]) -> None:
        until(lambda: true(self.line()[1]))


@pytest.fixture
def machine(folder: Path, control: Path, built: Path) -> Iterator[Machine]:
    made = Machine(folder, control, built)
    yield made
    made.close()
    end_mps(folder, control)


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_set_sm_binds_what_is_launched_after_it_returned(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    assert program.after(0, 1) == [(132, 131)]
    pid = program.process.pid
    until(lambda: machine.seen(pid))
    machine.client.verb("set-sm", str(pid), percent=25)
    assert set(program.after(now() + 2_000_000)) == {(32, 31)}
    machine.client.verb("set-sm", str(pid), percent=100)
    assert set(program.after(now() + 2_000_000)) == {(132, 131)}
    assert machine.seen(pid)["spatial"]["remaps"] >= 2  # type: ignore[index]


def test_a_share_from_the_start(machine: Machine) -> None:
    program = machine.run("--lane", "spatial", "--sm", "50")
    program.until(lambda sms: sms == 64)


def test_many_random_changes_lose_nothing(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    program.line()
    pid = program.process.pid
    until(lambda: machine.seen(pid))
    choice = random.Random(4)
    for _ in range(40):
        percent = choice.choice([100, *range(1, 101)])
        machine.client.verb("set-sm", str(pid), percent=percent)
        for sms, highest in program.after(now() + 2_000_000, 3):
            assert sms <= max(8, 132 * percent // 100)
            assert highest == sms - 1
    assert program.process.poll() is None


def test_the_daemons_death_is_not_noticed(machine: Machine) -> None:
    program = machine.run("--lane", "spatial", "--sm", "25")
    program.until(lambda sms: sms == 32)
    machine.daemon.send_signal(signal.SIGKILL)
    ended(machine.daemon)
    assert set(program.after(now())) == {(32, 31)}
    machine.start()
    until(lambda: machine.seen(program.process.pid))
    assert set(program.after(now())) == {(32, 31)}
    machine.client.verb("set-sm", str(program.process.pid), percent=50)
    assert set(program.after(now() + 2_000_000)) == {(64, 63)}


def test_an_ordinary_end_gives_the_whole_gpu_back(machine: Machine) -> None:
    program = machine.run("--lane", "spatial", "--sm", "25")
    program.until(lambda sms: sms == 32)
    machine.daemon.terminate()
    ended(machine.daemon)
    program.until(lambda sms: sms == 132)
    assert program.process.poll() is None


def test_a_hold_stops_and_resume_goes_on(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    program.line()
    pid = str(program.process.pid)
    until(lambda: machine.seen(program.process.pid))

    def launches() -> int:
        lane = machine.seen(program.process.pid)["spatial"]  # type: ignore[index]
        return int(lane["launches"])  # type: ignore[index]

    machine.client.verb("hold", pid)
    time.sleep(0.5)
    held = launches()
    time.sleep(0.5)
    assert launches() - held <= 2
    machine.client.verb("resume", pid)
    until(lambda: launches() > held + 100)


def test_a_hold_ends_with_the_daemon_that_asked_for_it(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    program.line()
    until(lambda: machine.seen(program.process.pid))
    machine.client.verb("hold", str(program.process.pid))
    machine.daemon.send_signal(signal.SIGKILL)
    ended(machine.daemon)
    begun = now()
    program.after(begun + 2_500_000_000, 1)


def test_a_library_of_the_spatial_lane_without_a_daemon_runs_natively(machine: Machine) -> None:
    machine.daemon.terminate()
    ended(machine.daemon)
    environment = {
        **machine.environment,
        "LD_PRELOAD": str(LIBRARY),
        "DETSHARE_SOCKET": str(machine.folder / "boards.sock"),
    }
    machine.environment = environment
    program = machine.run("--lane", "temporal")
    assert program.after(0, 3) == [(132, 131)] * 3


POLICY = '''
import time
from detshare.ctl.policy.types import Bind, Policy, Reflex
class Mine(Policy):
    """Rule: whoever comes has 32 SMs, and 8 while a higher class is active."""
    def on_attach(self, now, tenant):
        {}
'''
BAD = {
    "loops": "while True: pass",
    "sleeps": "time.sleep(3600)",
    "raises": "raise OSError('no')",
    "returns": "return 17",
    "never ends": "yield from iter(int, 1)",
}


def test_a_policy_binds_a_living_program_and_another_lets_it_go(machine: Machine, tmp_path: Path) -> None:
    program = machine.run("--lane", "spatial", "--priority", "low")
    program.until(lambda sms: sms == 132)
    pid = program.process.pid
    until(lambda: machine.seen(pid))
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format("return [Bind(tenant, 32, 'room for others'), Reflex(tenant, 8)]"))
    machine.client.policy_set(str(path))
    program.until(lambda sms: sms == 32)
    until(lambda: set(machine.seen(pid)["decided"]) == {"Bind", "Reflex"})  # type: ignore[index,call-overload]
    texts = [each["text"] for each in machine.client.why(pid)["decisions"]]
    assert any(text.startswith(f"{pid}: 32 SMs; room for others [") for text in texts)
    higher = machine.run("--lane", "spatial", "--priority", "high")
    program.until(lambda sms: sms == 8)
    higher.process.kill()
    machine.client.policy_set("static")
    program.until(lambda sms: sms == 132)
    assert machine.client.policy()["policy"]["standing"] == 0


SEEING = """
import json
from pathlib import Path
from detshare.ctl.policy.types import Policy
class Mine(Policy):
    tick_us = 100_000.0
    def on_tick(self, now):
        for each in now.tenants:
            if each.lane == "spatial" and each.delay_p99_us is not None:
                shapes = {{s.blocks: [s.threads, s.count, s.p50_us] for s in each.shapes}}
                seen = {{"blocks": each.blocks, "shapes": shapes, "p50": each.delay_p50_us, "p99": each.delay_p99_us}}
                Path("{0}.new").write_text(json.dumps(seen))
                Path("{0}.new").rename("{0}")
"""


def test_a_policy_sees_grids_their_times_and_how_long_launches_wait(machine: Machine, tmp_path: Path) -> None:
    """Four kernels at once on one stream, the last behind three of two milliseconds."""
    program = machine.run("--lane", "spatial", ahead=3)
    program.until(lambda sms: sms == 132)
    path, told = tmp_path / "seeing.py", tmp_path / "told"
    path.write_text(SEEING.format(told))
    machine.client.policy_set(str(path))

    found: dict[str, Any] = {}

    def complete() -> bool:
        program.line()  # or its pipe is full, and it stops
        if told.exists():
            found.update(json.loads(told.read_text()))
        # some launches are timed only: who was timed in the last second need not have had others before it
        return set(found.get("shapes", ())) == {"264", "4"} and found["p99"] >= 4000

    until(complete)
    threads, count, p50_us = found["shapes"]["264"]
    assert (threads, count > 0) == (64, True)
    assert p50_us >= 2000, "time on the GPU"
    assert found["shapes"]["4"][0] == 32
    assert next(iter(found["shapes"])) == "264", "what takes most time first"
    assert found["blocks"] in (4, 264)


def test_no_policy_delays_a_program(machine: Machine, tmp_path: Path) -> None:
    program = machine.run("--lane", "spatial")
    program.until(lambda sms: sms == 132)
    until(lambda: machine.seen(program.process.pid))
    for name, body in BAD.items():
        path = tmp_path / f"{name.replace(' ', '_')}.py"
        path.write_text(POLICY.format(body))
        machine.client.policy_set(str(path))
        assert set(program.after(now(), 50)) == {(132, 131)}, name
        until(lambda: machine.client.policy()["policy"]["failed"])
        assert set(program.after(now(), 50)) == {(132, 131)}, name
    machine.client.policy_set("static")
    assert machine.client.policy()["policy"]["failed"] == ""


def test_policies_change_under_load_and_nothing_is_lost(machine: Machine, tmp_path: Path) -> None:
    programs = [machine.run("--lane", "spatial", "--priority", klass) for klass in ("high", "low")]
    for program in programs:
        program.until(lambda sms: sms > 0)
    pids = [program.process.pid for program in programs]
    until(lambda: all(machine.seen(pid) for pid in pids))
    machine.client.verb("set-sm", str(pids[1]), percent=50)
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format("return [Bind(tenant, 32, 'room for others')]"))
    for number in range(SWITCHES):
        machine.client.policy_set((str(path), "fair", "strict", "slo-aware")[number % 4])
        if number % 20 == 0:
            assert all(program.after(now(), 5) for program in programs)
    machine.client.policy_set("static")
    status = machine.client.policy()["policy"]
    assert (status["counts"]["switches"], status["failed"], status["standing"]) == (SWITCHES + 2, "", 0)
    programs[0].until(lambda sms: sms == 132)
    programs[1].until(lambda sms: sms == 64)
    assert machine.seen(pids[1])["spatial"]["percent"] == 50, "what a person set"  # type: ignore[index]
    assert machine.seen(pids[1])["class"] == "low"  # type: ignore[index]
