# SPDX-License-Identifier: Apache-2.0
"""Real processes: detshared over a model machine with two GPUs, and the commands about policies of single ones."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.client import Client
from tests.patience import LONG_S, run, until

pytestmark = pytest.mark.e2e

SHORT = '''
from dataclasses import dataclass
from detshare.ctl.policy.types import Policy, Slice

class Short(Policy):
    """Rule: trainings have short slices."""

    @dataclass(frozen=True)
    class Params:
        us: float = 300.0

    def on_attach(self, now, tenant):
        if "train.py" in now.tenant(tenant).command:
            yield Slice(tenant, self.params.us, 0)
'''


class Live:
    def __init__(self, run_dir: Path, config: Path) -> None:
        self.run_dir, self.config = run_dir, config
        self.client = Client(run_dir)
        self.processes: list[subprocess.Popen[bytes]] = []

    def begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(__file__).with_name("two_gpus.py")), "--backend", "model"]
        command += ["--run-dir", str(self.run_dir), "--config", str(self.config)]
        self.processes.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        until(self.client.alive)
        return self.processes[-1]

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(self.run_dir), *words]
        return run(command, capture_output=True, text=True, check=False)

    def slices(self) -> tuple[int, int]:
        """Of the trainings on GPU 0 and 1."""
        programs = self.client.programs()["programs"]
        found = {}
        for name in ("--epochs", "--device 1"):
            mine = next(each for each in programs if name in each["command"])
            found[name] = next(tsg["slice_us"] for tsg in mine["tsgs"] if tsg["kind"] == "compute")
        return found["--epochs"], found["--device 1"]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Live]:
    run_dir = Path(tempfile.mkdtemp(prefix="detshare-"))
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(run_dir / "boards"))
    config = tmp_path / "x.toml"
    config.write_text("")
    made = Live(run_dir, config)
    yield made
    for each in made.processes:
        each.kill()
        each.wait(LONG_S)
    shutil.rmtree(run_dir, ignore_errors=True)


def test_each_gpu_has_its_policy_and_a_killed_daemons_follower_keeps_that(live, tmp_path):
    short = tmp_path / "short.py"
    short.write_text(SHORT)
    first = live.begin()
    assert live.ctl("policy", "set", str(short)).returncode == 0
    until(lambda: live.slices() == (300, 300))
    given = live.ctl("policy", "set", str(short), "us=700", "--gpu", "1")
    assert given.returncode == 0, given.stderr
    assert f"policy {short}\n" in given.stdout
    assert f"policy {short} us=700, GPU 1\n" in given.stdout
    until(lambda: live.slices() == (300, 700))
    shown = json.loads(live.ctl("policy", "show", "--json").stdout)
    assert [(each["gpu"], each["params"]) for each in shown["gpus"]] == [(1, {"us": "700"})]
    assert live.ctl("policy", "set", "static").returncode == 0
    until(lambda: live.slices() == (2048, 700))

    refused = live.ctl("policy", "set", "fair", "--gpu", "4")
    assert refused.returncode == 2
    assert "there is no GPU '4'; there are 0 (GPU-0" in refused.stderr
    assert "GPU 1" in live.ctl("doctor").stdout

    first.send_signal(signal.SIGKILL)
    first.wait(LONG_S)
    second = live.begin()
    until(lambda: live.slices() == (2048, 700))
    taken = live.ctl("policy", "unset", "--gpu", "1")
    assert taken.returncode == 0, taken.stderr
    until(lambda: live.slices() == (2048, 2048))
    again = live.ctl("policy", "unset", "--gpu", "1")
    assert again.returncode != 0
    assert "that GPU has no policy of its own" in again.stderr
    second.terminate()
    second.wait(LONG_S)

    own = f'[policy.gpus.1]\nname = "{short}"\nparameters = {{ us = 500 }}\n'
    live.config.write_text(f'[policy]\nname = "static"\n{own}')
    live.begin()
    until(lambda: live.slices() == (2048, 500))
    pid = next(each["pid"] for each in live.client.programs()["programs"] if "--device 1" in each["command"])
    assert f"policy {short}: trainings have short slices." in live.ctl("why", str(pid)).stdout
