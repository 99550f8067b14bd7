# SPDX-License-Identifier: Apache-2.0
"""Everything at once, on the stand-in driver: daemon, MPS stand-in, detshare run, libdetshare.so, a CUDA program."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builds import FAKECUDA, LIBRARY, ROOT, made, once
from spatial_lane import end_mps, wait_for

from detshare.ctl.client import Client

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
        subprocess.run(["gcc", *flags, str(HERE / "census.c"), "-o", str(out), *linked], check=True, timeout=60)
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
        command = [sys.executable, "-m", "detshare.ctl.detshared", "--backend", "model", "--run-dir", str(self.folder)]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=self.environment)
        wait_for(lambda: self.daemon.poll() is not None or self.client.alive(), 20)

    def run(self, *options: str) -> Census:
        program = Census(self, *options)
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
            self.daemon.wait(20)


class Census:
    """A program that tells on which SMs its kernels run."""

    def __init__(self, machine: Machine, *options: str) -> None:
        command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(machine.folder), *options]
        command += ["--", sys.executable, str(HERE / "census_client.py")]
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

    def until(self, true: Callable[[int], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not true(self.line()[1]):
            assert time.monotonic() < end, "did not come true"


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
    wait_for(lambda: machine.seen(pid))
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
    wait_for(lambda: machine.seen(pid))
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
    machine.daemon.wait(10)
    assert set(program.after(now())) == {(32, 31)}
    machine.start()
    wait_for(lambda: machine.seen(program.process.pid))
    assert set(program.after(now())) == {(32, 31)}
    machine.client.verb("set-sm", str(program.process.pid), percent=50)
    assert set(program.after(now() + 2_000_000)) == {(64, 63)}


def test_an_ordinary_end_gives_the_whole_gpu_back(machine: Machine) -> None:
    program = machine.run("--lane", "spatial", "--sm", "25")
    program.until(lambda sms: sms == 32)
    machine.daemon.terminate()
    machine.daemon.wait(20)
    program.until(lambda sms: sms == 132)
    assert program.process.poll() is None


def test_a_hold_stops_and_resume_goes_on(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    program.line()
    pid = str(program.process.pid)
    wait_for(lambda: machine.seen(program.process.pid))

    def launches() -> int:
        lane = machine.seen(program.process.pid)["spatial"]  # type: ignore[index]
        return int(lane["launches"])  # type: ignore[index]

    machine.client.verb("hold", pid)
    time.sleep(0.5)
    held = launches()
    time.sleep(0.5)
    assert launches() - held <= 2
    machine.client.verb("resume", pid)
    wait_for(lambda: launches() > held + 100)


def test_a_hold_ends_with_the_daemon_that_asked_for_it(machine: Machine) -> None:
    program = machine.run("--lane", "spatial")
    program.line()
    wait_for(lambda: machine.seen(program.process.pid))
    machine.client.verb("hold", str(program.process.pid))
    machine.daemon.send_signal(signal.SIGKILL)
    machine.daemon.wait(10)
    begun = now()
    program.after(begun + 2_500_000_000, 1)


def test_a_library_of_the_spatial_lane_without_a_daemon_runs_natively(machine: Machine) -> None:
    machine.daemon.terminate()
    machine.daemon.wait(20)
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
    wait_for(lambda: machine.seen(pid))
    path = tmp_path / "mine.py"
    path.write_text(POLICY.format("return [Bind(tenant, 32, 'room for others'), Reflex(tenant, 8)]"))
    machine.client.policy_set(str(path))
    program.until(lambda sms: sms == 32)
    wait_for(lambda: set(machine.seen(pid)["decided"]) == {"Bind", "Reflex"})  # type: ignore[index,call-overload]
    texts = [each["text"] for each in machine.client.why(pid)["decisions"]]
    assert any(text.startswith(f"{pid}: 32 SMs; room for others [") for text in texts)
    higher = machine.run("--lane", "spatial", "--priority", "high")
    program.until(lambda sms: sms == 8)
    higher.process.kill()
    machine.client.policy_set("static")
    program.until(lambda sms: sms == 132)
    assert machine.client.policy()["policy"]["standing"] == 0


def test_no_policy_delays_a_program(machine: Machine, tmp_path: Path) -> None:
    program = machine.run("--lane", "spatial")
    program.until(lambda sms: sms == 132)
    wait_for(lambda: machine.seen(program.process.pid))
    for name, body in BAD.items():
        path = tmp_path / f"{name.replace(' ', '_')}.py"
        path.write_text(POLICY.format(body))
        machine.client.policy_set(str(path))
        assert set(program.after(now(), 50)) == {(132, 131)}, name
        wait_for(lambda: machine.client.policy()["policy"]["failed"])
        assert set(program.after(now(), 50)) == {(132, 131)}, name
    machine.client.policy_set("static")
    assert machine.client.policy()["policy"]["failed"] == ""


def test_policies_change_under_load_and_nothing_is_lost(machine: Machine, tmp_path: Path) -> None:
    programs = [machine.run("--lane", "spatial", "--priority", klass) for klass in ("high", "low")]
    for program in programs:
        program.until(lambda sms: sms > 0)
    pids = [program.process.pid for program in programs]
    wait_for(lambda: all(machine.seen(pid) for pid in pids))
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
