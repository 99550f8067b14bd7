# SPDX-License-Identifier: Apache-2.0
"""When the module looks at who launches, as kmod/sched/steady.h says it: the file itself, compiled for user space."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

SCHED = Path(__file__).parents[3] / "kmod" / "sched"
MS = 1_000_000
LEAST = MS // 2
HEADERS = {
    "types": "#include <stdbool.h>\n#include <stdint.h>\ntypedef uint64_t u64;\n",
    "time64": "#define NSEC_PER_MSEC 1000000L\n",
    "minmax": "#define clamp_t(type, x, low, high) ((type)(x) < (type)(low) ? (type)(low) : "
    "(type)(x) > (type)(high) ? (type)(high) : (type)(x))\n",
}
BENCH = """
#include "steady.h"
bool look(struct ds_steady *steady, u64 now, bool launches) { return ds_steady_look(steady, now, launches); }
u64 gap(struct ds_steady *steady, u64 now, u64 least) { return ds_steady_gap(steady, now, least); }
"""


class Steady(ctypes.Structure):
    _fields_ = [("since_ns", ctypes.c_uint64), ("away", ctypes.c_bool), ("was_away", ctypes.c_bool)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("steady")
    (folder / "linux").mkdir()
    for name, text in HEADERS.items():
        (folder / "linux" / f"{name}.h").write_text(text, encoding="ascii")
    (folder / "bench.c").write_text(BENCH, encoding="ascii")
    flags = ["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", f"-I{folder}", f"-I{SCHED}"]
    command = ["gcc", *flags, "-o", str(folder / "steady.so"), str(folder / "bench.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = ctypes.CDLL(str(folder / "steady.so"))
    made.look.restype, made.gap.restype = ctypes.c_bool, ctypes.c_uint64
    return made


def looks(bench: ctypes.CDLL, launched: Callable[[int, int], bool], until: int) -> list[tuple[int, bool]]:
    """When it was looked at, and whether life was found: a launch since the look before. `launched(from, to)`."""
    steady, now, before = Steady(), MS, 0
    found = []
    while now < until:
        lives = launched(before, now)
        bench.look(ctypes.byref(steady), ctypes.c_uint64(now), lives)
        gap = int(bench.gap(ctypes.byref(steady), ctypes.c_uint64(now), ctypes.c_uint64(LEAST))) if lives else LEAST
        found.append((now, lives))
        now, before = now + gap, now
    return found


def each(period: int) -> Callable[[int, int], bool]:
    return lambda begin, end: begin // period != end // period


def test_who_launches_all_the_time_is_looked_at_some_hundred_times_a_second(bench: ctypes.CDLL) -> None:
    """It was 2000."""
    found = [when for when, _ in looks(bench, each(100_000), 2_000 * MS) if when > 1_000 * MS]
    assert len(found) < 500
    assert max(late - early for early, late in pairwise(found)) == 4 * MS


def test_who_has_launched_for_a_short_time_is_looked_at_as_often_as_others(bench: ctypes.CDLL) -> None:
    found = [when for when, _ in looks(bench, each(100_000), 16 * MS)]
    assert {late - early for early, late in pairwise(found)} == {LEAST}


def test_one_launch_in_a_long_time_does_not_look_like_many(bench: ctypes.CDLL) -> None:
    """Whose launches become rare is found out by the look that follows soon."""
    rare, often = each(4_900_000), each(100_000)
    found = looks(bench, lambda begin, end: (often if end < 500 * MS else rare)(begin, end), 600 * MS)
    quiet = [when for when, lives in found if not lives]
    assert quiet
    assert quiet[0] < 510 * MS


@pytest.mark.parametrize("begin", range(500 * MS, 505 * MS, 300_000))
def test_a_rest_of_five_milliseconds_is_found(bench: ctypes.CDLL, begin: int) -> None:
    rests = range(begin, begin + 5 * MS)
    often = each(100_000)
    found = looks(
        bench,
        lambda a, b: any(often(at - 100_000, at) and at not in rests for at in range(a + 1, b + 1, 50_000)),
        510 * MS,
    )
    assert any(not lives and when in rests for when, lives in found)


def test_who_is_found_quiet_after_a_long_time_is_told_apart(bench: ctypes.CDLL) -> None:
    steady = Steady()
    for now in range(MS, 200 * MS, LEAST):
        assert not bench.look(ctypes.byref(steady), ctypes.c_uint64(now), True)
    assert bench.gap(ctypes.byref(steady), ctypes.c_uint64(200 * MS), ctypes.c_uint64(LEAST)) == 4 * MS
    assert bench.look(ctypes.byref(steady), ctypes.c_uint64(204 * MS), False)
    assert not bench.look(ctypes.byref(steady), ctypes.c_uint64(204 * MS + LEAST), False)
