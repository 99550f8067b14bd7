# SPDX-License-Identifier: Apache-2.0
"""The programs of a stress run: those that must lose nothing, and those that only make life hard."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detshare.tools.bench.vm.inside import guest

__all__ = ["Client", "Crowd", "stuck"]

PATIENCE = 240.0
"""seconds within which what was killed or asked to end has ended, on a busy host"""
ENDLESS = 100_000_000
WORKER = "nvstress"
OTHERS: tuple[tuple[object, ...], ...] = (
    ("nvlatency", "--us", 300, "--period-ms", 5),
    ("nvbackground", "--us", 2000, "--depth", 64),
    ("nvstorm", "--processes", 2, "--idle-us", 500),
    ("nvloop", "--kind", "memory", "--batches", ENDLESS // 100, "--calls", 100),
    ("nvloop", "--kind", "client,empty,handle", "--batches", ENDLESS // 100, "--calls", 100),
    ("nvfuzz", "--calls", ENDLESS, "--every", ENDLESS),
)
_SEEDED = ("nvstress", "nvstorm", "nvfuzz")


@contextlib.contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """What is started meanwhile has the signal blocked, and takes it when it is ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass
class Client:
    """A living program."""

    name: str
    process: subprocess.Popen[str]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def worker(self) -> bool:
        """Whether it counts what it launches."""
        return self.name == WORKER

    def last(self) -> dict[str, Any]:
        """The last line that it told; {} for none."""
        lines = self.output.read_text(encoding="utf-8").splitlines()
        return dict(json.loads(lines[-1])) if lines else {}


class Crowd:
    """All programs. `ended` are the last words of workers that ended by themselves or were asked to."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self._chance = chance
        self._folder = folder
        self._number = 0
        self.clients: list[Client] = []
        self.ended: list[dict[str, Any]] = []
        self.killed = 0

    def bear(self, worker: bool) -> Client:
        """Start a program, a worker or one of the others."""
        self._number += 1
        name, *words = (WORKER,) if worker else self._chance.choice(OTHERS)
        if name in _SEEDED:
            words += ["--seed", self._chance.randrange(1, 1 << 31)]
        if worker:
            words += ["--patience", PATIENCE]
        output = self._folder / f"{name}-{self._number}"
        with (
            output.open("w", encoding="utf-8") as out,
            Path(f"{output}.err").open("w", encoding="utf-8") as err,
            _held_back(signal.SIGTERM) if worker else contextlib.nullcontext(),
        ):
            process = guest.start(str(name), *words, stdout=out, stderr=err)
        client = Client(str(name), process, output)
        self.clients.append(client)
        return client

    def any(self, *, worker: bool | None = None) -> Client | None:
        """One of the living."""
        known = [each for each in self.clients if worker is None or each.worker == worker]
        return self._chance.choice(known) if known else None

    def kill(self, *clients: Client) -> None:
        """kill -9, and see them gone."""
        for client in clients:
            client.process.send_signal(signal.SIGKILL)
        for client in clients:
            self._gone(client)
            self.killed += 1
            self.clients.remove(client)

    def end(self, *clients: Client) -> None:
        """Ask them to end; a worker ends when all that it launched has ended."""
        for client in clients:
            client.process.send_signal(signal.SIGTERM)
            client.process.send_signal(signal.SIGCONT)
        for client in clients:
            self._gone(client)
            self.clients.remove(client)
            if client.worker:
                self._note(client)

    def look(self) -> None:
        """Workers do not end by themselves, others may: what ended badly is told."""
        for client in [each for each in self.clients if not each.alive]:
            self.clients.remove(client)
            if client.worker:
                self._note(client)

    def _note(self, client: Client) -> None:
        told = Path(f"{client.output}.err").read_text(encoding="utf-8").strip()
        last = client.last() | {"exit": client.process.returncode, "told": told[:400]}
        self.ended.append(last)
        guest.say(**last | {"event": "worker"})

    def _gone(self, client: Client) -> None:
        try:
            client.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            where = "; ".join(f"{task} {state}: {stack}" for task, state, stack in stuck(client.pid))
            raise guest.GuestError(f"{client.name} {client.pid} did not end in {PATIENCE:g} s: {where}") from None


def stuck(pid: int) -> list[tuple[int, str, str]]:
    """(thread, state, innermost functions of the kernel) of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            stack = " < ".join(line.split()[-1] for line in (task / "stack").read_text().splitlines()[:6])
            found.append((int(task.name), state, stack))
    return found


def waiting_long(seconds: float) -> list[str]:
    """Tasks of user space that are in an uninterruptible sleep now and still are, at the same place, after so long."""

    def asleep() -> dict[int, str]:
        found: dict[int, str] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if pid == os.getpid() or not _has_memory(folder):
                continue
            found |= {task: f"{task} {stack}" for task, state, stack in stuck(pid) if state == "D"}
        return found

    before = asleep()
    if not before:
        return []
    time.sleep(seconds)
    after = asleep()
    return [text for task, text in before.items() if after.get(task) == text]


def _has_memory(folder: Path) -> bool:
    try:
        return bool((folder / "cmdline").read_bytes())
    except OSError:
        return False
