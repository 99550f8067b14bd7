# SPDX-License-Identifier: Apache-2.0
"""docs/develop/write-a-policy.md, word for word: its file is written, its commands run, their output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import ROOT
from pages import blocks, play, steps
from policy_world import view

from detshare.ctl.policy import registry
from detshare.ctl.policy.types import Slice, Snapshot

PAGE = "develop/write-a-policy.md"

pytestmark = pytest.mark.e2e


def test_the_page_is_true(tmp_path: Path) -> None:
    assert "bursts_first.py" in (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    (source,) = blocks(PAGE, "python")
    (tmp_path / "bursts_first.py").write_text(source, encoding="utf-8")
    assert len(steps(PAGE)) > 12
    play(PAGE, tmp_path)


def test_the_pages_policy_counts_from_the_first_tick_that_sees_a_program(tmp_path: Path) -> None:
    (source,) = blocks(PAGE, "python")
    (tmp_path / "bursts_first.py").write_text(source, encoding="utf-8")
    policy = registry.load(str(tmp_path / "bursts_first.py")).policy

    def tick(**used_s: float) -> dict[str, tuple[int, str]]:
        tenants = tuple(view(name, used_us=used * 1e6) for name, used in used_s.items())
        actions = policy.on_tick(Snapshot(0.0, "temporal", 132, tenants))
        return {each.tenant: (each.level, each.reason) for each in actions if isinstance(each, Slice)}

    assert tick(busy=5.39, rests=0.7) == {}
    busy, rests = (0, "used 90 % of the last second"), (2, "used 10 % of the last second")
    assert tick(busy=6.29, rests=0.8, new=30) == {"busy": busy, "rests": rests}
    assert tick(busy=7.19, rests=0.9, new=30.1) == {"busy": busy, "rests": rests, "new": rests}


def test_the_pages_policy_is_short() -> None:
    (source,) = blocks(PAGE, "python")
    assert len(source.splitlines()) <= 35
