# SPDX-License-Identifier: Apache-2.0
"""The time model gives the order and rough size (25 %) of what was measured on an H100 (sections 3 and 8)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.gpu import ModelTsg
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.timeline import build_round
from detshare.ctl.backends.model.workload import Background, Idle, Latency, Workload
from tests.unit.model import programs

TOKEN_US = 2340
EVERY_US = 10_000


class Bench:
    def __init__(self, switch_us: float = 250.0) -> None:
        self.driver = ModelDriver(switch_us=switch_us)
        self.gpu = self.driver.gpu_models[0]

    def run(self, workload: Workload) -> ModelTsg:
        process = scenario.cuda_process(self.driver)
        self.driver.machine.start_work(process, self.gpu, workload)
        return [tsg for tsg in self.gpu.tsgs if tsg.runlist == 0][-1]

    def advance(self, seconds: float) -> None:
        self.driver.machine.advance(seconds)


@dataclass
class Row:
    p50_ms: float
    p99_ms: float
    background: float


def pair(every_us: float, be_us: int, lc_us: int, lc_high: bool) -> Row:
    bench = Bench()
    latency = Latency(TOKEN_US, every_us, seed=3)
    training = Background((50, 300), utilization=0.8, seed=4)
    lc, be = bench.run(latency), bench.run(training)
    bench.gpu.set_slice(lc, lc_us)
    bench.gpu.set_slice(be, be_us)
    if lc_high:
        bench.gpu.set_level(lc, 2)
    bench.advance(6)
    alone = Bench()
    reference = Background((50, 300), utilization=0.8, seed=4)
    alone.run(reference)
    alone.advance(6)
    ordered = sorted(value / 1e6 for _, value in latency.finished)
    return Row(
        ordered[len(ordered) // 2],
        ordered[len(ordered) * 99 // 100],
        training.completed / reference.completed,
    )


def near(value: float) -> object:
    return pytest.approx(value, rel=0.25)


@pytest.mark.parametrize(
    ("every", "be_us", "lc_us", "high", "p50", "p99", "background"),
    [
        (EVERY_US, 2048, 2048, False, 5.07, 7.03, 0.85),
        (EVERY_US, 200, 20_000, False, 2.48, 2.65, 0.87),
        (EVERY_US, 1000, 20_000, True, 2.44, 3.43, 0.80),
        (EVERY_US, 50, 1_000_000, True, 2.44, 2.51, 0.935),
        (0, 2048, 2048, False, 7.12, 7.25, 0.71),
        (0, 200, 20_000, True, 2.69, 2.74, 0.089),
        (0, 2000, 4000, False, 4.54, 4.58, 0.57),
    ],
)
def test_measured_rows(
    every: float, be_us: int, lc_us: int, high: bool, p50: float, p99: float, background: float
) -> None:
    row = pair(every, be_us, lc_us, high)
    assert row.p50_ms == near(p50)
    assert row.p99_ms == near(p99)
    assert row.background == near(background)


def test_measured_order() -> None:
    default = pair(EVERY_US, 2048, 2048, False)
    tuned = pair(EVERY_US, 50, 1_000_000, True)
    between = pair(EVERY_US, 1000, 20_000, True)
    assert TOKEN_US / 1000 < tuned.p50_ms < between.p50_ms < default.p50_ms
    assert tuned.p99_ms < between.p99_ms < default.p99_ms
    assert pair(0, 50, 1_000_000, True).background < pair(0, 2048, 2048, False).background


def test_alone_a_program_pays_nothing() -> None:
    bench = Bench()
    latency = Latency(TOKEN_US, EVERY_US)
    bench.run(latency)
    bench.run(Idle())
    bench.advance(2)
    # only the very first request has to load the context
    assert {value for _, value in list(latency.finished)[1:]} == {TOKEN_US * 1000}
    assert bench.gpu.timeline.switches == 1


@pytest.mark.parametrize("slices", [(2000, 2000), (2000, 6000), (1000, 8000)])
def test_back_to_back_shares_follow_slices(slices: tuple[int, int]) -> None:
    bench = Bench()
    programs = [Background((50, 300), seed=seed) for seed in (1, 2)]
    for program, slice_us in zip(programs, slices, strict=True):
        bench.gpu.set_slice(bench.run(program), slice_us)
    bench.advance(4)
    assert programs[1].busy / programs[0].busy == pytest.approx(slices[1] / slices[0], rel=0.03)
    cost = 2 * 250 / (sum(slices) + 2 * 250)
    assert sum(p.share(bench.gpu.timeline.now) for p in programs) == pytest.approx(1 - cost, abs=0.02)


def test_an_endless_kernel_is_preempted_at_its_slice() -> None:
    bench = Bench()
    endless = programs.Endless()
    latency = Latency(100, 5000, jitter=0)
    bench.run(endless)
    bench.run(latency)
    bench.advance(1)
    worst = max(value for _, value in latency.finished) / 1000
    assert latency.completed > 100
    assert worst <= 2048 + 250 + 100
    assert endless.completed == 0
    assert endless.busy > 0.8e9


def test_pause_stops_a_kernel_and_resume_goes_on_with_it() -> None:
    bench = Bench()
    endless = programs.Endless()
    tsg = bench.run(endless)
    bench.advance(0.5)
    bench.gpu.switch_channels(tsg.channels, enable=False)
    before = endless.busy
    bench.advance(0.5)
    assert endless.busy == before
    assert bench.gpu.timeline.running is None
    bench.gpu.switch_channels(tsg.channels, enable=True)
    bench.advance(0.5)
    assert endless.busy - before == pytest.approx(0.5e9 - 250_000, abs=2)


def test_disabling_only_scheduling_lets_the_slice_end() -> None:
    bench = Bench()
    tsg = bench.run(endless := programs.Endless())
    bench.advance(0.0015)
    before = endless.busy
    bench.gpu.switch_channels(tsg.channels, enable=False, only_scheduling=True)
    bench.advance(1)
    assert 0 < endless.busy - before <= 2_048_000


def test_preempt_is_no_pause() -> None:
    bench = Bench()
    tsg = bench.run(endless := programs.Endless())
    bench.advance(0.1)
    before = endless.busy
    bench.gpu.preempt(tsg)
    bench.advance(0.1)
    assert endless.busy - before == 100_000_000 - 250_000
    assert tsg.preempts == 1


def test_a_shorter_slice_takes_effect_at_once() -> None:
    bench = Bench()
    long, other = bench.run(programs.Endless()), bench.run(programs.Endless())
    bench.gpu.set_slice(long, 10_000_000)
    bench.advance(1)
    assert bench.gpu.timeline.running is long
    bench.gpu.set_slice(long, 1000)
    bench.advance(0.0005)
    assert bench.gpu.timeline.running is other


def test_a_hung_group_never_runs() -> None:
    bench = Bench()
    tsg = bench.run(endless := programs.Endless())
    tsg.hung = True
    bench.advance(1)
    assert endless.busy == 0


def test_death_in_the_middle_of_a_kernel_frees_the_gpu() -> None:
    bench = Bench()
    bench.run(programs.Endless())
    victim: ModelProcess = next(iter(bench.driver.machine.processes.values()))
    bench.run(other := programs.Endless())
    bench.gpu.set_slice(bench.gpu.tsgs[0], 10_000_000)
    bench.advance(0.1)
    bench.driver.machine.kill(victim)
    bench.advance(1.5)
    assert other.share(bench.gpu.timeline.now) == pytest.approx(1.0)


class FakeTsg:
    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.level = level


@pytest.mark.parametrize(
    ("levels", "order"),
    [
        ({"a": 1, "b": 1}, "ab"),
        ({"h": 2}, "h"),
        ({"h": 2, "m": 1, "n": 1}, "hmhn"),
        ({"h": 2, "l": 0, "k": 0}, "hlhk"),
        ({"h": 2, "m": 1, "l": 0}, "hmhl"),
        ({"h": 2, "m": 1, "n": 1, "l": 0, "k": 0}, "hmhnhlhmhnhk"),
        ({}, ""),
    ],
)
def test_levels_make_the_round(levels: dict[str, int], order: str) -> None:
    tsgs = [FakeTsg(name, level) for name, level in levels.items()]
    built = build_round(tsgs)  # type: ignore[arg-type] # a group's level is all that counts here
    assert "".join(tsg.name for tsg in built) == order  # type: ignore[attr-defined] # FakeTsg


def test_equal_seeds_give_equal_runs() -> None:
    assert pair(EVERY_US, 2048, 2048, False) == pair(EVERY_US, 2048, 2048, False)


def test_time_only_goes_forward() -> None:
    with pytest.raises(ValueError, match="only goes forward"):
        Bench().gpu.timeline.advance(-1)
