# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from detshare.tools.bench.mix import worker
from detshare.tools.bench.mix.worker import Worker, rest, start, warm
from detshare.tools.bench.process import ProgramError
from detshare.tools.bench.session import Options, Session
from tests.patience import comes

FAKE = Path(__file__).resolve().parent / "fake_mix_worker.py"


def fake(kind: str) -> list[str]:
    return [sys.executable, str(FAKE), "--kind", kind]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Session(Options("mix", 1.0, 1, tmp_path)) as made:
        yield made


def one(session: Session, kind: str) -> Worker:
    return warm(session, [start(session, kind, fake(kind))])[kind]


def until_steps(background: Worker, count: int) -> list[float]:
    return comes(lambda: found if len(found := background.steps(0.0, time.monotonic())) >= count else [])


def test_a_background_steps_only_between_go_and_stop(session: Session) -> None:
    background = one(session, "vit")
    time.sleep(0.3)
    assert background.steps(0.0, time.monotonic()) == []
    begin = time.monotonic()
    background.go()
    background.answered()
    until_steps(background, 20)
    background.stop()
    background.answered()
    end = time.monotonic()
    steps = background.steps(begin, end)
    assert len(steps) >= 20
    assert steps == sorted(steps)
    time.sleep(0.3)
    assert background.steps(end, time.monotonic()) == []
    background.go()
    background.answered()
    assert until_steps(background, len(steps) + 5)
    assert background.program.stop()["count"] >= len(steps) + 5


def test_a_server_counts_from_when_a_request_was_due(session: Session) -> None:
    served = one(session, "graph")
    begin = time.monotonic()
    served.go(period_ms=5)
    served.answered()
    served.program.wait_for("requests", 20, accept=lambda line: len(line["at"]) > 0)
    served.stop()
    served.answered()
    some = served.requests(begin, time.monotonic())
    assert len(some.at) == len(some.latency_us) == len(some.own_us) > 3
    assert all(later - earlier == pytest.approx(0.005, abs=2e-5) for earlier, later in pairwise(some.at))
    assert all(latency >= own >= 1900 for latency, own in zip(some.latency_us, some.own_us, strict=True))


def test_requests_that_cannot_be_kept_up_with_grow_late_and_are_dropped_at_last(session: Session) -> None:
    served = one(session, "graph")
    served.go(period_ms=0.5)
    served.answered()
    # a program that stood still for a second drops some before the others have grown late
    late = served.program.wait_for("requests", 30, accept=lambda line: max(line["latency_us"], default=0) > 500_000)
    assert max(late["own_us"]) < max(late["latency_us"])
    assert served.program.wait_for("requests", 30, accept=lambda line: line["dropped"] > 0)


def test_back_to_back_has_no_schedule(session: Session) -> None:
    served = one(session, "eager")
    served.go(period_ms=0)
    served.answered()
    line = served.program.wait_for("requests", 20)
    assert line["latency_us"] == line["own_us"]


def test_who_does_not_start_is_left_out_and_the_others_go_on(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    started = [start(session, kind, fake(kind)) for kind in ("jax", "fft")]
    assert list(warm(session, started)) == ["fft"]
    assert "no JAX in this test" in capsys.readouterr().err


def test_a_program_whose_starter_is_gone_ends(session: Session) -> None:
    background = one(session, "vit")
    stdin = background.program._process.stdin
    assert stdin is not None
    stdin.close()
    background.program.wait_for("summary", 20)
    with pytest.raises((ProgramError, ValueError)):
        background.go()


def test_who_does_not_come_to_its_rest_is_ended_and_told_of(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "ANSWER_SECONDS", 0.2)
    deaf, fine = one(session, "deaf"), one(session, "vit")
    for each in (deaf, fine):
        each.go()
    fine.answered(20)
    assert rest(session, [deaf, fine]) == [deaf]
    assert not deaf.program.alive
    assert fine.program.alive
    assert "did not say 'stopped'" in capsys.readouterr().err
