# SPDX-License-Identifier: Apache-2.0
"""The live model moves with its clock, and answers the controls as the demo needs it to."""

from __future__ import annotations

import pytest

from detshare.ctl.backends.model.live import LONGEST_STEP_S, LiveModel


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def settle(model: LiveModel, clock: Clock, seconds: float = 6.0) -> None:
    for _ in range(round(seconds / 0.5)):
        clock.now += 0.5
        model.catch_up()


def control(model: LiveModel, pid: int, command: str, target: int, **values: int) -> None:
    opener = next(h for h in model.openers() if h.id.pid == pid)
    spec = model.abi.control(command)
    with model.borrow(opener.id, opener.control_fds[0]) as descriptor:
        client = model.rm.clients_of(model.machine.processes[pid].fds[opener.control_fds[0]])[0].handle
        status = descriptor.control(client, target, spec.number, model.abi.layout(spec.params).pack(**values))
    assert model.abi.status_name(status) == "NV_OK"


def test_it_shows_what_priorities_do() -> None:
    clock = Clock()
    model = LiveModel(clock=clock)
    serve, train, notebook = model.openers()
    assert [h.command for h in (serve, train)] == ["python3 serve.py --model demo", "python3 train.py --epochs 90"]
    settle(model, clock)
    before = model.readings()
    assert set(before) == {serve.id.pid, train.id.pid}
    assert before[serve.id.pid].p50_us == pytest.approx(5070, rel=0.25)
    tsg = 0x5C000015
    control(model, serve.id.pid, "NVA06C_CTRL_CMD_SET_TIMESLICE", tsg, timesliceUs=1_000_000)
    control(model, serve.id.pid, "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", tsg, tsgInterleaveLevel=2)
    control(model, train.id.pid, "NVA06C_CTRL_CMD_SET_TIMESLICE", tsg, timesliceUs=50)
    settle(model, clock)
    after = model.readings()
    assert after[serve.id.pid].p50_us == pytest.approx(2440, rel=0.25)
    assert after[serve.id.pid].p99_us < before[serve.id.pid].p50_us
    assert after[serve.id.pid].count > before[serve.id.pid].count
    assert after[train.id.pid].throughput == pytest.approx(2493, rel=0.25)
    usage = model.usage()
    uuid = model.gpus()[0].uuid
    assert usage.gpu_share[notebook.id.pid, uuid] == 0
    assert sum(usage.gpu_share.values()) <= 1
    assert len(usage.memory_bytes) == 3


def test_it_stands_still_with_its_clock_and_skips_long_silences() -> None:
    clock = Clock()
    model = LiveModel(clock=clock)
    first = model.readings()
    assert model.readings() == first
    start = model.gpu_models[0].timeline.now
    clock.now += 3600
    model.readings()
    assert model.gpu_models[0].timeline.now - start == LONGEST_STEP_S * 1e9


def test_a_chain_of_questions_ends_where_the_model_is_slower_than_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    model = LiveModel(clock=clock)
    advance = model.machine.advance

    def slow(seconds: float) -> None:
        advance(seconds)
        clock.now += 4 * seconds

    monkeypatch.setattr(model.machine, "advance", slow)
    begun = clock.now
    for _ in range(50):
        clock.now += 0.01
        model.catch_up()
    assert clock.now - begun == pytest.approx(50 * (0.01 + 4 * 0.01))


def test_its_proof_is_the_model() -> None:
    assert LiveModel(clock=Clock()).proof == "model"
