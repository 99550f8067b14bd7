# SPDX-License-Identifier: Apache-2.0
"""Rows and raw lines of an experiment in guests, and their files."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detshare.tools import results

__all__ = ["Report"]


@dataclass
class Report:
    """What an experiment found with one level of proof. `name` names the files."""

    name: str
    proof: str
    command: str
    rows: list[results.Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._raw: list[dict[str, Any]] = []
        self._begun = time.monotonic()
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Progress for the user, on standard error."""
        print(f"[{time.monotonic() - self._begun:6.1f} s] {text}", file=sys.stderr, flush=True)

    def record(self, line: dict[str, Any]) -> None:
        """Keep a line for the raw file; any thread."""
        with self._lock:
            self._raw.append({"t": round(time.monotonic() - self._begun, 3), **line})

    def row(self, what: str, value: float, unit: str, baseline: float | None = None, target: str | None = None) -> None:
        """Add a row; figures that are not whole are kept to six significant digits."""
        kept = value if value == int(value) else float(f"{value:.6g}")
        self.rows.append(results.Row(what, kept, unit, baseline, target))
        self.say(f"{what}: {value:.6g} {unit}")

    def kernel_log(self, what: str, lines: Iterable[dict[str, Any]]) -> None:
        """Rows about the kernel's log, counted in the guest. The host watches it too, and ends a run at a fault."""
        (log,) = (line for line in lines if line["event"] == "log")
        self.row(f"{what}: lines of the kernel's log that were read", log["lines"], "lines", target="> 0")
        self.row(f"{what}: lines of it that were overwritten before", log["lost"], "lines", target="== 0")
        self.row(f"{what}: oops, warning, BUG or refcount in it", log["faults"], "reports", target="== 0")

    @property
    def missed(self) -> list[results.Row]:
        """Rows whose target is not met."""
        return [row for row in self.rows if row.ok is False]

    def write(self, folder: Path, machine: str = "") -> Path:
        """NAME.json and raw/NAME.jsonl.gz; the path of the first. `machine`: another one than a guest of this."""
        raw = folder / "raw" / f"{self.name}.jsonl.gz"
        raw.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(raw, "wt", encoding="utf-8") as stream:
            for line in self._raw:
                stream.write(json.dumps(line, separators=(",", ":")) + "\n")
        guest = f"guest in QEMU without KVM on {results.machine()}"
        machine = machine or (results.machine() if self.proof == "unit" else guest)
        result = results.Result(
            self.name, self.proof, self.command, results.commit(), machine, results.now(), tuple(self.rows)
        )
        return results.write(result, folder)
