# SPDX-License-Identifier: Apache-2.0
"""Running a measurement part by part on this machine's GPU; what was measured is written after each part."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from detshare.tools import results
from detshare.tools.bench.ebpf import native
from detshare.tools.bench.ebpf.part import Line, Part, PartError
from detshare.tools.bench.vm.report import Report

__all__ = ["EXPERIMENTS", "measure", "parts"]

EXPERIMENTS: Final = {
    "ebpf-objects": "objects",
    "ebpf-overhead": "overhead",
    "dirty": "dirty",
    "root-backend": "root",
}
_PACKAGE: Final = "detshare.tools.bench.ebpf"
_END_S: Final = 10.0
"""that a part has to end its programs when it is told to end itself"""


def parts(name: str) -> dict[str, Part]:
    """Of an experiment, in order."""
    found: dict[str, Part] = importlib.import_module(f"{_PACKAGE}.{EXPERIMENTS[name]}").PARTS
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it started and left behind."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.killpg(process.pid, number)
            process.wait(_END_S)


def _read(process: subprocess.Popen[str], which: str, lines: list[Line], errors: IO[str]) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        try:
            lines.append({**json.loads(text), "part": which})
        except ValueError:
            errors.write(text)


def _one(name: str, which: str, part: Part, quick: bool, log: Path, lines: list[Line]) -> str:
    """Runs a part; its lines are added as they come. Why it did not end well; empty where it did."""
    words = [sys.executable, "-P", "-m", f"{_PACKAGE}.{EXPERIMENTS[name]}", which, *(["--quick"] if quick else [])]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        reader = threading.Thread(target=_read, args=(process, which, lines, errors), daemon=True)
        reader.start()
        why = ""
        try:
            process.wait(part.seconds)
        except subprocess.TimeoutExpired:
            why = f"it was ended after {part.seconds:g} s"
        finally:
            _end(process)
        reader.join(_END_S)
        if not why and process.returncode:
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            why = f"it ended with {process.returncode}: {' / '.join(said[-3:])[-500:]}"
    return why


def measure(name: str, out: Path, quick: bool, chosen: Sequence[str] = ()) -> list[results.Row]:
    """Rows that missed their target. PartError where nothing could be begun."""
    native.build()
    module = importlib.import_module(f"{_PACKAGE}.{EXPERIMENTS[name]}")
    which = [each for each in module.PARTS if not chosen or each in chosen]
    words = [f"detshare bench {name} --on gpu", *(["--quick"] if quick else []), *(f"--part {each}" for each in chosen)]
    report = Report(f"{name}-gpu", "gpu", " ".join(words))
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    failed: list[str] = []
    for each in which:
        report.say(f"{name}: {each}")
        begun, why = len(lines), "it was cut off"
        try:
            why = _one(name, each, module.PARTS[each], quick, logs / f"{name}-{each}.log", lines)
        finally:
            for line in lines[begun:]:
                report.record(line)
            if why:
                failed.append(each)
                report.say(f"{name}: {each}: {why}")
                report.record({"event": "failed", "part": each, "why": why})
            ended = results.Row("parts that did not end well", len(failed), "parts", target="== 0")
            report.rows = [*module.rows(lines), ended]
            report.write(out, results.machine())
    if not lines:
        raise PartError(f"no part measured anything; what they said is in {logs}")
    return report.rows
