# SPDX-License-Identifier: Apache-2.0
"""Where a mistake is made to happen, and how what a person sees of it becomes one text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.verbs import explain
from detshare.ctl.cli.main import main
from detshare.ctl.core.snapshot import Check, Outcome
from detshare.ctl.core.verbs import request
from detshare.tools.main import main as detshare
from tests.patience import run

MADE: dict[str, Callable[[Stage], str]] = {}
"""message of the page -> what makes it happen and gives the text that a person sees"""


DOCTOR: list[str] = []
"""lines of doctor that were looked at since somebody emptied it"""


def makes(*messages: str) -> Callable[[Callable[[Stage], str]], Callable[[Stage], str]]:
    """For a function that makes one of the page's messages, or several of one row."""

    def keep(function: Callable[[Stage], str]) -> Callable[[Stage], str]:
        for message in messages:
            assert message not in MADE, message
            MADE[message] = function
        return function

    return keep


def checked(checks: Iterable[Check]) -> str:
    """Lines of doctor; each that failed has its next step."""
    lines = []
    for check in checks:
        assert check.ok is not False or check.advice, check
        lines.append(f"{check.name}: {check.detail} next: {check.advice}")
    DOCTOR.extend(lines)
    return "\n".join(lines)


def left_alone(outcome: Outcome) -> str:
    """Why a verb changed nothing."""
    assert not outcome.changed
    return "; ".join(f"{skip.pid}: {skip.reason}" for skip in outcome.skipped)


class Stage:
    """One folder with a short path, and what a test may replace for its time."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.run_dir = folder / "run"
        self.driver = ModelDriver()

    def backend(self) -> RootBackend:
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        return RootBackend(self.driver, self.run_dir, name="model")

    def program(self, command: str = "train") -> ModelProcess:
        return scenario.cuda_process(self.driver, command)

    def refused(self, call: Callable[[], object], asked: str = "a verb") -> str:
        """The error with its next step."""
        try:
            call()
        except Exception as error:  # noqa: BLE001  whatever a person would be told
            told = explain(error, asked)
            assert told.next_step
            return str(told)
        raise AssertionError("it was not refused")

    def asked(self, verb: str, who: object = "4242", **args: object) -> str:
        """What the API says to a request that cannot be meant."""
        try:
            request(verb, who, **args)
        except Exception as error:  # noqa: BLE001
            told = explain(error, verb)
            assert told.usage, told
            return str(told)
        raise AssertionError("it can be meant")

    def ctl(self, *words: str, codes: Iterable[int] = (1, 2)) -> str:
        """What detshare-ctl says, on the model backend where there is no daemon."""
        return self._click(main, ["--backend", "model", "--run-dir", str(self.run_dir), *words], codes)

    def detshare(self, *words: str, codes: Iterable[int] = (1, 2)) -> str:
        return self._click(detshare, list(words), codes)

    @staticmethod
    def _click(command: Any, words: list[str], codes: Iterable[int]) -> str:
        done = CliRunner().invoke(command, words, env={"COLUMNS": "120"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code in codes, (done.exit_code, done.output)
        return done.output

    def process(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """All that a module of ours says as a process of its own."""
        done = run([sys.executable, "-m", *words], capture_output=True, text=True, env={**os.environ, **(env or {})})
        return done.stdout + done.stderr


def raising(error: Exception) -> Callable[..., Any]:
    """In place of a function: it fails."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail
