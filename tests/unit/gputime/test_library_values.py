# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from detshare.ctl.core.gputime import Standing
from detshare.ctl.library.results import Look
from tests.unit.gputime.gpu_times import GPU, SCHEDULE, TIME, program, snapshot


def test_a_look_has_gpu_time_places_and_rotations() -> None:
    seen = snapshot(program(7, Standing.WAITS, floor=0.02), program(8, gpu_time=()))
    look = Look.of(json.loads(json.dumps(seen.to_json())))
    first, second = look.programs
    (had,) = first.gpu_time
    assert (had.gpu, had.share, had.useful, had.switches_s, had.stalled_s) == (GPU, 0.3, 0.27, 50.0, 0.0)
    assert had.history == TIME.history
    assert (first.gpu_share, second.gpu_share) == (0.3, 0.9)
    assert [(place.standing, place.next_s) for place in first.places] == [("waits", 0.14)]
    assert first.floor == 0.02
    (rotation,) = look.schedules
    assert (rotation.mode, rotation.pattern, rotation.holder, rotation.next) == ("turns", "bursts", "train", "eval")
    assert (rotation.left_s, rotation.why) == (0.04, SCHEDULE.why)


def test_a_daemon_of_another_version_says_nothing_of_them() -> None:
    data = snapshot(program(7)).to_json()
    del data["schedules"]
    for name in ("gpu_time", "places", "floor"):
        del data["programs"][0][name]
    look = Look.of(data)
    assert (look.schedules, look.programs[0].gpu_time, look.programs[0].places) == ((), (), ())
