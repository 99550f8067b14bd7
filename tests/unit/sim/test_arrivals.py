# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.sim import arrivals
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.scenario import window

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_azure_trace_with_seven_digits_of_a_second(tmp_path: Path) -> None:
    rows = "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    trace = arrivals.load(write(tmp_path, AZURE + rows))
    assert list(trace.prompt) == [4808, 3180]
    assert list(trace.answer) == [10, 8]
    assert trace.times == pytest.approx([0.0, 0.052], abs=1e-6)


def test_an_azure_trace_with_a_zone(tmp_path: Path) -> None:
    rows = "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 01:00:01.017335+01:00,2399,6\n"
    assert arrivals.load(write(tmp_path, AZURE + rows)).times == pytest.approx([0.0, 1.007405], abs=1e-6)


def test_a_burstgpt_trace_out_of_order_with_a_failed_request(tmp_path: Path) -> None:
    rows = "45,ChatGPT,20,30,50,Conversation log\n5,GPT-4,472,18,490,API log\n6,GPT-4,9,0,9,API log\n"
    trace = arrivals.load(write(tmp_path, BURST + rows))
    assert list(trace.times) == [0, 40]
    assert list(trace.answer) == [18, 30]
    assert trace.skipped == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"trace\.csv:1: is neither"),
        ("a,b,c\n", r"trace\.csv:1: is neither"),
        (AZURE, "holds no request"),
        (AZURE + "2023-11-16 18:17:03,1\n", r"trace\.csv:2: 2 fields where the header names 3"),
        (AZURE + "2023-11-16 18:17:03,1,2\nyesterday,1,2\n", r"trace\.csv:3: TIMESTAMP is 'yesterday'"),
        (AZURE + "2023-11-16 18:17:03,x,2\n", r"trace\.csv:2: ContextTokens is 'x'"),
        (AZURE + "2023-11-16 18:17:03,1,-2\n", r"trace\.csv:2: GeneratedTokens is -2"),
        (BURST + "nan,a,1,2,3,b\n", r"trace\.csv:2: Timestamp is 'nan', which is no time"),
        (BURST + "1,a,1,2.5,3,b\n", r"trace\.csv:2: Response tokens is '2.5'"),
        (BURST + '1,a,1,2,3,"b\n', "is no CSV"),
    ],
)
def test_a_malformed_trace_names_file_line_and_reason(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SimError, match=says):
        arrivals.load(write(tmp_path, text))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from((AZURE, BURST)), st.text(max_size=200))
def test_no_text_brings_another_error(tmp_path_factory: pytest.TempPathFactory, header: str, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes((header + text).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(SimError):
        assert (np.diff(arrivals.load(path).times) >= 0).all()


@pytest.mark.parametrize("make", [arrivals.poisson, arrivals.bursts, arrivals.diurnal])
def test_made_up_requests_have_their_rate_and_are_fixed_by_their_seed(make: object) -> None:
    assert callable(make)
    options = {"day": 100.0} if make is arrivals.diurnal else {}
    first, again, other = (make(20.0, 400.0, seed, **options) for seed in (1, 1, 2))
    assert (first.times == again.times).all()
    assert len(first) != len(other) or (first.times != other.times).any()
    assert len(first) / 400.0 == pytest.approx(20.0, rel=0.1)
    assert (np.diff(first.times) >= 0).all()
    assert first.prompt.mean() == pytest.approx(1000, rel=0.1)
    assert first.prompt.min() >= 1


def test_bursts_are_denser_than_what_lies_between() -> None:
    times = arrivals.bursts(20.0, 400.0, 1).times
    assert (times % 10 < 1).mean() == pytest.approx(0.5, abs=0.05)


def test_a_window_of_a_trace_starts_at_zero_and_is_fixed_by_its_seed() -> None:
    trace = arrivals.poisson(5.0, 1000.0, 1)
    part = window(trace, 50.0, 3)
    assert 0 <= part.times.min() <= part.times.max() < 50
    assert (part.times == window(trace, 50.0, 3).times).all()
    assert len(window(trace, 50.0, 3, speed=4.0)) > 2 * len(part)
