# SPDX-License-Identifier: Apache-2.0
"""Real processes, the real child process, and a stand-in for the driver's checkpoint, below a daemon's backends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from spatial_lane import Lane

from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.backends.spatial.checkpoints import Checkpoints
from detshare.ctl.backends.spatial.lanes import Lanes
from detshare.ctl.core import procfs
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.snapshot import Outcome, Program, Skip, Snapshot, State
from detshare.ctl.core.verbs import request

STANDIN = Path(__file__).parent / "standin"
GIB = 1 << 30
GPUS = tuple(
    Gpu(f"GPU-{number}b269624-5005-67c3-4026-6cc0bb057439", number, name, f"0000:0{number}:00.0")
    for number, name in enumerate(("NVIDIA H200", "NVIDIA H200", "NVIDIA L4"))
)
SLEEPER = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
kept = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
print("up", flush=True)
time.sleep(1e6)
"""


class Temporal(Backend):
    """A backend that finds the programs that the stand-in has on the GPU: one that is checkpointed is not found."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.done: list[str] = []

    @property
    def name(self) -> str:
        return "root"

    def look(self, *, enforce: bool = True) -> Snapshot:
        programs = tuple(each for each in self._machine.programs if self._machine.on_gpu(each.id.pid))
        return Snapshot("root", "unit", "", 0.0, 0.0, GPUS, programs)

    def stirs(self) -> bool:
        return False

    @property
    def table(self) -> Mapping[str, Callable[..., Outcome]]:
        return {"resume": self._nothing, "release": self._nothing}

    def _nothing(self, who: str) -> Outcome:
        self.done.append(who)
        return Outcome("resume", skipped=(Skip(int(who), "it is not paused"),))

    def alive(self, process: ProcessId) -> bool:
        return procfs.start_time(process.pid) == process.start

    def doctor(self) -> list[Any]:
        return []

    def drain_events(self) -> list[Any]:
        return []

    def close(self, restore: bool = True) -> None:
        return


class Machine:
    """Programs, the stand-in's folder, and a daemon's backends over them."""

    def __init__(self, folder: Path, lane: Lane) -> None:
        self.folder, self._lane = folder, lane
        self.driver = folder / "driver"
        self.driver.mkdir()
        (self.driver / "gpus").write_text(json.dumps({gpu.uuid: gpu.name for gpu in GPUS}))
        (folder / "libcuda.so.1").write_bytes(b"x" * 4096)
        self._processes: list[subprocess.Popen[str]] = []
        self.programs: list[Program] = []
        self.told: list[str] = []
        self.moved: list[str] = []
        """GPUs that accounts went to"""
        self.start()

    def start(self) -> None:
        self.checkpoints = Checkpoints(self.folder, moved=lambda process, old, new: self.moved.append(new))
        self.temporal = Temporal(self)
        self.lanes = Lanes(self.temporal, ShimBackend(self._lane.service), self.checkpoints)
        self.lanes.look()

    def run(self, state: State = State.RUNNING, **behaves: object) -> int:
        command = [sys.executable, "-c", SLEEPER, str(self.folder / "libcuda.so.1")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        self._processes.append(process)
        self.behave(process.pid, state=0, gpu=GPUS[0].uuid, **behaves)
        start = procfs.start_time(process.pid)
        assert start is not None
        who, gpus = ProcessId(process.pid, start), (GPUS[0].uuid,)
        made = Program(who, "python train.py", "ann", "", state, gpus=gpus, memory_bytes=8 * GIB)
        self.programs.append(made)
        self.lanes.look()
        return process.pid

    def behave(self, pid: int, **behaves: object) -> None:
        path = self.driver / str(pid)
        data = json.loads(path.read_text()) if path.exists() else {}
        draft = path.with_suffix(".test")
        draft.write_text(json.dumps(data | behaves))
        draft.replace(path)

    def state(self, pid: int) -> int:
        return int(json.loads((self.driver / str(pid)).read_text())["state"])

    def gpu(self, pid: int) -> str:
        return str(json.loads((self.driver / str(pid)).read_text())["gpu"])

    def on_gpu(self, pid: int) -> bool:
        return self.state(pid) != 2

    def calls(self) -> list[str]:
        return [line.split()[0] for line in (self.driver / "calls").read_text().splitlines()]

    def do(self, verb: str, pid: int, **args: object) -> Outcome:
        return self.lanes.do(request(verb, str(pid), **args))

    def seen(self, pid: int) -> Program | None:
        self.told += [event.text for event in self.lanes.drain_events()]
        return next((each for each in self.lanes.look().programs if each.id.pid == pid), None)

    def where(self, pid: int) -> str:
        program = self.seen(pid)
        return program.parking.state if program is not None and program.parking is not None else ""

    def hears(self, words: str) -> bool:
        self.told += [event.text for event in self.lanes.drain_events()]
        return any(words in text for text in self.told)

    def close(self) -> None:
        self.checkpoints.close(restore=False)
        for process in self._processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def children() -> list[int]:
    """Threads and children may end while they are read."""
    found = []
    for each in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in _read(each).split():
            if b"detshare.ctl.checkpoint.child" in _read(Path(f"/proc/{int(pid)}/cmdline")):
                found.append(int(pid))
    return found


def _read(path: Path) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_bytes()
    return b""


def machine_in(folder: Path, lane: Lane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.syspath_prepend(str(STANDIN))
    path = os.pathsep.join(filter(None, (str(STANDIN), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("STANDIN_CHECKPOINTS", str(folder / "driver"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # a restore fails with it
    made = Machine(folder, lane)
    yield made
    made.close()
