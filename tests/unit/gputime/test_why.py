# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from detshare.ctl.core.gputime import Standing
from detshare.ctl.policy.decisions import why
from tests.unit.gputime.gpu_times import STALLED, program, snapshot

STATUS = {"name": "mine", "rule": "a test", "failed": ""}


def test_why_tells_turns_and_the_measurement_that_decided(tmp_path: Path) -> None:
    seen = snapshot(program(7, Standing.WAITS, floor=0.02), program(8, gpu_time=(STALLED,)))
    first = "\n".join(why.story(7, 600.0, seen, STATUS, tmp_path)["now"])
    for wanted in (
        "GPU 0: 30.0% of the last 5.0s (27.0% useful)",
        "GPU 0: waits for its turn; its next begins in 140ms",
        "floor 2.0% of the time",
        "slice 50 us; because gaps of 18.3 ms are 61 switches long",
        "beside it on its GPU: 8 python3 job8.py (class low)",
    ):
        assert wanted in first, first
    assert "no progress" not in first
    second = "\n".join(why.story(8, 600.0, seen, STATUS, tmp_path)["now"])
    assert "it has work on GPU 0 and made no progress for 3.2s" in second
