# SPDX-License-Identifier: Apache-2.0
"""A daemon over the fake backend, in a thread of the test."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_backend import FakeBackend

from detshare.ctl.client import Client
from detshare.ctl.core.config import Config
from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.ctl.daemon import daemon as daemon_module
from detshare.ctl.daemon.daemon import Daemon
from detshare.ctl.daemon.detshared import listen
from detshare.ctl.oneshot import Built
from tests.patience import LONG_S


class Running:
    """What a test sees of a daemon that runs."""

    def __init__(self, run_dir: Path, backend: FakeBackend, config: Config, interval: float) -> None:
        self.run_dir = run_dir
        self.backend = backend
        self.socket = run_dir / SOCKET_NAME
        self.client = Client(run_dir)
        self.daemon = Daemon(run_dir, interval, None, config=config)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._main()))

    async def _main(self) -> None:
        await self.daemon.open("fake")
        runner, listening = await listen(self.daemon, self.socket)
        looking = asyncio.create_task(self.daemon.keep_looking())
        self._ready.set()
        await self._stop.wait()
        looking.cancel()
        self.socket.unlink()
        listening.close()
        self.daemon.end_readers()
        await self.daemon.close()
        await runner.cleanup()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(LONG_S)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(LONG_S)
            assert not self._thread.is_alive()


@pytest.fixture
def run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short: a socket's path has 107 bytes at most. Boards lie in it, so that a daemon that is killed leaves none."""
    path = Path(tempfile.mkdtemp(prefix="detshare-"))
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(path / "boards"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Start a daemon over a fake backend; `readings` as the model has them."""
    made: list[Running] = []

    def make(
        backend: FakeBackend | None = None,
        readings: Callable[[], object] | None = None,
        config: Config = Config(),  # noqa: B008  frozen
        interval: float = 0.03,
    ) -> Running:
        backend = backend or FakeBackend()
        monkeypatch.setattr(daemon_module, "build_backend", lambda name, where: Built(backend, readings))
        running = Running(run_dir, backend, config, interval)
        running.start()
        made.append(running)
        return running

    yield make
    for running in made:
        running.stop()


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    return start()
