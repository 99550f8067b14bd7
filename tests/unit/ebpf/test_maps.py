# SPDX-License-Identifier: Apache-2.0
"""Reading maps whole, work that is done rarely, and which programs were seen from their first call on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ebpf import bpf, checks, probes, rarely
from detshare.ebpf.bpf import Map, MapKind, MapSpec
from detshare.ebpf.libraries import Found
from detshare.ebpf.probes import Probes

FIRST, SECOND = Found("/usr/lib/libcuda.so.1", (1, 10)), Found("/proc/1/map_files/0-1", (2, 20))


@pytest.fixture
def numbers() -> Iterator[Map]:
    """Numbers by their thirds, of odd sizes."""
    if checks.loading().ok is not True:
        pytest.skip(checks.loading().text)
    made = Map(MapSpec("numbers", MapKind.HASH, 8, 12, 20_000))
    yield made
    made.close()


@pytest.mark.parametrize(("count", "batch"), [(0, 4096), (1, 4096), (4096, 4096), (10_007, 4096), (503, 1)])
def test_a_map_is_read_whole_however_many_calls_that_takes(
    numbers: Map, monkeypatch: pytest.MonkeyPatch, count: int, batch: int
) -> None:
    """A batch of one has less room than a bucket of the hash has entries."""
    monkeypatch.setattr(bpf, "_BATCH", batch)
    wanted = {struct.pack("<Q", n): struct.pack("<QI", n, n % 3) for n in range(count)}
    for key, value in wanted.items():
        numbers.set(key, value)
    found = list(numbers.items())
    assert len(found) == count
    assert dict(found) == wanted


def test_work_that_takes_long_rests_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(rarely, "time", SimpleNamespace(monotonic=lambda: now[0]))
    took = [0.0]

    def work() -> None:
        now[0] += took[0]

    do = rarely.rarely(work, 1.0)
    assert do()
    now[0] += 0.9
    assert not do()
    now[0] += 0.2
    took[0] = 0.5
    assert do()
    now[0] += 9.9
    assert not do()
    now[0] += 0.2
    assert do()


def libraries_in(folder: Path) -> Found:
    path = folder / "libcuda.so.1"
    path.write_bytes(b"a library")
    return Found(str(path), (path.stat().st_dev, path.stat().st_ino))


def test_a_library_whose_program_ended_is_attached_to_where_another_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path was that of the program (/proc/PID/map_files); the file is the same for all."""
    here, read = libraries_in(tmp_path), list[bytes]()
    monkeypatch.setattr(probes.libraries, "by_program", dict)

    def attach(self: Probes, path: str) -> None:
        Path(here.path).unlink()  # it ends now
        read.append(Path(path).read_bytes())

    monkeypatch.setattr(Probes, "_attach", attach)
    program: Any = SimpleNamespace(maps={})
    made = Probes(program, {}, lambda shape: "entered", "left")
    assert made.attach([replace(here, path="/proc/999999999/map_files/0-1")]) == 0
    assert (made.problems, made.paths) == ([], [])
    assert made.attach([replace(here, identity=(1, 1))]) == 0  # another file is mapped there by now
    assert made.attach([here]) == 1
    assert (read, made.paths) == ([b"a library"], [here.path])


def test_what_stops_an_attachment_names_the_library(tmp_path: Path) -> None:
    program: Any = SimpleNamespace(maps={})
    made, here = Probes(program, {}, lambda shape: "entered", "left"), libraries_in(tmp_path)
    assert made.attach([here]) == made.attach([here]) == 0
    (problem,) = made.problems
    assert f"read the functions of {here.path}" in problem


def test_early_is_who_had_mapped_a_library_when_it_was_attached_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who began earlier: interpreters do, long before they use a GPU."""
    mapping: dict[int, list[Found]] = {7: [FIRST]}
    starts = {7: 70, 8: 80, 9: 90}
    monkeypatch.setattr(probes.libraries, "by_program", lambda: mapping)
    monkeypatch.setattr(probes.procfs, "start_time", starts.get)
    monkeypatch.setattr(probes, "held", lambda found: nullcontext(found.path))
    monkeypatch.setattr(Probes, "_attach", lambda self, path: None)
    program: Any = SimpleNamespace(maps={})
    made = Probes(program, {}, lambda shape: "entered", "left")
    assert made.attach([FIRST]) == 1
    mapping |= {8: [FIRST], 9: [SECOND]}
    assert (made.whole(7), made.whole(8)) == (False, True)
    assert made.attach([FIRST, SECOND]) == 1
    assert [made.whole(pid) for pid in (7, 8, 9)] == [False, True, False]
    starts[9] = 91  # another program has that number now
    del starts[7]  # it ended: what was seen of it was a part
    assert [made.whole(pid) for pid in (7, 9)] == [False, True]
