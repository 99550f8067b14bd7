# SPDX-License-Identifier: Apache-2.0
"""docs/write-a-policy.md, word for word: its file is written, its commands are run, their output is compared."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "write-a-policy.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = "=== command"

pytestmark = pytest.mark.e2e


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if found == kind]


def steps() -> list[tuple[str, list[str]]]:
    """Each command with the lines that the page shows of its output."""
    made: list[tuple[str, list[str]]] = []
    for block in blocks("console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                made.append((line[2:], []))
            else:
                made[-1][1].append(line)
    return made


def shown(lines: list[str], said: str) -> bool:
    """Whether it said these lines: ... stands for anything, a line of ... alone for any lines, spaces for spaces."""
    left = [" ".join(line.split()) for line in said.strip("\n").split("\n")]
    any_lines = False
    for line in lines:
        if line == "...":
            any_lines = True
            continue
        words = " ".join(line.split()).split("...")
        wanted = re.compile(".*?".join(map(re.escape, words)))
        index = next((index for index, each in enumerate(left) if wanted.fullmatch(each)), None)
        if index is None or (index and not any_lines):
            return False
        left, any_lines = left[index + 1 :], False
    return any_lines or not left


def test_the_page_is_true(tmp_path: Path) -> None:
    assert "bursts_first.py" in PAGE.read_text(encoding="utf-8")
    (source,) = blocks("python")
    (tmp_path / "bursts_first.py").write_text(source, encoding="utf-8")
    wanted = steps()
    assert len(wanted) > 12
    script = "\n".join(f"echo '{MARK} {index}'\n{command}" for index, (command, _) in enumerate(wanted))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    shell = subprocess.Popen(
        ["bash", "-c", f"{{ {script}\n}} 2>&1"], cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = shell.communicate(timeout=180)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # the page's daemon, if a step failed
    parts = re.split(rf"^{MARK} \d+\n", said, flags=re.MULTILINE)[1:]
    assert len(parts) == len(wanted), said
    for (command, lines), output in zip(wanted, parts, strict=True):
        if lines:
            assert shown(lines, output), f"$ {command}\n{output}\nis not\n" + "\n".join(lines)


def test_the_pages_policy_is_short() -> None:
    (source,) = blocks("python")
    assert len(source.splitlines()) <= 35
