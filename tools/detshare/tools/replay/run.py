# SPDX-License-Identifier: Apache-2.0
"""Run a replay script against the driver of this machine, with the C program that does the calls."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["CHECKOUT", "CLIENTS", "Mismatch", "Report", "RunError", "build", "parse", "replay"]

CHECKOUT = Path(__file__).resolve().parents[4]
CLIENTS = CHECKOUT / "build" / "nvclient"
TIMEOUT_S = 120.0


class RunError(RuntimeError):
    """The replay could not be run; the text says what stopped it and what to do."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One value that the driver answered otherwise; `seq` is the record's number in the trace, -1 for a stand-in."""

    seq: int
    name: str
    what: str
    expected: int
    got: int

    def __str__(self) -> str:
        return f"record {self.seq}, {self.name}: {self.what} {self.got:#x}, recorded was {self.expected:#x}"


@dataclass(frozen=True, slots=True)
class Report:
    """How a replay went. A call is accepted if it returned as recorded, with the recorded status."""

    trace: str
    calls: int
    accepted: int
    mappings: int
    checks: int
    mismatches: tuple[Mismatch, ...]

    @property
    def agrees(self) -> bool:
        return not self.mismatches and self.accepted == self.calls

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.trace}: {self.accepted} of {self.calls} calls accepted with the recorded status, "
            f"{self.mappings} mappings, {self.checks} values compared, {len(self.mismatches)} differ"
        )


def build(out: Path = CLIENTS) -> Path:
    """Make the C programs in `out` (needs make and gcc, and a checkout); returns `out`. Raises RunError."""
    source = CHECKOUT / "tests" / "nvclient"
    if not (source / "Makefile").exists():
        raise RunError(f"build nvreplay: {source} is not there; run this in a checkout, or name --clients")
    words = ["make", "-C", str(source), "-j2", f"OUT={out}"]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / ".lock").open("w") as lock:  # who else wants them waits, and finds them made
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"build nvreplay: {error}; install make and gcc") from error
    if done.returncode:
        raise RunError(f"build nvreplay: make failed\n{done.stderr.strip()}")
    return out


def parse(output: str) -> list[Report]:
    """The reports in what one or several runs of nvreplay printed, one after the other."""
    reports: list[Report] = []
    found: list[Mismatch] = []
    for text in output.splitlines():
        if not text.startswith("{"):
            continue
        line = json.loads(text)
        if line["event"] == "mismatch":
            found.append(Mismatch(*(line[key] for key in ("seq", "name", "what", "expected", "got"))))
        elif line["event"] == "replayed":
            numbers = {key: int(line[key]) for key in ("calls", "accepted", "mappings", "checks")}
            reports.append(Report(trace=line["trace"], **numbers, mismatches=tuple(found)))
            found = []
    return reports


def replay(script: Path, clients: Path = CLIENTS, options: Sequence[str] = (), timeout: float = TIMEOUT_S) -> Report:
    """Say a converted trace to this machine's driver. Raises RunError."""
    program = clients / "nvreplay"
    try:
        done = subprocess.run(
            [str(program), str(script), *options], capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise RunError(f"replay {script.name}: {program} is not there; make -C tests/nvclient builds it") from error
    except subprocess.TimeoutExpired as error:
        raise RunError(f"replay {script.name}: a call did not come back within {timeout:g} s") from error
    reports = parse(done.stdout)
    if not reports:
        raise RunError(f"replay {script.name}: {done.stderr.strip() or f'nvreplay ended with {done.returncode}'}")
    return reports[0]
