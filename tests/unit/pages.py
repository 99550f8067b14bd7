# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ whose sessions are run word for word: a console block's lines with $ are commands, the rest is output.

`...` stands for anything, a line of it alone for any lines, spaces for spaces. A command without lines may say what it
likes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from detshare.ctl.core.patience import BUSY_S, Patience
from tests.patience import LONG_S
from tests.unit.builds import ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = "=== done"
LOOKING = re.compile(r"^(sudo )?detshare-(ctl .*\b(ps|why|show|events)\b|top)")
"""commands that only look: on a busy machine the daemon's next look may be what shows it"""
PATIENCE_S = 30.0


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of a kind; "": those that have none."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [inside for found, inside in BLOCK.findall(text) if found == kind]


def sections(page: str) -> dict[str, list[tuple[str, list[str]]]]:
    """By heading of the second level, its steps; those without any are left out."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {title: _steps(body) for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    return {title: told for title, told in found.items() if told}


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each command with the lines that the page shows of its output."""
    return _steps((ROOT / "docs" / page).read_text(encoding="utf-8"))


def _steps(text: str) -> list[tuple[str, list[str]]]:
    made: list[tuple[str, list[str]]] = []
    for block in (inside for kind, inside in BLOCK.findall(text) if kind == "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                made.append((line[2:], []))
            else:
                made[-1][1].append(line)
    return made


def shown(lines: list[str], said: str) -> bool:
    """Whether it said these lines."""
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


def play(page: str, folder: Path) -> None:
    """Run the page's session in a folder and compare."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    with Session(["bash"], cwd=folder, env=environment) as session:
        for command, lines in steps(page):
            session.check(command, lines)


class Session:
    """A shell that is told one command after the other; `words` start it, or what brings its input and output here."""

    def __init__(self, words: Sequence[str], busy_s: float = BUSY_S, **named: Any) -> None:
        self.process = subprocess.Popen(
            words, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **named,
        )  # fmt: skip
        self._over = threading.Event()
        self._watcher = threading.Thread(target=_watch, args=(self.process, self._over, busy_s), daemon=True)
        self._watcher.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._watcher.join()
        _end(self.process)  # and the page's daemon, if a step failed
        self.process.communicate()

    def check(self, command: str, lines: list[str]) -> None:
        """AssertionError where it does not say what the page shows."""
        said = self.say(command)
        patience = Patience(PATIENCE_S)
        while lines and not shown(lines, said):
            late = not LOOKING.search(command) or patience.spent()
            assert not late, f"$ {command}\n{said}\nis not\n" + "\n".join(lines)
            said = self.say(command)

    def tell(self, command: str) -> None:
        """Let it do a command, which may be the end of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\n")
        self.process.stdin.flush()

    def say(self, command: str) -> str:
        """What it says to a command."""
        self.tell(f"{command}\n}} </dev/null\n{{ echo '{MARK}'")
        assert self.process.stdout is not None
        said = []
        while (line := self.process.stdout.readline()) != f"{MARK}\n":
            print(line, end="")  # shown by pytest where the test fails
            assert line, f"$ {command}\nended the session, or it hung: " + "".join(said)
            said.append(line)
        return "".join(said)


def _watch(shell: subprocess.Popen[str], over: threading.Event, busy_s: float) -> None:
    """Ends a session that hangs."""
    patience = Patience(LONG_S, shell.pid, busy_s)
    while not over.wait(0.25):
        if patience.spent():
            _end(shell)
            return


def _end(shell: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
