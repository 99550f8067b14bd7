# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from detshare.tools.bench.steer import Steer, SteerError, compute

pytestmark = pytest.mark.e2e


def test_a_daemon_of_its_own_is_started_asked_steered_killed_and_stopped(tmp_path: Path) -> None:
    steer = Steer(tmp_path / "run", "model")
    try:
        steer.start()
        assert steer.pid is not None
        program = next(one for one in steer.ps()["programs"] if compute(one))
        pid = program["pid"]
        assert steer.adopted(pid)["seen"] > 0
        before = compute(program)[0]["slice_us"]
        assert steer.ctl("set-slice", str(pid), "777")["changed"]
        assert steer.verb("set-slice", pid, slice_us=888, level="high")["changed"]
        changed = steer.program(pid)
        assert changed is not None
        assert compute(changed)[0]["slice_us"] == 888
        steer.release(pid)
        released = steer.program(pid)
        assert released is not None
        assert compute(released)[0]["slice_us"] == before
        with pytest.raises(SteerError, match="out of range"):
            steer.verb("set-slice", os.getpid() + 1, slice_us=1 << 62)
        steer.kill()
        assert steer.pid is None
        steer.start()
    finally:
        steer.stop()
    with pytest.raises(SteerError, match="no daemon answers"):
        steer.ps()


def test_a_daemon_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    steer = Steer(tmp_path / "run", "nonsense")
    with pytest.raises(SteerError, match=r"(?s)did not start: it ended with 2; its log ends: .*nonsense"):
        steer.start()
