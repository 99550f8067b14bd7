# SPDX-License-Identifier: Apache-2.0
"""A daemon and programs whose memory can be parked, on the stand-in driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from builds import FAKECUDA, made

from detshare.ctl.client import Client
from tests.patience import ended, until

HERE = Path(__file__).parent
MIB = 1 << 20
SPATIAL = ("--lane", "spatial", "--park")
DAEMON = ("-m", "detshare.ctl.daemon.detshared")


class Machine:
    """A daemon with an arena of so many MiB, and programs under `detshare run`."""

    daemon_is: tuple[str, ...] = DAEMON

    def __init__(self, folder: Path, control: Path, arena: int = 256, incremental: bool = True, **more: str) -> None:
        made("runtime")
        made("fakecuda")
        self.folder = folder
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(FAKECUDA),
            "FAKECUDA_TAKEN": str(folder / "taken"),
            "DETSHARE_BOARD_DIR": str(folder / "boards"),
            "DETSHARE_MPS_CONTROL": str(control),
            **more,
        }
        self.config = folder / "detshare.toml"
        text = f'[park]\narena = "{arena}M"\nincremental = {str(incremental).lower()}\n'
        self.config.write_text(text, encoding="utf-8")
        self.client = Client(folder)
        self.programs: list[Program] = []
        self.start()

    def start(self) -> None:
        command = [sys.executable, *self.daemon_is, "--backend", "model"]
        command += ["--run-dir", str(self.folder), "--config", str(self.config)]
        self.daemon = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=self.environment)
        until(lambda: self.daemon.poll() is not None or self.client.alive())

    def kill(self) -> None:
        self.daemon.kill()
        ended(self.daemon)

    def run(self, *options: str, size: int = 40) -> Program:
        program = Program(self, *options, size=size)
        self.programs.append(program)
        return program

    def seen(self, pid: int) -> dict[str, Any]:
        return next((p for p in self.client.programs()["programs"] if p["pid"] == pid), {})

    def parking(self, pid: int) -> dict[str, Any]:
        return self.seen(pid).get("parking") or {"state": "home", "parked_bytes": 0, "parkable_bytes": 0, "parks": 0}

    def told(self, pid: int) -> list[str]:
        return [event["text"] for event in self.client.events() if event["kind"] == "park" and event["pid"] == pid]

    def verb(self, name: str, pid: int, **args: object) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        answer = self.client.verb(name, str(pid), **args)
        return answer["changed"], answer["skipped"]

    def close(self) -> None:
        for program in self.programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.communicate()
        if self.daemon.poll() is None:
            self.daemon.terminate()
            ended(self.daemon)


class Program:
    def __init__(self, machine: Machine, *options: str, size: int) -> None:
        command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(machine.folder), *options]
        command += ["--", sys.executable, str(HERE / "park_client.py"), str(size)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=machine.environment
        )
        assert self.answer() == "ready", self.process.communicate()[1]

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, what: str) -> str:
        self.ask(what)
        return self.answer()
