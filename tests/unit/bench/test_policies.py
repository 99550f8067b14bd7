# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detshare.ctl.sim import arrivals
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS
from detshare.ctl.sim.study import Study
from detshare.tools.bench import policies, policy_cases


def record(scheme: str, seed: int, tpot: float, p50: float | None = 5.0) -> dict[str, Any]:
    figures = dict.fromkeys(policies.FIGURES, 1.0)
    figures |= {"TPOT violations %": tpot, "actions refused": 0.0, "calls: p99": 10.0, "calls: longest": 50.0}
    return {"load": "x", "scheme": scheme, "seed": seed, "figures": {**figures, "TPOT ms p50": p50}}


def test_equal_seeds_are_compared_and_the_interval_is_of_their_differences() -> None:
    records = [record("default", seed, 10.0 + seed) for seed in range(4)]
    records += [record("tpot-first", seed, 5.0 + seed, None) for seed in range(4)]
    rows = {row.what: row for row in policies.compared(records)}
    row = rows["x: tpot-first: TPOT violations %"]
    assert (row.value, row.baseline, row.ok) == (6.5, 11.5, True)
    for end in ("lower", "upper"):  # seeds differ much, their differences not at all
        assert rows[f"x: tpot-first: TPOT violations %: difference, {end} end"].value == pytest.approx(-5.0)
    assert "x: tpot-first: TPOT ms p50" not in rows  # nothing was measured
    assert policies.summary(records)[0].value == 6.5


def test_a_study_is_the_same_for_the_same_seed_and_static_is_what_the_default_does_at_rest() -> None:
    study = Study(
        MODELS["analytic-8b"], lambda seed: arrivals.bursts(3.0, 4.0, seed, 800, 100), 4.0, Gpu(), 1000.0, 15.0
    )
    once, again, static = study.run("slo-aware", 1), study.run("slo-aware", 1), study.run("static", 1)
    for figures in (again, static):
        for name, value in once.items():
            if not name.startswith("calls"):
                assert figures[name] == value or (np.isnan(value) and np.isnan(figures[name]))
    assert once["actions a second"] == 0
    first = study.run("tpot-first", 1, {"tpot_ms": "15"})
    assert first["actions a second"] > 0
    assert first["TPOT ms p50"] < once["TPOT ms p50"]


def test_a_window_without_requests_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.concatenate((np.arange(10.0), 500.0 + np.arange(10.0)))  # eight minutes without any
    recorded = arrivals.Trace("gap", times, np.full(20, 100), np.full(20, 10))
    draw = policies._windows(recorded, 1.0)
    assert all(len(draw(seed)) > 0 for seed in range(20))
    nothing = replace(recorded, times=np.concatenate(([0.0], 1e9 + np.arange(19.0))))
    with pytest.raises(SimError, match="a hundred windows"):
        policies._windows(nothing, 1.0)(1)


def test_without_a_folder_only_made_up_loads_are_run(tmp_path: Path) -> None:
    assert all(name.startswith("made up") for name in policies.loads(None))
    with pytest.raises(SimError, match=r"AzureLLMInferenceTrace_code.csv: cannot be read"):
        policies.loads(tmp_path)


def test_each_small_case_meets_its_target() -> None:
    cases = (policy_cases._static, policy_cases._strict, policy_cases._fair)
    rows = [row for case in cases for row in case(Gpu(switch_us=210.0))]
    assert [row.what for row in rows if row.ok is False] == []
    assert sum(row.ok is True for row in rows) >= 7
