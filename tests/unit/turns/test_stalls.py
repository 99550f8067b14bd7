# SPDX-License-Identifier: Apache-2.0
"""Of whom it is said that it has work and makes no progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from turns_stage import Paced, Sleeper, Stage, background

from detshare.ctl.backends.model.driver import ModelSwitchLog
from detshare.ctl.backends.model.workload import Latency, Workload
from detshare.ctl.backends.root.turns.rotation import Rotation
from detshare.ctl.core.driver import Gpu, NotAllowed
from tests.rest import after_first
from tests.unit.model import programs


def stalls(stage: Stage, seconds: float) -> Iterator[float]:
    """The longest that a look names, ten looks a second."""
    for _ in range(round(10 * seconds)):
        stage.run(0.1)
        yield max((time.stalled_s for each in stage.backend.look().programs for time in each.gpu_time), default=0.0)


@pytest.mark.parametrize("front", after_first([Paced(1500, 20_000), None, Paced(2000, 2000)]))
def test_who_comes_back_from_a_rest_has_not_waited_for_all_of_it(
    front: Workload | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    if front is not None:
        stage.backend.set_priority(stage.start("high", front), "high")
    for n in range(3):
        stage.backend.set_priority(stage.start(f"rests {n}", Sleeper(100, 4000, seed=n)), "low")
    stage.backend.set_priority(stage.start("busy", background(1)), "low")
    assert max(stalls(stage, 20)) < 2.0


def test_an_mps_server_without_work_is_not_said_to_have_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    server = programs.mps_server(stage.driver)
    programs.mps_client(stage.driver, server)
    stage.backend.set_priority(str(server.id.pid), "low")
    stage.backend.set_priority(stage.start("busy", background(1)), "low")
    assert max(stalls(stage, 5)) == 0.0


def test_who_is_kept_off_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    for name in ("a", "b"):
        stage.backend.set_priority(stage.start(name, background(1)), "low")
    stage.run(2)
    stage.backend.look()
    monkeypatch.setattr(Rotation, "step", lambda rotation, *_: frozenset([*rotation.states][:1]))
    assert max(stalls(stage, 4)) > 3.0


def test_without_the_log_who_rests_for_moments_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver calls it at rest, so that it stays on beside the holder, and neither gets on in a short slice."""
    stage = Stage(tmp_path, monkeypatch)

    def refuse(gpu: Gpu) -> ModelSwitchLog:
        raise NotAllowed(f"no log of GPU {gpu.minor}")

    monkeypatch.setattr(stage.driver, "switch_log", refuse)
    stage.backend.set_priority(stage.start("high", Latency(530, 4545)), "high")
    stage.backend.set_priority(stage.start("moments", Sleeper(300, 1000)), "low")
    stage.backend.set_priority(stage.start("busy", background(1)), "low")
    waited, longest = 0.0, 0.0
    for _ in range(80):
        done = stage.run(0.1)["busy"]
        waited = 0.0 if done else waited + 0.1
        longest = max(longest, waited)
        if stage.gpu.timeline.now % 250_000_000 < 100_000_000:
            stage.backend.look()
    assert longest < 0.6


def test_who_had_the_gpu_before_the_log_was_read_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, monkeypatch)
    pid = stage.start("busy", background(1))
    stage.driver.machine.advance(0.5)
    stage.backend.set_priority(pid, "low")
    assert max(stalls(stage, 3)) == 0.0


def test_an_mps_servers_time_is_its_own_whatever_the_log_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch)
    server = programs.mps_server(stage.driver)
    client = programs.mps_client(stage.driver, server)
    stage.driver.machine.start_work(server, stage.gpu, background(1))
    stage.start("other", background(2))
    assert max(stalls(stage, 2)) == 0.0
    found = {each.id: each for each in stage.backend.look().programs}
    stage.backend.close()
    (time,) = found[server.id].gpu_time
    assert 0.4 < time.share < 0.6
    assert not found[client.id].gpu_time
