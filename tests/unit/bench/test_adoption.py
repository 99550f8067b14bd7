# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench import adoption
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Options, Session

FAKE = Path(__file__).resolve().parent / "fake_workload.py"


class Steer:
    """Every PID has one compute TSG, adopted in 260 ms."""

    def __init__(self) -> None:
        self.slice_us = 2048
        self.started = False

    def adopted(self, _pid: int, _tsgs: int = 1) -> dict[str, Any]:
        """The program, whatever is asked."""
        tsg = {"gpu": "g", "client": 1, "handle": 2, "kind": "compute", "channels": [3], "slice_us": self.slice_us}
        return {"tsgs": [tsg], "adopted_ms": 260.0, "seen": 1.0}

    def program(self, pid: int) -> dict[str, Any]:
        """The same."""
        return self.adopted(pid)

    def ctl(self, verb: str, *_words: str) -> None:
        """set-slice or release."""
        self.slice_us = adoption.TRIAL_US if verb == "set-slice" else 2048

    def start(self) -> None:
        """The daemon looks from now on."""
        self.started = True

    def ps(self) -> dict[str, Any]:
        """What it proves."""
        return {"proof": "unit"}

    def stop(self) -> None:
        """Nothing to end."""


def test_running_programs_have_a_target_and_newborn_ones_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = {name: [sys.executable, str(FAKE), "parent" if "forked" in name else "fast"] for name in adoption.ZOO}
    monkeypatch.setattr(adoption, "ZOO", fake)
    monkeypatch.setattr(adoption, "CONTEXTS", {})
    monkeypatch.setattr(adoption, "late", lambda _session: None)
    monkeypatch.setattr(adoption, "churn", lambda _session: None)
    monkeypatch.setattr(adoption, "settled", lambda session, pid, contexts: session.steer.adopted(pid, contexts))
    steer = Steer()
    begun: list[bool] = []
    start = Session.start

    def counting(session: Session, name: str, argv: list[str]) -> Program:
        begun.append(steer.started)
        return start(session, name, argv)

    monkeypatch.setattr(Session, "start", counting)
    with Session(Options("adoption", 1.0, 1, tmp_path)) as session:
        session.steer = steer  # type: ignore[assignment]
        adoption.run(session)
    rows = {row.what: row.ok for row in session.rows}
    whats = [name for name in fake if "forked" not in name] + [f"forked and spawned workers ({n} of 2)" for n in (1, 2)]
    for what in whats:
        assert rows[f"{what}: time to adopt"] is False
        assert rows[f"{what}: TSGs whose slice differs after release"] is True
        assert rows[f"started under the daemon: {what}: time to adopt"] is None
    assert rows["started under the daemon: programs that were not adopted"] is True
    assert len(rows) == 4 * len(whats) + len(whats) + 1
    assert begun == [False] * len(fake) + [True] * len(fake)
