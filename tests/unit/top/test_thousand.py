# SPDX-License-Identifier: Apache-2.0
"""A thousand tenants: what a key, a look and one frame for a script cost, in calls of Python functions and in imports.

Seconds are `detshare bench scale`'s.
"""

from __future__ import annotations

import functools
import io
import json
import os
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from statistics import median
from types import FrameType

import pytest
from rich.console import Console
from rich.live import Live
from top_fakes import counted, decision, snapshot

from detshare.ctl.top.app import Listed, show
from detshare.ctl.top.collector import Seen
from detshare.ctl.top.keys import View, handle
from detshare.ctl.top.rates import Rates
from detshare.ctl.top.rows import ordered
from tests.patience import run

TENANTS = 1000
KEY_CALLS = 60
"""for each tenant, from a key to the frame; some 50 ms a thousand tenants on a processor of 2020"""
LOOK_CALLS = 120
"""for each tenant, to take in what the daemon answers"""
ONCE_CALLS = 500
"""for each tenant, with what is imported late"""
HEAVY = {"aiohttp", "asyncio", "textual", "prometheus_client", "importlib.metadata", "detshare.ctl.daemon.daemon"}
"""what no command that only shows something needs: each takes longer to import than the frame to make"""

CROWD = snapshot(
    *(counted(pid, command=f"python3 job-{pid}.py " + "x" * 200) for pid in range(1, TENANTS + 1)),
    decisions=[decision(f"{pid}: something") for pid in range(8)],
    policy={"name": "slo-aware", "failed": ""},
)


def calls(work: Callable[[], object]) -> int:
    """How many Python functions it calls."""
    seen = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        seen += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_key_costs_few_calls(size: tuple[int, int]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=size[0], height=size[1])
    view, listed, seen = View(), Listed(), Seen(CROWD, "", True, time.monotonic())
    took = []
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def press(key: str) -> None:
            handle(view, key, ordered(listed.rows(seen), view.sort), True)
            live.update(show(console, seen, view, listed), refresh=True)

        for key in ["j", "k", "end", "pageup", "s", "s", "d", "/", *"job-9", "enter", "home", "down"]:
            took.append(calls(functools.partial(press, key)))
    # the first frame makes the rows; the median is what a person feels
    assert median(took) < KEY_CALLS * TENANTS, took


def test_rows_are_made_once_for_each_look() -> None:
    listed, seen = Listed(), Seen(CROWD, "", True, 0.0)
    first = listed.rows(seen)
    assert len(first) == TENANTS
    assert listed.rows(seen) is first
    assert listed.rows(Seen(CROWD, "", True, 1.0)) is not first


def test_a_look_costs_a_thousand_tenants_little() -> None:
    rates, took = Rates(), []
    for number in range(5):
        fresh = json.loads(json.dumps({**CROWD, "taken": float(number)}))
        took.append(calls(functools.partial(rates.add_to, fresh)))
    assert max(took) < LOOK_CALLS * TENANTS, took


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A socket that answers as a daemon with a thousand programs does."""
    body = json.dumps(CROWD).encode()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

    with tempfile.TemporaryDirectory(prefix="dst-") as folder:
        server = socketserver.ThreadingUnixStreamServer(f"{folder}/detshared.sock", Answer)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Path(folder)
        finally:
            server.shutdown()
            server.server_close()


ONCE = """
import sys
from detshare.ctl.cli.top import main
seen = {}
sys.setprofile(lambda frame, event, argument: seen.update({event: seen.get(event, 0) + 1}))
try:
    main()
finally:
    sys.setprofile(None)
    print(seen["call"], *sys.modules, file=sys.stderr)
"""


def test_once_imports_and_calls_little(run_dir: Path) -> None:
    command = [sys.executable, "-c", ONCE, "--run-dir", str(run_dir), "--once"]
    env = {**os.environ, "COLUMNS": "160", "PYTHONIOENCODING": "utf-8"}
    done = run(command, capture_output=True, env=env, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("python3 job-") == TENANTS
    called, *imported = done.stderr.split()
    assert "detshare.ctl.top" in imported
    assert HEAVY.isdisjoint(imported), HEAVY.intersection(imported)
    assert int(called) < ONCE_CALLS * TENANTS
