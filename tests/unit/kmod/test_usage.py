# SPDX-License-Identifier: Apache-2.0
"""GPU time as kmod/sched/usage.c counts it: the file itself, compiled for user space."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KMOD = HERE.parents[2] / "kmod"
SCHED = KMOD / "sched"
HEADERS = ("kernel", "list", "math64", "overflow", "string", "time64", "types")
MS = 1_000_000
BEGIN = 1_000 * MS
LOW, MEDIUM, HIGH = 0, 1, 2


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("usage")
    (folder / "linux").mkdir()
    for name in HEADERS:
        (folder / "linux" / f"{name}.h").write_text('#include "usage_kernel.h"\n', encoding="ascii")
    target = folder / "usage.so"
    sources = [HERE / "usage_harness.c", SCHED / "usage.c", SCHED / "turns.c"]
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-pedantic", "-std=gnu11", "-O1", "-fPIC", "-shared"]
    flags += [f"-I{folder}", f"-I{HERE}", f"-I{KMOD}", f"-I{SCHED}"]
    done = subprocess.run(
        ["gcc", *flags, "-o", str(target), *map(str, sources)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = ctypes.CDLL(str(target))
    words = {
        "begin": 2,
        "known": 2,
        "ended": 2,
        "rest": 3,
        "groups": 3,
        "level": 2,
        "end": 2,
        "traps": 0,
        "charge": 1,
        "used": 1,
        "sections": 0,
        "sums_in_lock": 0,
    }
    for name, count in words.items():
        function = getattr(made, f"bench_{name}")
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_uint64] * count
    return made


def charge(bench: ctypes.CDLL, count: int, until: int) -> list[int]:
    """GPU time of each when all are known until then."""
    for i in range(count):
        bench.bench_known(i, until)
    assert bench.bench_charge(until) == until
    return [bench.bench_used(i) for i in range(count)]


def test_who_is_alone_pays_for_all_of_its_time(bench: ctypes.CDLL) -> None:
    bench.bench_begin(1, BEGIN)
    assert charge(bench, 1, BEGIN + 10 * MS) == [10 * MS]
    assert charge(bench, 1, BEGIN + 12 * MS) == [12 * MS]


def test_a_rest_before_a_launch_is_not_paid(bench: ctypes.CDLL) -> None:
    bench.bench_begin(1, BEGIN)
    assert charge(bench, 1, BEGIN + 10 * MS) == [10 * MS]
    bench.bench_rest(0, BEGIN + 12 * MS, BEGIN + 15 * MS)
    assert charge(bench, 1, BEGIN + 20 * MS) == [17 * MS]
    assert charge(bench, 1, BEGIN + 30 * MS) == [27 * MS], "and once only"


def test_a_rest_that_is_not_over_yet_stays(bench: ctypes.CDLL) -> None:
    bench.bench_begin(1, BEGIN)
    bench.bench_rest(0, BEGIN + 2 * MS, BEGIN + 6 * MS)
    assert charge(bench, 1, BEGIN + 4 * MS) == [2 * MS]
    assert charge(bench, 1, BEGIN + 10 * MS) == [6 * MS]


def test_who_has_ended_pays_until_then(bench: ctypes.CDLL) -> None:
    bench.bench_begin(1, BEGIN)
    bench.bench_ended(0, BEGIN + 3 * MS)
    assert charge(bench, 1, BEGIN + 10 * MS) == [3 * MS]


def test_time_is_divided_by_turns(bench: ctypes.CDLL) -> None:
    bench.bench_begin(2, BEGIN)
    bench.bench_groups(0, 4, 1000)
    bench.bench_groups(1, 1, 4000)
    # a round is 4 x (1 + 0.2) + 4 + 0.2 ms, of which each uses 4
    for used in charge(bench, 2, BEGIN + 90 * MS):
        assert used == pytest.approx(40 * MS, rel=1e-6)


def test_time_is_divided_by_levels(bench: ctypes.CDLL) -> None:
    bench.bench_begin(3, BEGIN)
    for i, level in enumerate((LOW, MEDIUM, HIGH)):
        bench.bench_level(i, level)
        bench.bench_groups(i, 2, 1000)
    # two of each: a round is 2 x 1 turns of LOW, 2 x 2 of MEDIUM, 2 x 6 of HIGH, of 1 + 0.2 ms each
    low, medium, high = charge(bench, 3, BEGIN + 18 * 12 * MS)
    assert (low, medium, high) == pytest.approx((20 * MS, 40 * MS, 120 * MS), rel=1e-6)


@pytest.mark.parametrize("groups", [1 << 10, 1 << 12, 1 << 16, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("slice_us", [2048, 60_000_000, 1 << 44, (1 << 64) - 1])
def test_rounds_that_do_not_fit_charge_nobody_more_than_his_time(
    bench: ctypes.CDLL, groups: int, slice_us: int
) -> None:
    bench.bench_begin(3, BEGIN)
    for i, level in enumerate((LOW, MEDIUM, HIGH)):
        bench.bench_level(i, level)
        bench.bench_groups(i, groups, slice_us)
    assert max(charge(bench, 3, BEGIN + 10 * MS)) <= 10 * MS
    assert bench.bench_end(2, BEGIN + 30 * MS) <= 20 * MS
    assert bench.bench_traps() == 0


def test_nobody_is_charged_before_all_are_known_for_200_ms_at_most(bench: ctypes.CDLL) -> None:
    bench.bench_begin(2, BEGIN)
    bench.bench_known(0, BEGIN + 100 * MS)
    assert bench.bench_charge(BEGIN + 100 * MS) == BEGIN
    assert bench.bench_used(0) == 0
    assert bench.bench_charge(BEGIN + 300 * MS) == BEGIN + 100 * MS
    assert bench.bench_used(0) == bench.bench_used(1) > 0


def test_the_lanes_lock_is_held_for_one_run_at_a_time_and_for_no_sum(bench: ctypes.CDLL) -> None:
    """Faults take it, and interrupts are off meanwhile: that must not grow with the number of entities."""
    count = 1000
    bench.bench_begin(count, BEGIN)
    for i in range(count):
        bench.bench_ended(i, BEGIN + (i + 1) * MS // 100)
    assert sum(charge(bench, count, BEGIN + 10 * MS)) > 0
    assert bench.bench_sums_in_lock() == 0
    assert bench.bench_sections() == 2 * count
