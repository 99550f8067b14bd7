# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: the fake backend, without a daemon and behind one."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from fake_backend import FakeBackend

from detshare.ctl import oneshot
from detshare.ctl.cli.main import main


class Ctl:
    """detshare-ctl in this process."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def __call__(self, *args: str) -> Result:
        done = CliRunner().invoke(main, ["--run-dir", str(self.run_dir), *args], env={"COLUMNS": "80"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done


@pytest.fixture
def run_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="detshare-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def ctl(run_dir: Path) -> Ctl:
    return Ctl(run_dir)


class FakeGuard:
    """Stands for the guardian process."""

    pid = 1

    def __init__(self) -> None:
        self.stopped = 0

    def alive(self) -> bool:
        return not self.stopped

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> list[FakeGuard]:
    made: list[FakeGuard] = []

    def start(run_dir: Path, asked: str) -> FakeGuard:
        made.append(FakeGuard())
        return made[-1]

    monkeypatch.setattr(oneshot, "start_guardian", start)
    return made


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, guards: list[FakeGuard]) -> FakeBackend:
    """No daemon: one-shot commands get this backend. The user counts as root."""
    backend = FakeBackend()
    monkeypatch.setattr(oneshot, "build_backend", lambda name, run_dir, repair=True: oneshot.Built(backend))
    monkeypatch.setattr(oneshot, "require_root", lambda asked: None)
    return backend
