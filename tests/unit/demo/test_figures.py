# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from detshare.tools.demo.children import Child, Workload, latency, throughput
from detshare.tools.demo.errors import DemoError
from detshare.tools.demo.figures import Closing, Figures, percentile, table
from tests.patience import until


def closing(after: float | None, before: float | None = 6900.0) -> Closing:
    phases = {
        "alone": Figures(2340, 2450, 400),
        "before": Figures(5070, before, 400, 2262.4),
        "after": Figures(2440, after, 400, 2493),
        "released": Figures(5100, 7000, 300, 2250),
    }
    return Closing("model", "no GPU", "decode", "training", "images/s", phases, 20.0)


def test_percentile_is_a_value_that_was_measured() -> None:
    values = list(range(1, 101))
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (50, 99, 100)
    assert percentile([7.0], 99) == 7.0
    assert percentile([], 99) is None


@pytest.mark.parametrize(("after", "better"), [(2510.0, True), (6900.0, False), (8000.0, False), (None, False)])
def test_better_only_if_the_tail_fell(after: float | None, better: bool) -> None:
    assert closing(after).better is better
    assert closing(after).to_json()["better"] is better
    assert ("NOT better" in closing(after).verdict()) is (not better and after is not None)


def test_where_the_machine_stands_still_the_median_is_judged() -> None:
    alone = Figures(5000, 25000, 200)
    for after, better in ((5100, True), (13000, False)):
        phases = {"alone": alone, "before": Figures(12900, 28000, 200, 150), "after": Figures(after, 40000, 200, 60)}
        made = Closing("model", "m", "a", "b", "kernels/s", phases, 1.0)
        assert made.better is better
        assert "p50 12.90 ms before" in made.verdict()
        assert ("NOT better" in made.verdict()) is not better
    assert "p99" in closing(2510.0).verdict()


@pytest.mark.parametrize(("total", "slowest", "goes_on"), [(150, 70, True), (150, 0.0, False), (0.0, 0.0, False)])
def test_a_background_that_stands_still_is_no_success(total: float, slowest: float, goes_on: bool) -> None:
    phases = {
        "alone": Figures(3000, 3100, 200),
        "before": Figures(13000, 14000, 200, 150, 70),
        "after": Figures(3100, 3500, 200, total, slowest),
    }
    made = Closing("model", "m", "a", "b", "kernels/s", phases, 1.0)
    assert made.better is goes_on
    assert ("does NOT go on" in made.verdict()) is not goes_on
    assert table(made).splitlines()[-1].split() == ["the", "slower", "of", "them", "-", "70", f"{slowest:.0f}"]


def test_nothing_measured_is_not_better() -> None:
    assert not closing(10.0, None).better
    assert "nothing can be said" in closing(10.0, None).verdict()


def test_table_shows_ratio_and_proof_in_80_columns() -> None:
    text = table(closing(2510.0))
    assert max(map(len, text.splitlines())) <= 80
    assert "proof: model" in text
    assert "2.82x" in text
    assert "1.02x" in text
    assert "2493" in text


def test_windows_become_figures() -> None:
    windows = [
        {"t0": 1.0, "t1": 2.0, "count": 2, "latency_us": [10.0, 30.0]},
        {"t0": 2.0, "t1": 4.0, "count": 2, "items": 128, "latency_us": [20.0]},
    ]
    assert latency(windows) == Figures(20.0, 30.0, 3)
    assert throughput(windows) == pytest.approx(130 / 3)
    assert throughput([]) is None


SCRIPT = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("a library says hello"); print(json.dumps({"event": "ready"}), flush=True)
while True:
    t0 = time.monotonic(); time.sleep(0.05)
    line = {"event": "window", "t0": t0, "t1": time.monotonic(), "count": 5, "latency_us": [1.0] * 5}
    print(json.dumps(line), flush=True)
"""


def test_a_workload_is_read_and_ended() -> None:
    with Workload("a program", [sys.executable, "-c", SCRIPT], dict(os.environ)) as child:
        child.wait_ready()
        begin = time.monotonic()
        until(lambda: len(child.between(begin, time.monotonic())) >= 3)
        windows = child.between(begin, time.monotonic())
        assert all(window["t0"] >= begin for window in windows)
        pid = child.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_does_not_heed_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detshare.tools.demo.children._END_SECONDS", 0.2)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    with Child("a deaf program", [sys.executable, "-c", code], dict(os.environ)) as child:
        time.sleep(0.5)
        pid = child.pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_fails_gives_its_last_words() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('CUDA error: out of memory')"]
    with (
        Workload("the background", command, dict(os.environ)) as child,
        pytest.raises(DemoError, match=r"(?s)run the background: it ended with code 1:.*out of memory.*next:"),
    ):
        child.wait_ready(10)


def test_a_program_that_is_not_there() -> None:
    # with setpriv the failure comes from exec in the child, without it from Popen
    def start() -> None:
        with Workload("it", ["/absent/python3"], dict(os.environ)) as child:
            child.wait_ready(10)

    with pytest.raises(DemoError, match="No such file"):
        start()
