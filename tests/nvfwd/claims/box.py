# SPDX-License-Identifier: Apache-2.0
"""What the steps share: lines, programs that do as they are told, the module in the states that a step wants."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from detshare.ctl.netlink.genl import DetShare

PID = 0
"""the kind of account that is a process"""
MIB = 1 << 20
READY_S = 30.0
"""for a context, several at once in emulated processors"""
MODULE = Path("/sys/module/detshare")
HELPER = Path("/sys/kernel/debug/nvfwd/host")
BIN = Path("/run/detshare/bin")
"""of the guest: the host's root may have no insmod"""


def tell(step: str, **what: Any) -> None:
    print(json.dumps({"step": step, "t": round(time.monotonic(), 4), **what}, default=str), flush=True)


def plain(message: Any) -> dict[str, Any]:
    """Attributes by short name."""
    return {name.split("_A_", 1)[1].split("_", 1)[1].lower(): value for name, value in message["attrs"]}


def rows(messages: Any) -> list[dict[str, Any]]:
    return [plain(message) for message in messages]


def helper() -> dict[str, int]:
    """What the helper on the host holds and has counted; nothing where no helper is."""
    if not HELPER.exists():
        return dict.fromkeys(("handles", "maps", "pins", "waits", "descriptors", "refused"), 0)
    return {name: int(value) for name, value in (line.split() for line in HELPER.read_text().splitlines())}


class Program:
    """A program whose lines are kept as they come."""

    living: ClassVar[list[Program]] = []

    def __init__(self, path: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [str(path), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.living.append(self)
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, event: str, since: int = 0, seconds: float = READY_S) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for line in self.lines[since:]:
                if line["event"] == "failed":
                    raise RuntimeError(f"{self.pid}: {line}")
                if line["event"] == event:
                    return line
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.pid} ended with {self.process.returncode}")
            time.sleep(0.005)
        raise TimeoutError(f"{self.pid} did not say {event} within {seconds:g} s")

    def ask(self, line: str, event: str, seconds: float = READY_S) -> dict[str, Any]:
        since = len(self.lines)
        self.say(line)
        return self.wait(event, since, seconds)

    def kernels(self) -> int:
        """That ran, by the program's last line about it."""
        return max((int(line["kernels"]) for line in self.lines if line["event"] == "done"), default=0)

    def steps(self, begin: float, end: float) -> list[tuple[float, int]]:
        """How many kernels had run, and when."""
        done = [(line["t"], line["kernels"]) for line in self.lines if line["event"] == "done"]
        return [each for each in done if begin <= each[0] <= end]

    def requests(self, begin: float, end: float) -> list[float]:
        """Latencies, in microseconds, of those that began in this time."""
        return [line["us"] for line in self.lines if line["event"] == "request" and begin <= line["t"] <= end]

    def end(self) -> int:
        if self in self.living:
            self.living.remove(self)
        self.process.kill()
        return self.process.wait()

    @classmethod
    def end_all(cls) -> None:
        for left in tuple(cls.living):
            left.end()


class Box:
    """The guest."""

    def __init__(self, programs: Path, module: Path, seconds: float) -> None:
        self.programs, self.module, self.seconds = programs, module, seconds
        self._link: DetShare | None = None

    @property
    def link(self) -> DetShare:
        if self._link is None:
            self._link = DetShare()
        return self._link

    def load(self, *, module: bool = True, filtered: bool = True) -> None:
        """The module is there, or is not, and filters, or does not."""
        there = MODULE.exists()
        right = there and (MODULE / "parameters" / "filter").read_text().strip() == ("Y" if filtered else "N")
        if there and not (module and right):
            self.remove()
        if module and not right:
            self.insert(filtered=filtered)

    def remove(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        self._run("rmmod", "detshare")

    def insert(self, *, filtered: bool = True) -> None:
        self._run("insmod", str(self.module), *([] if filtered else ["filter=0"]))

    @staticmethod
    def _run(*words: str) -> None:
        done = subprocess.run(
            [str(BIN / words[0]), *words[1:]], capture_output=True, text=True, check=False, timeout=30
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")

    def program(self, name: str, *words: str) -> Program:
        """With a context."""
        (made,) = self.start(name, 1, *words)
        return made

    def start(self, name: str, count: int, *words: str) -> list[Program]:
        """So many at once."""
        made = [Program(self.programs / name, *words) for _ in range(count)]
        for each in made:
            each.wait("ready")
        return made
