# SPDX-License-Identifier: Apache-2.0
"""What comes while the daemon ends: after it has put everything back it touches nobody."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.core.errors import ControlError
from detshare.ctl.daemon import daemon as daemon_module
from detshare.ctl.daemon import detshared
from detshare.ctl.policy.apply import Request
from tests.patience import LONG_S


def test_what_is_asked_while_it_ends_is_not_done_after_that(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay, with nobody to undo it: a request of a connection that was open, a program that starts."""
    monkeypatch.setattr(daemon_module, "START_SECONDS", 0.01)
    restores, go_on = threading.Event(), threading.Event()

    def close(restore: bool = True) -> None:
        restores.set()
        go_on.wait(LONG_S)

    monkeypatch.setattr(running.backend, "close", close)
    with ThreadPoolExecutor(2) as pool:
        ends = pool.submit(running.stop)
        assert restores.wait(LONG_S)
        looks, daemon = running.backend.looks, running.daemon
        asked = daemon._worker.submit(daemon._in_turn, lambda: daemon._verb_now("pause", "4242", {}))
        assert "may still happen" in daemon._steer(4300, "low", None, "")[0]
        decided = pool.submit(daemon._perform, [Request("pause", "4300", {})])
        go_on.set()
        with pytest.raises(ControlError, match="detshared is stopping"):
            asked.result(LONG_S)
        (answer,) = decided.result(LONG_S)
        assert isinstance(answer, ControlError)
        assert answer.stopped == "detshared is stopping"
        ends.result(LONG_S)
    daemon._worker.shutdown()
    assert running.backend.calls == []
    assert running.backend.looks == looks


def test_it_ends_well_where_standard_error_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detshared, "run", lambda *_: 0)
    monkeypatch.setattr(detshared.logs, "begin", lambda *_: None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as ended:
        detshared.main(["--run-dir", str(tmp_path), "--backend", "model"])
    assert ended.value.code == 0
