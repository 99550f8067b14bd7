# SPDX-License-Identifier: Apache-2.0
"""A daemon that makes room, and programs that together exceed the stand-in driver's one memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from builds import FAKECUDA, made
from spatial_lane import end_mps

from detshare.ctl.client import Client
from tests.patience import ended, until

HERE = Path(__file__).parent
SPATIAL = ("--lane", "spatial", "--park")
GPU = 128
"""MiB of the GPU"""


class Worker:
    """room_client.py under `detshare run`, or alone."""

    def __init__(self, environment: dict[str, str], before: list[str], *args: object) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, str(HERE / "room_client.py"), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        said = self.line()
        assert said == "ready", (said, self.process.communicate()[1])

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    @property
    def pid(self) -> int:
        return self.process.pid


class Machine:
    """A daemon with a policy for memory that is full."""

    def __init__(
        self, folder: Path, control: Path, when_full: str, wait: float, policy: str = "slo-aware", arena: int = 512
    ) -> None:
        made("runtime")
        made("fakecuda")
        self.folder, self.control = folder, control
        self.plain = {**os.environ, "LD_LIBRARY_PATH": str(FAKECUDA), "FAKECUDA_MEMORY": f"{GPU << 20}"}
        self.environment = self.plain | {
            "FAKECUDA_SHARED": str(folder / "memory"),
            "DETSHARE_BOARD_DIR": str(folder / "boards"),
            "DETSHARE_MPS_CONTROL": str(control),
        }
        config = folder / "detshare.toml"
        parameters = f'[policy]\nname = "{policy}"\n[policy.parameters]\nwhen_full = "{when_full}"\n'
        config.write_text(
            f'[park]\narena = "{arena}M"\nwait = {wait}\n{parameters}copy_percent = 50.0\n', encoding="utf-8"
        )
        self.client = Client(folder)
        self.workers: list[Worker] = []
        self.command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
        self.command += ["--run-dir", str(folder), "--config", str(config)]
        self.start()

    def start(self) -> None:
        self.daemon = subprocess.Popen(self.command, stderr=subprocess.DEVNULL, env=self.environment)
        until(lambda: self.daemon.poll() is not None or self.client.alive())

    def run(self, options: tuple[str, ...], *args: object, context: int = 0) -> Worker:
        """`context`: MiB that its context takes."""
        before = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(self.folder), *options, "--"]
        worker = Worker(self.environment | {"FAKECUDA_CONTEXT": str(context)}, before, *args)
        self.workers.append(worker)
        return worker

    def alone(self, *args: int) -> str:
        """What a program puts out without anybody, and without the library."""
        worker = Worker(self.plain, [], *args)
        worker.go()
        assert worker.line() == "has"
        said = worker.line()
        worker.process.communicate()
        return said

    def parking(self, worker: Worker) -> dict[str, Any]:
        programs = self.client.programs()["programs"]
        found = next((each for each in programs if each["pid"] == worker.pid), {})
        return found.get("parking") or {"parks": 0, "wants_bytes": 0, "state": "home"}

    def why(self, worker: Worker) -> str:
        story = self.client.why(worker.pid)
        return "\n".join(each["text"] for each in story["decisions"])

    def close(self) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.communicate()
        if self.daemon.poll() is None:
            self.daemon.terminate()
            ended(self.daemon)
        end_mps(self.folder, self.control)
