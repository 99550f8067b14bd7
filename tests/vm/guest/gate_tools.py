# SPDX-License-Identifier: Apache-2.0
"""What the guest's tests of doorbell gates share: a program that does to its doorbell what it is told, and gates."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from detshare.ctl.netlink import genl
from tests.patience import comes
from tests.vm.guest.kmod_tools import CLIENTS, LEAKS, PID, TRUTH, leak

GATES = LEAKS / "gates"


class Door:
    """A running nvdoor."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([CLIENTS / "nvdoor"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._ids = itertools.count(1)
        self._said: dict[tuple[int, str], dict[str, Any]] = {}
        self._news = threading.Condition()
        assert self.process.stdout
        self.ready = json.loads(self.process.stdout.readline())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            word = json.loads(line)
            with self._news:
                self._said[word["id"], word["event"]] = word
                self._news.notify_all()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, verb: str, *numbers: int) -> int:
        """Begins a command and returns its id."""
        number = next(self._ids)
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, (number, verb, *numbers))) + "\n")
        self.process.stdin.flush()
        return number

    def said(self, number: int, event: str, seconds: float | None = None) -> dict[str, Any] | None:
        """What it said of that, in so many seconds; None: as long as it takes."""
        if seconds is None:
            return comes(lambda: self._said.get((number, event)))
        with self._news:
            self._news.wait_for(lambda: (number, event) in self._said, seconds)
            return self._said.get((number, event))

    def end(self, number: int) -> dict[str, Any]:
        """What came of a command."""
        word = self.said(number, "end")
        assert word, f"command {number} does not end"
        assert word["known"]
        return word

    def do(self, verb: str, *numbers: int) -> dict[str, Any]:
        return self.end(self.ask(verb, *numbers))

    def tid(self, number: int) -> int:
        word = self.said(number, "begin")
        assert word
        return int(word["tid"])

    def waits(self, number: int, seconds: float = 0.3) -> bool:
        """Is the command under way, and stays so?"""
        return self.said(number, "begin") is not None and self.said(number, "end", seconds) is None

    def counted(self) -> int:
        """Rings that the simulated GPU has, by all doorbells of the program."""
        return counted(self.pid)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def counted(pid: int) -> int:
    rows = [line.split() for line in (TRUTH / "kicks").read_text().splitlines()[1:]]
    return sum(int(row[4]) for row in rows if int(row[3]) == pid)


class Gate:
    """The gates of a process, held by order."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._family = genl.DetShare()

    def hold(self, lease_ms: int = 60_000) -> None:
        self._family.hold_set(True, False, lease_ms, kind=PID, pid=self.pid)

    def release(self) -> None:
        self._family.hold_del(kind=PID, pid=self.pid)

    def stats(self) -> dict[str, int]:
        """The sum over its runs."""
        found: dict[str, int] = {}
        for line in GATES.read_text().splitlines():
            words = line.split()
            numbers = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            if numbers["pid"] == self.pid:
                found = {name: found.get(name, 0) + number for name, number in numbers.items()}
        return found

    def __enter__(self) -> Gate:
        self.hold()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (thread / "children").read_text().split())
    return found


def gone(pid: int) -> bool:
    """Nothing of a process is left."""
    return not Gate(pid).stats() and leak("waiting") == 0
