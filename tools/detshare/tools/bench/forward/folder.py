# SPDX-License-Identifier: Apache-2.0
"""The raw folder of `nvfwd/claims`, also of one that was ended early."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

__all__ = ["GUESTS", "Line", "machine", "read"]

GUESTS: Final = ("sched", "programs")
Line = dict[str, Any]


def _said(path: Path) -> list[Line]:
    """Lines of JSON; the last may be torn."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = [json.loads(text) for text in texts[:-1] if text.startswith("{")]
    try:
        return [*lines, json.loads(texts[-1])]
    except ValueError:
        return lines


def read(folder: Path) -> list[Line]:
    """All that a run left, a line each. OSError, ValueError where it is none."""
    lines: list[Line] = []
    for guest in GUESTS:
        for number, line in enumerate(_said(folder / guest / "stdout"), 1):
            lines.append({"guest": guest, "n": number, **line})
        ends = [line for line in _said(folder / guest / "helper.log") if line.get("event") == "ended"]
        lines += [{"guest": guest, "step": "helper", **line} for line in ends[-1:]]
        log = folder / guest / "helper.log"
        refused = sorted(set(re.findall(r"refused: (.*), verdict", log.read_text()))) if log.exists() else []
        lines.append({"guest": guest, "step": "refused", "names": refused})
    if not any("guest" in line and line["step"] == "begin" for line in lines):
        raise ValueError("no guest said anything")
    lines += [{"step": "host", **line} for line in _said(folder / "host")]
    if (folder / "log-after").exists():
        before, after = ((folder / f"log-{when}").read_text().splitlines() for when in ("before", "after"))
        left = re.findall(r"\d+, (\d+)", (folder / "memory-after").read_text())
        lines.append({"step": "after", "mib": sum(map(int, left)), "log": after[len(before) :]})
    return lines


def machine(folder: Path) -> str:
    """In one line."""
    return "; ".join((folder / "machine").read_text().split("\n")).strip("; ")
