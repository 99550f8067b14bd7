# SPDX-License-Identifier: Apache-2.0
"""A daemon over the fake backend with its page on TCP, and a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))

from fake_backend import FakeBackend

from detshare.ctl.client import Client
from detshare.ctl.core.config import Config
from detshare.ctl.core.config import Page as Settings
from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.ctl.daemon import daemon as daemon_module
from detshare.ctl.daemon.daemon import Daemon
from detshare.ctl.daemon.detshared import listen
from detshare.ctl.daemon.page.routes import Page
from detshare.ctl.daemon.page.serve import serve
from detshare.ctl.oneshot import Built
from detshare.tools.browser import chromium, shots
from tests.patience import LONG_S


class Paged:
    """A daemon in a thread of the test, with its page on `port` of the address `settings.listen`."""

    def __init__(self, run_dir: Path, backend: FakeBackend, settings: Settings, config: Config) -> None:
        self.backend = backend
        self.port = shots.free_port()
        listens = f"{settings.listen}:{self.port}" if settings.listen else ""
        self.settings = replace(settings, listen=listens)
        self.client = Client(run_dir)
        self.daemon = Daemon(run_dir, 0.03, None, config=replace(config, page=self.settings))
        self._run_dir = run_dir
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._main()))

    async def _main(self) -> None:
        await self.daemon.open("fake")
        page = Page(self.daemon, self.settings, self._run_dir)
        end: Callable[[], Awaitable[None]] | None = None
        try:
            if self.settings.listen:
                end = await serve(page, self.settings)
        except Exception as error:  # noqa: BLE001  start() raises it
            self._failure = error
            await self.daemon.close()
            self._ready.set()
            return
        runner, listening = await listen(self.daemon, self._run_dir / SOCKET_NAME, page=page)
        looking = asyncio.create_task(self.daemon.keep_looking())
        self._ready.set()
        await self._stop.wait()
        looking.cancel()
        listening.close()
        self.daemon.end_readers()
        await self.daemon.close()
        if end is not None:
            await end()
        await runner.cleanup()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(LONG_S)
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(LONG_S)
            assert not self._thread.is_alive()

    def code(self) -> str:
        """Of a new address."""
        return str(self.client.page()["address"].partition("#")[2])

    def token(self) -> str:
        status, made, _ = self.ask("POST", "/page/session", {"code": self.code()})
        assert status == 200
        return str(made["token"])

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        token: str = "",
        context: ssl.SSLContext | None = None,
        **headers: str,
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON, else text) and headers of an answer over TCP."""
        if context is not None:
            made: http.client.HTTPConnection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        else:
            made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG_S)
        return _ask(made, method, path, body, token, headers)

    def ask_socket(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """The same over the UNIX socket."""
        made = http.client.HTTPConnection("localhost", timeout=LONG_S)
        made.sock = socket.socket(socket.AF_UNIX)
        made.sock.connect(str(self._run_dir / SOCKET_NAME))
        return _ask(made, method, path, body, "", headers)


def _ask(
    made: http.client.HTTPConnection, method: str, path: str, body: object, token: str, headers: dict[str, str]
) -> tuple[int, Any, dict[str, str]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["Authorization"] = f"Bearer {token}"
    try:
        made.request(method, path, None if body is None else json.dumps(body), sent)
        answer = made.getresponse()
        data = answer.read().decode()
    finally:
        made.close()
    told = {name.lower(): value for name, value in answer.getheaders()}
    is_json = told.get("content-type", "").startswith("application/json")
    return answer.status, json.loads(data) if is_json else data, told


@pytest.fixture
def run_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short: a socket's path has 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="dsp-"))
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(path / "boards"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def paged(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Paged]]:
    """Start a daemon over a fake backend, with its page."""
    made: list[Paged] = []

    def make(backend: FakeBackend | None = None, config: Config = Config(), **settings: Any) -> Paged:  # noqa: B008
        used = backend or FakeBackend()
        monkeypatch.setattr(daemon_module, "build_backend", lambda name, where: Built(used, None))
        running = Paged(run_dir, used, Settings(**{"listen": "127.0.0.1", **settings}), config)
        running.start()
        made.append(running)
        return running

    yield make
    for running in made:
        running.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Chromium]:
    if chromium.find() is None:
        why = "needs a browser: chromium is not installed (make setup installs it on Debian)"
        if os.environ.get("CI"):  # there nothing is left out for want of a package
            pytest.fail(why)
        pytest.skip(why)
    with chromium.Chromium() as made:
        yield made


@pytest.fixture
def tab(browser: chromium.Chromium, stage: object, paged: object) -> Iterator[Callable[..., chromium.Tab]]:
    """Open tabs, each of a browser profile of its own; they close before daemons end. None may have had complaints."""
    made: list[chromium.Tab] = []

    def make(width: int = 1400, height: int = 900, **shape: Any) -> chromium.Tab:
        made.append(browser.tab(width, height, **shape))
        return made[-1]

    yield make
    for each in made:
        complaints = each.complaints
        each.close()
        assert not complaints


@pytest.fixture
def stage(run_dir: Path) -> Iterator[Callable[..., Any]]:
    """Start daemons of the model with more programs, one after the other; each with its port and its client."""
    made: list[Any] = []

    def make(*options: str, programs: int = 8, port: int = 0, changes: bool = True) -> Any:
        port = port or shots.free_port()
        told = ["--page-listen", f"127.0.0.1:{port}", *(["--page-changes"] if changes else []), *options]
        process = shots.stage(run_dir, programs, *told)
        process.port, process.client = port, Client(run_dir)  # type: ignore[attr-defined]
        made.append(process)
        return process

    yield make
    for process in made:
        if process.poll() is None:
            process.terminate()
        process.wait(LONG_S)
