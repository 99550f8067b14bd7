# SPDX-License-Identifier: Apache-2.0
"""What comes into a bucket, as kmod/sched/fill.h counts it: the file itself, compiled for user space."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

SCHED = Path(__file__).parents[3] / "kmod" / "sched"
KERNEL = """
#include <stdint.h>
typedef uint64_t u64;
static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 c) { return (unsigned __int128)a * b / c; }
"""
BENCH = """
#include "fill.h"
/* All that comes in, asked for so often. */
u64 filled(u64 ns, u64 rate, u64 times)
{
    u64 rest = 0, sum = 0;

    while (times--)
        sum += ds_fill(ns, rate, &rest);
    return sum;
}
"""
YEAR_NS = 365 * 86400 * 10**9


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("fill")
    (folder / "linux").mkdir()
    (folder / "linux" / "types.h").write_text("", encoding="ascii")
    (folder / "linux" / "math64.h").write_text(KERNEL, encoding="ascii")
    (folder / "bench.c").write_text(BENCH, encoding="ascii")
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", f"-I{folder}", f"-I{SCHED}"]
    done = subprocess.run(
        ["gcc", *flags, "-o", str(folder / "fill.so"), str(folder / "bench.c")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = ctypes.CDLL(str(folder / "fill.so"))
    made.filled.restype = ctypes.c_uint64
    made.filled.argtypes = [ctypes.c_uint64] * 3
    return made


@pytest.mark.parametrize("rate", [1, 3, 7, 100, 1_001, 333_333, 1_000_000])
@pytest.mark.parametrize("ns", [1, 250_000, 499_999])
def test_a_bucket_gets_its_rate_however_often_it_is_looked_at(bench: ctypes.CDLL, ns: int, rate: int) -> None:
    """At 1 us a second, looked at each 250 us, nothing came in; at 7, a half."""
    for times in (1, 3, 4_000_001):
        assert bench.filled(ns, rate, times) == ns * rate * times // 1_000_000


def test_one_that_nobody_looked_at_for_a_year_gets_it_too(bench: ctypes.CDLL) -> None:
    for rate in (1, 999_999, 1_000_000):
        assert bench.filled(YEAR_NS, rate, 1) == YEAR_NS * rate // 1_000_000
