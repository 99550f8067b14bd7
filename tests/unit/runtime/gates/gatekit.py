# SPDX-License-Identifier: Apache-2.0
"""A daemon that only hands out boards, and programs (gate_shell.c) that take them."""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity, Attach, Attached, Counters, Policy, Tier, create, monotonic_ns
from tests.patience import ended, run, until

ROOT = Path(__file__).resolve().parents[4]
RUNTIME = ROOT / "runtime"
LAYERS = ("base", "shm", "stream", "gate", "rck")
PARTS = ("base/thread", "shm/attach", "shm/pages", "shm/profile", "shm/shape", "gate/*", "rck/*")
UUID = b"u" * 16
TIERS = (Tier(layout.TIER_FULL, 0), Tier(layout.TIER_FIRST, 32), Tier(layout.TIER_FIRST, 64))
HOLD = {"mode_busy": layout.MODE_HOLD, "tier_busy": 1, "tiers": TIERS}


def build(folder: Path, name: str, flags: tuple[str, ...], parts: tuple[str, ...] = PARTS) -> Path:
    """The shell, compiled with some flags."""
    program = folder / name
    sources = [Path(__file__).with_name("gate_shell.c")]
    sources += [path for part in parts for path in sorted(RUNTIME.glob(f"{part}.c"))]
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    includes = [f"-I{RUNTIME / layer}" for layer in LAYERS]
    run(["gcc", *strict, *includes, *flags, *map(str, sources), "-o", str(program)], check=True)
    return program


class Tenant:
    """The pages of one program."""

    def __init__(self, folder: Path, index: int, activity: Activity) -> None:
        self.slot = activity.slots[index]
        self.maps = [create(folder / f"{index}.policy"), create(folder / f"{index}.counters")]
        self.policy, self.counters = Policy(self.maps[0]), Counters(self.maps[1])
        self.policy.init()
        self.counters.init()
        self.paths = [folder / f"{index}.policy", folder / f"{index}.counters", folder / "gpu.activity"]

    def descriptors(self) -> list[int]:
        modes = (os.O_RDONLY, os.O_RDWR, os.O_RDWR)
        return [os.open(path, mode) for path, mode in zip(self.paths, modes, strict=True)]


class Daemon:
    """Answers each request by `answer`, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "boards.sock"
        self.map: mmap.mmap = create(folder / "gpu.activity")
        self.activity = Activity(self.map)
        self.activity.init_for(UUID)
        self.asked: list[Attach] = []
        self.tenants: list[Tenant] = []
        self.answer: Callable[[Attach, Tenant], tuple[bytes, list[int]] | None] = self.good
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(self.path))
        self.socket.listen(16)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def tenant(self, class_: int, **policy: object) -> Tenant:
        """The pages for the next program that attaches."""
        tenant = Tenant(self.folder, len(self.tenants), self.activity)
        tenant.policy.write(class_=class_, **({"tiers": TIERS} | policy))
        tenant.policy.lease(monotonic_ns() + 10**12)
        self.tenants.append(tenant)
        return tenant

    def good(self, attach: Attach, tenant: Tenant) -> tuple[bytes, list[int]] | None:
        tenant.slot.assign(attach.pid, 0, tenant.policy.read().class_)
        return Attached(0, tenant.slot.index).pack(), tenant.descriptors()

    def run(self) -> None:
        while not self.stop.is_set():
            if not select.select([self.socket], [], [], 0.05)[0]:
                continue
            connection, _ = self.socket.accept()
            with connection, contextlib.suppress(OSError):
                self.asked.append(Attach.unpack(connection.recv(4096)))
                answer = self.answer(self.asked[-1], self.tenants[-1])
                if answer is None:
                    self.stop.wait(3)
                    continue
                data, descriptors = answer
                rights = array.array("i", descriptors).tobytes()
                control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
                connection.sendmsg([data], control)
                for descriptor in descriptors:
                    os.close(descriptor)

    def close(self) -> None:
        self.stop.set()
        self.thread.join()
        self.socket.close()


class Program:
    """One gate_shell."""

    def __init__(self, shell: Path, daemon: Daemon | None, log: Path, **environment: str) -> None:
        plain = {k: v for k, v in os.environ.items() if not k.startswith("DETSHARE_")}
        if daemon is not None:
            environment = {"DETSHARE_SOCKET": str(daemon.path)} | environment
        self.log_path = log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [shell],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=plain | environment,
                text=True,
            )

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, f"{line!r} had no answer; it said: {self.log}"
        return answer

    def number(self, line: str) -> int:
        return int(self.ask(line))

    def state(self) -> dict[str, int]:
        return {key: int(value, 0) for key, value in (pair.split("=") for pair in self.ask("state").split())}

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def attach(self) -> None:
        assert self.ask("attach") == "1", self.log
        until(lambda: self.state()["ready"] == 1)

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return ended(self.process)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
