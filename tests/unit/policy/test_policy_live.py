# SPDX-License-Identifier: Apache-2.0
"""Real processes: detshared --backend model, its policies, and the commands about them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.client import Client
from detshare.ctl.core.classes import BURST_US, RIVAL_US, STREAM_US, WINDOW_US
from tests.patience import LONG_S, run, until

pytestmark = pytest.mark.e2e

TURN_SLICES = (BURST_US, STREAM_US, WINDOW_US, RIVAL_US)

MINE = '''
from __future__ import annotations
from dataclasses import dataclass
from detshare.ctl.policy.types import Policy, Slice

class Mine(Policy):
    """Rule: programs whose command has `word` get short slices."""

    @dataclass(frozen=True)
    class Params:
        word: str = "train"
        slice_us: float = 300.0

    def on_attach(self, now, tenant):
        view = now.tenant(tenant)
        if view is not None and self.params.word in view.command:
            yield Slice(tenant, self.params.slice_us, 0, f"{self.params.word} may wait")
'''
SLEEPS = """
import time
from detshare.ctl.policy.types import Policy
class Sleeps(Policy):
    def on_attach(self, now, tenant):
        time.sleep(3600)
"""


class Live:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.client = Client(run_dir)
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
        self.processes.append(subprocess.Popen([*command, "--run-dir", str(self.run_dir)], stderr=subprocess.DEVNULL))
        until(self.client.alive)
        return self.processes[-1]

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(self.run_dir), *words]
        return run(command, capture_output=True, text=True, check=False)

    def program(self, name: str) -> dict:
        return next(each for each in self.client.programs()["programs"] if name in each["command"])

    def slice_us(self, name: str) -> int:
        return next(t["slice_us"] for t in self.program(name)["tsgs"] if t["kind"] == "compute")


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    run_dir = Path(tempfile.mkdtemp(prefix="detshare-"))
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(run_dir / "boards"))
    made = Live(run_dir)
    yield made
    for each in made.processes:
        each.kill()
        each.wait(LONG_S)
    shutil.rmtree(run_dir, ignore_errors=True)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_policy_is_tried_told_and_taken_back(live, mine):
    live.begin()
    listed = live.ctl("policy", "list")
    assert listed.returncode == 0, listed.stderr
    assert "* slo-aware: " in listed.stdout
    assert "  static: " in listed.stdout
    done = live.ctl("policy", "set", str(mine), "slice_us=400")
    assert done.returncode == 0, done.stderr
    assert "programs whose command has `word` get short slices." in done.stdout
    until(lambda: live.slice_us("train.py") == 400)
    assert live.slice_us("serve.py") == 2048
    until(lambda: live.program("train.py")["decided"] == {"Slice": f"policy {mine}"})
    pid = str(live.program("train.py")["pid"])
    assert "decided time slice by policy" in " ".join(live.ctl("show", pid).stdout.split())
    told = live.ctl("why", pid)
    assert told.returncode == 0, told.stderr
    assert f"{pid}: slice 400 us, level low; train may wait" in told.stdout
    assert f"time slice decided by policy {mine}" in told.stdout
    assert json.loads(live.ctl("why", pid, "--since", "1h", "--json").stdout)["pid"] == int(pid)

    assert live.ctl("set-priority", pid, "low").returncode == 0
    assert live.slice_us("train.py") in TURN_SLICES
    until(lambda: live.program("train.py")["decided"] == {"Slice": "hand"})
    assert "set-priority by a person" in live.ctl("why", pid).stdout
    assert live.ctl("policy", "set", str(mine), "slice_us=500").returncode == 0
    time.sleep(0.5)
    assert live.slice_us("train.py") in TURN_SLICES, "what a person set stands"
    assert live.ctl("policy", "resume", pid).returncode == 0
    until(lambda: live.slice_us("train.py") == 500)

    assert live.ctl("policy", "set", "static").returncode == 0
    until(lambda: live.slice_us("train.py") != 500)
    shown = live.ctl("policy", "show")
    assert shown.returncode == 0
    assert "policy static" in shown.stdout
    assert "1 undone at a switch" in shown.stdout


def test_a_log_is_replayed_with_another_policy(live, mine):
    live.begin()
    assert live.ctl("policy", "set", str(mine)).returncode == 0
    until(lambda: live.slice_us("train.py") == 300)
    folder = str(live.run_dir / "decisions")
    until(lambda: "train may wait" in live.ctl("why", str(live.program("train.py")["pid"])).stdout)
    same = live.ctl("replay", folder, "--policy", str(mine), "--json")
    assert same.returncode == 0, same.stderr
    counts = json.loads(same.stdout)
    assert (counts["recorded"], counts["same"]) == (1, 1)
    assert all(not each["recorded"] for each in counts["differences"]), "besides what it would have done before"
    other = live.ctl("replay", folder, "--policy", str(mine), "slice_us=700")
    assert other.returncode == 0, other.stderr
    pid = live.program("train.py")["pid"]
    assert f"- {pid}: slice 300 us, level low; train may wait" in other.stdout
    assert f"+ {pid}: slice 700 us, level low; train may wait" in other.stdout
    assert live.ctl("replay", folder, "--policy", "nosuch").returncode == 2
    assert live.ctl("replay", str(live.run_dir / "none"), "--policy", "static").returncode == 2


def test_a_policy_that_sleeps_keeps_nobody_waiting(live, tmp_path):
    path = tmp_path / "sleeps.py"
    path.write_text(SLEEPS)
    live.begin()
    before = live.client.readings()
    assert live.ctl("policy", "set", str(path)).returncode == 0
    until(lambda: live.client.policy()["policy"]["failed"])
    shown = live.ctl("policy", "show").stdout
    assert "FAILED: on_attach did not return within 200 ms" in shown
    checks = {each["name"]: each for each in json.loads(live.ctl("doctor", "--json").stdout)["checks"]}
    assert checks["policy"]["ok"] is False
    assert "on_attach did not return within 200 ms" in checks["policy"]["detail"]
    pid = str(live.program("serve.py")["pid"])
    assert live.ctl("set-priority", pid, "high").returncode == 0
    until(lambda: live.client.readings()[pid]["count"] > before[pid]["count"] + 50)
    assert live.ctl("policy", "set", "fair").returncode == 0
    assert live.client.policy()["policy"]["failed"] == ""


def test_the_choice_survives_kill_9(live, mine):
    first = live.begin()
    assert live.ctl("policy", "set", str(mine), "slice_us=450").returncode == 0
    until(lambda: live.slice_us("train.py") == 450)
    os.kill(first.pid, signal.SIGKILL)
    first.wait(LONG_S)
    live.begin()
    status = live.client.policy()["policy"]
    assert (status["name"], status["params"]) == (str(mine), {"slice_us": "450"})
    until(lambda: live.slice_us("train.py") == 450)


def test_commands_say_what_stops_them(live, mine):
    assert live.ctl("policy", "list").returncode == 0, "needs no daemon"
    for words in (("policy", "show"), ("policy", "set", "fair"), ("policy", "resume", "1"), ("why", "1")):
        done = live.ctl(*words)
        assert done.returncode == 1
        assert "that needs the daemon" in done.stderr
    live.begin()
    for words, code in (
        (("policy", "set", "nosuch"), 2),
        (("policy", "set", "fair", "x"), 2),
        (("policy", "set", str(mine), "slice_us=much"), 2),
        (("policy", "resume", "nobody"), 1),
        (("why", "4000000"), 1),
        (("why", "0"), 2),
        (("why", "1000", "--since", "soon"), 2),
    ):
        done = live.ctl(*words)
        assert done.returncode == code, (words, done.stderr)
        assert done.stderr
