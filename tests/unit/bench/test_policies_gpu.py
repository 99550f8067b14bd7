# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_steer import FakeSteer

from detshare.ctl.policy.registry import SHIPPED, load
from detshare.tools import results
from detshare.tools.bench.mix import policies_gpu
from detshare.tools.bench.mix.figures import Back, Server
from detshare.tools.bench.mix.policies_gpu import CASES, Case, chosen, rows, schemes
from detshare.tools.bench.mix.stage import Played
from detshare.tools.bench.session import Options, Session

FAKE = Path(__file__).resolve().parent / "fake_mix_worker.py"


def test_each_policy_has_a_case_with_parameters_that_it_takes() -> None:
    assert {case.policy for case in CASES} == set(SHIPPED)
    assert len({case.title for case in CASES}) == len(CASES)
    for case in CASES:
        load(case.policy, case.params)
    assert [case.policy for case in chosen(("fair",))] == ["fair"]
    assert chosen(()) == list(CASES)


def test_each_is_compared_with_static_and_where_it_can_be_with_default_slicing() -> None:
    for case in CASES:
        found = schemes(case)
        assert found[-1] == case.policy
        assert "static" in found
        assert ("default slicing" in found) is (case.lane == "temporal")


def seen(p99: float, *useful: float) -> Played:
    server = Server(100, p99 / 2, p99, p99, p99, 50.0, 0, 0.1, 0.1) if p99 else None
    names = ("vit", "gpt2", "fft")
    return Played(0, 10, server, {name: Back(5.0, 0.1, one, one) for name, one in zip(names, useful, strict=False)})


def judged(case: Case, found: dict[str, Played]) -> list[bool | None]:
    alone = {name: Back(10.0, 0.1) for name in ("vit", "gpt2", "fft")}
    return [row.ok for row in rows(case, found, alone, None) if row.ok is not None]


@pytest.mark.parametrize(
    ("policy", "static", "mine", "met"),
    [
        ("slo-aware", seen(9000, 0.02), seen(20_000, 0.12), [True, True]),
        ("slo-aware", seen(9000, 0.02), seen(30_000, 0.02), [False, False]),
        ("fair", seen(0, 0.3, 0.3, 0.3), seen(0, 0.32, 0.32, 0.33), [True, True]),
        ("fair", seen(0, 0.3, 0.3, 0.3), seen(0, 0.5, 0.2, 0.1), [False, False]),
        ("token-bucket", seen(0, 0.99), seen(0, 0.27), [True]),
        ("token-bucket", seen(0, 0.99), seen(0, 0.99), [False]),
        ("cost-aware", seen(2000, 0.4, 0.4), seen(3000, 0.42, 0.42), [True]),
    ],
)
def test_what_a_policy_promises_is_judged_for_the_policy_alone(
    policy: str, static: Played, mine: Played, met: list[bool]
) -> None:
    case, *_ = chosen((policy,))
    assert judged(case, {"default slicing": static, "static": static, policy: mine}) == met


def test_a_run_sets_each_policy_and_goal_and_takes_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(kind: str, *_words: str) -> list[str]:
        return [sys.executable, str(FAKE), "--kind", kind]

    monkeypatch.setattr(policies_gpu, "command", command)
    monkeypatch.setattr(policies_gpu, "LEARN", 0.1)
    monkeypatch.setattr(policies_gpu, "CASES", [replace(case, learn=0.1) for case in CASES])
    monkeypatch.setattr(policies_gpu, "ALONE_SECONDS", 0.3)
    steer = FakeSteer(tmp_path / "run")
    with Session(Options("policies-gpu", 0.5, 1, tmp_path, budget=500.0)) as session:
        session.steer = steer
        policies_gpu.run(session, ("slo-aware", "fair"))
        assert results.check(session.write()) == []
    goals = [each["us"] for name, _pid, each in steer.told if name == "deadline"]
    assert goals == 2 * [1000 * policies_gpu.GOAL_MS, None]
    assert {"name": "fair", "unit_ms": "10"} in [each for name, _pid, each in steer.told if name == "policy"]
    assert [name for name, _pid, _each in steer.told].count("let decide") == 4
    assert steer.classes == {}
    what = {row.what for row in session.rows}
    assert {"slo-aware: static: vit", "slo-aware, saturated: slo-aware: vit", "fair: fair: fft"} <= what
