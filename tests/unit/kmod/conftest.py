# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl over the fake backend of the daemon's tests, called kmod."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from fake_backend import FakeBackend

from detshare.ctl import oneshot
from detshare.ctl.cli.main import main


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """No daemon: one-shot commands get this backend. The user counts as root."""
    made = FakeBackend()
    made.name = "kmod"
    made.proof = "gpu"
    monkeypatch.setattr(oneshot, "build_backend", lambda name, run_dir, repair=True: oneshot.Built(made, why="told"))
    monkeypatch.setattr(oneshot, "require_root", lambda asked: None)
    return made


@pytest.fixture
def ctl(backend: FakeBackend) -> Iterator[Callable[..., Result]]:
    run_dir = Path(tempfile.mkdtemp(prefix="detshare-"))

    def run(*args: str) -> Result:
        done = CliRunner().invoke(main, ["--run-dir", str(run_dir), *args], env={"COLUMNS": "80"})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    yield run
    shutil.rmtree(run_dir)
