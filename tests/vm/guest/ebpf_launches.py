# SPDX-License-Identifier: Apache-2.0
"""The observer of launches on the stand-in for libcuda: known programs, counted exactly."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.core import procfs
from detshare.ebpf.launch_watch import LaunchWatch, Sums
from detshare.ebpf.launches import COPIES, Count, Kind, LaunchTracer, seconds_of
from tests.patience import comes, until
from tests.tracee.tracee import LIBCUDA, Tracee
from tests.vm.guest.ebpf_tools import tracing
from tests.vm.guest.kmod_tools import Hog


@pytest.fixture(scope="module")
def tracer() -> Iterator[LaunchTracer]:
    made = LaunchTracer(libcuda=[str(LIBCUDA)])
    yield made
    made.close()


@pytest.fixture
def tracee() -> Iterator[Tracee]:
    with Tracee() as made:
        made.say("alloc plain 65536")
        made.say("alloc plain 65536")
        yield made


def of(tracer: LaunchTracer, pid: int, *kinds: Kind) -> list[Count]:
    return [each for each in tracer.counts() if each.pid == pid and each.kind in kinds]


def test_10007_launches_are_counted_exactly(tracer: LaunchTracer, tracee: Tracee) -> None:
    tracee.say("launch 10007")
    counts = of(tracer, tracee.pid, Kind.LAUNCH)
    assert [each.calls for each in counts] == [10007]
    assert counts[0].stream > 2
    shapes = [each for each in tracer.shapes() if each.pid == tracee.pid]
    assert [(each.grid, each.block, each.calls) for each in shapes] == [((8, 1, 1), (128, 1, 1), 10007)]
    assert not tracer.trouble()


def test_every_interface_is_counted_with_its_stream(tracer: LaunchTracer, tracee: Tracee) -> None:
    tracee.say("mixed 1009")
    counts = of(tracer, tracee.pid, Kind.LAUNCH)
    assert sum(each.calls for each in counts) == 1009
    assert len({each.stream for each in counts}) == 1
    shapes = [each for each in tracer.shapes() if each.pid == tracee.pid]
    assert [(each.grid, each.block, each.calls) for each in shapes] == [((8, 1, 1), (128, 1, 1), 1009)]


def test_503_copies_are_counted_with_direction_and_bytes(tracer: LaunchTracer, tracee: Tracee) -> None:
    tracee.say("copy 503")
    found = {each.kind: (each.calls, each.bytes) for each in of(tracer, tracee.pid, *COPIES)}
    assert found == {
        Kind.COPY_HTOD: (168, 168 * 4096),
        Kind.COPY_DTOH: (168, 168 * 4096),
        Kind.COPY_DTOD: (167, 167 * 4096),
    }


def test_copies_by_structure_fills_graphs_and_waits(tracer: LaunchTracer, tracee: Tracee) -> None:
    tracee.say("copy2d 0 0 1 0 64 4 512")
    tracee.say("any 0 0 4096")
    tracee.say("set 0 0 4099")
    tracee.say("set2d 0 0 64 4 512")
    tracee.say("capture")
    tracee.say("kernel plain bump @0")
    tracee.say("captured")
    tracee.say("graph 17")
    for _ in range(3):
        tracee.say("sync")
        tracee.say("ssync")
    found = {(each.kind, each.stream > 2): each for each in of(tracer, tracee.pid, *Kind)}
    assert found[Kind.COPY_DTOD, False].bytes == 64 * 4
    assert found[Kind.COPY_OTHER, True].bytes == 4096
    assert found[Kind.MEMSET, False].bytes == 4099 + 64 * 4
    assert found[Kind.MEMSET, False].calls == 2
    assert found[Kind.GRAPH, True].calls == 17
    assert found[Kind.LAUNCH, True].calls == 1
    assert found[Kind.SYNC, False].calls == 1 + 3  # one by which the tracee said that it is there
    assert found[Kind.SYNC, True].calls == 3
    assert found[Kind.SYNC, True].ns >= found[Kind.SYNC, True].most_ns > 0


def test_a_request_is_from_the_first_launch_after_a_wait_to_the_end_of_the_next(
    tracer: LaunchTracer, tracee: Tracee
) -> None:
    tracee.say("sync")
    assert tracer.requests().get(tracee.pid, {}) == {}  # nothing was launched before it
    for _ in range(5):
        began = time.monotonic()
        tracee.say("launch 3")
        tracee.say("sync")
        tracee.say("ssync")  # another wait without a launch is no request
        took = time.monotonic() - began
    found = tracer.requests()[tracee.pid]
    assert sum(found.values()) == 5
    assert any(0 < seconds_of(bucket) <= 1.07 * took for bucket in found)
    tracer.forget(tracee.pid)
    assert tracee.pid not in tracer.requests()


def test_two_processes_are_told_apart_and_forgotten(tracer: LaunchTracer, tracee: Tracee) -> None:
    with Tracee() as other:
        other.say("alloc plain 4096")
        other.say("launch 13")
        tracee.say("launch 7")
        assert [each.calls for each in of(tracer, other.pid, Kind.LAUNCH)] == [13]
        assert [each.calls for each in of(tracer, tracee.pid, Kind.LAUNCH)] == [7]
    tracer.forget(other.pid)
    assert of(tracer, other.pid, *Kind) == []
    assert of(tracer, tracee.pid, Kind.LAUNCH) != []


def test_full_tables_are_reported() -> None:
    tracer = LaunchTracer(libcuda=[str(LIBCUDA)], shapes=1, streams=1)
    try:
        with Tracee() as tracee:
            tracee.say("alloc plain 4096")
            tracee.say("launch 3")
            tracee.say("kernel plain bump @0")
            tracee.say("sync")
        assert tracer.trouble().full > 0
        assert any("table was full" in note for note in tracer.notes())
    finally:
        tracer.close()


def test_a_stripped_libcuda_in_another_place_is_found_when_a_program_uses_it(
    tracer: LaunchTracer, tmp_path: Path
) -> None:
    """Two versions at once: the second has neither symbols nor debug information, and nobody named it."""
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["strip", "--strip-all", "-o", library, LIBCUDA], check=True)
    with Tracee(library=library.parent) as tracee:
        assert tracer.look() == 1
        tracee.say("alloc plain 4096")
        tracee.say("launch 11")
        assert [each.calls for each in of(tracer, tracee.pid, Kind.LAUNCH)] == [11]
    assert tracer.look() == 0


def test_a_watch_adds_up_what_programs_do_and_forgets_those_that_ended() -> None:
    watch = LaunchWatch(libcuda=[str(LIBCUDA)])
    try:
        with Tracee() as tracee:
            tracee.say("alloc plain 65536")
            tracee.say("alloc plain 65536")
            tracee.say("mixed 1009")
            tracee.say("copy 503")
            tracee.say("set 0 0 4099")
            time.sleep(0.2)  # it is read ten times a second at most
            comes(lambda: watch.read().get(tracee.pid, Sums()).fills, pause=0.05)
            found = watch.read().get(tracee.pid, Sums())
            assert (found.launches, found.copies, found.copied_bytes, found.fills) == (1009, 503, 503 * 4096, 1)
            assert (found.shapes, found.waits, found.partial) == ({(8, 128): 1009}, 1, ())
            assert watch.read()[tracee.pid] == found
        until(lambda: tracee.pid not in watch.read(), pause=0.05)
    finally:
        watch.close()


def test_only_one_process_and_an_end_in_mid_trace(tracee: Tracee) -> None:
    with tracing("launches", "--json", "--pid", str(tracee.pid), ends=False) as trace:
        with Tracee() as other:
            other.say("alloc plain 4096")
            other.say("launch 5")
        tracee.say("launch 19")
        tracee.end()
    found = json.loads(trace.out.splitlines()[-1])
    launched = [each for each in found["counts"] if each["kind"] == "launch"]
    assert [(each["pid"], each["calls"]) for each in launched] == [(tracee.pid, 19)]
    assert found["partial"] == [f"PID {tracee.pid} has ended"]
    assert trace.code == 0


def test_a_program_in_another_pid_namespace_has_the_number_that_it_has_here(tracer: LaunchTracer) -> None:
    with Tracee(before=("unshare", "--pid", "--fork")) as tracee:
        tracee.say("alloc plain 4096")
        tracee.say("launch 23")
        (pid,) = map(int, Path(f"/proc/{tracee.pid}/task/{tracee.pid}/children").read_text().split())
        assert [each.calls for each in of(tracer, pid, Kind.LAUNCH)] == [23]


def test_a_program_without_libcuda_makes_the_view_partial(tracer: LaunchTracer) -> None:
    if procfs.driver_version() is None:
        pytest.skip("no driver is loaded here that a static program could hold; tests/vm/test_ebpf.py has one")
    hog = Hog()
    try:
        assert hog.take(1)
        assert any(f"PID {hog.pid}: holds a GPU and maps no libcuda" in note for note in tracer.notes())
    finally:
        hog.end()
