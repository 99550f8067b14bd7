# SPDX-License-Identifier: Apache-2.0
"""Dirty memory on the stand-in for libcuda: what was written is always inside what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.epochs import Epoch
from tests.tracee.programs import program
from tests.tracee.told import epochs
from tests.tracee.tracee import Tracee
from tests.vm.guest.dirty_tools import observing, shapes, tracer

__all__ = ["shapes", "tracer"]  # fixtures


@pytest.fixture
def tracee(tracer: DirtyTracer) -> Iterator[Tracee]:
    """With six allocations of 64 KiB, one of each kind, and some kernels' layouts known."""
    with Tracee() as made:
        for how in ("plain", "plain", "async", "pitch", "mapped", "plain"):
            made.say(f"alloc {how} 65536")
        for kernel in ("bump @0", "look @0 w:1", "scatter s:q:0,@0,w:1,w:1", "shifted @0 q:0 w:1"):
            made.say(f"kernel plain {kernel}")
        made.say("sync")
        tracer.end_epoch(made.pid)
        tracer.end_epoch(made.pid)
        yield made


def numbers(epoch: Epoch, tracee: Tracee) -> set[int]:
    return {tracee.addresses.index(each.address) for each in epoch.dirty}


def test_what_is_read_only_or_unused_is_not_dirty(tracer: DirtyTracer, tracee: Tracee) -> None:
    tracee.say("kernel plain look @1 w:100")
    tracee.say("kernel plain scatter s:@5,@3+512,w:9,w:9")
    tracee.say("dtoh 5 0 4096")
    tracee.say("sync")
    found = tracer.end_epoch(tracee.pid)
    assert found.reasons == ()
    assert numbers(found, tracee) == {3}
    assert found.bytes == 65536
    assert 0 < found.share < 1


@pytest.mark.parametrize("shape", ["lz4", "zstd"])
def test_compressed_ptx_tells_as_much_as_text(
    tracer: DirtyTracer, tracee: Tracee, shapes: dict[str, Path], shape: str
) -> None:
    tracee.say(f"module {shapes[shape]}")
    tracee.say("kernel plain look @1 w:100")
    tracee.say("kernel plain scatter s:@5,@3+512,w:9,w:9")
    tracee.say("sync")
    found = tracer.end_epoch(tracee.pid)
    assert (found.reasons, found.partial) == ((), ())
    assert numbers(found, tracee) == {3}


def test_machine_code_alone_writes_from_all_parameters_and_is_called_partial(
    tracer: DirtyTracer, tracee: Tracee, shapes: dict[str, Path]
) -> None:
    tracee.say(f"module {shapes['code']}")
    for _ in range(2):  # the first before its layout is known, perhaps
        tracee.say("kernel plain look @1+64 w:100")
        tracee.say("kernel extra scatter s:@5+64,@3+512,w:9,w:9")
        tracee.say("kernel ex packed s:w:5,@0+64,w:9")
        tracee.say("sync")
        found = tracer.end_epoch(tracee.pid)
        assert found.reasons == ()
        assert numbers(found, tracee) == {0, 1, 3, 5}
        assert any("parameters alone" in note and "look" in note for note in found.partial)


@pytest.mark.parametrize("way", ["plain", "ex", "extra", "coop"])
def test_every_way_to_launch_is_followed(tracer: DirtyTracer, tracee: Tracee, way: str) -> None:
    tracee.say(f"kernel {way} shifted @4 q:4096 w:1")
    tracee.say("sync")
    found = tracer.end_epoch(tracee.pid)
    assert found.reasons == ()
    assert 4 in numbers(found, tracee)
    tracee.say("sync")
    assert tracer.end_epoch(tracee.pid).dirty == ()


def test_what_was_not_waited_for_stays_dirty(tracer: DirtyTracer, tracee: Tracee) -> None:
    tracee.say("kernel plain bump @3+64")
    for _ in range(3):
        assert numbers(tracer.end_epoch(tracee.pid), tracee) == {3}
    tracee.say("ssync")
    assert numbers(tracer.end_epoch(tracee.pid), tracee) == {3}
    assert tracer.end_epoch(tracee.pid).dirty == ()


def test_a_graph_writes_again_with_each_launch(tracer: DirtyTracer, tracee: Tracee) -> None:
    tracee.say("capture")
    tracee.say("kernel plain bump @3+64")
    tracee.say("captured")
    tracee.say("sync")
    tracer.end_epoch(tracee.pid)
    tracer.end_epoch(tracee.pid)
    tracee.say("graph 1")
    tracee.say("sync")
    assert 3 in numbers(tracer.end_epoch(tracee.pid), tracee)
    assert tracer.end_epoch(tracee.pid).dirty == ()


def test_a_pointer_in_memory_makes_all_dirty_with_the_reason(tracer: DirtyTracer, tracee: Tracee) -> None:
    tracee.say("kernel plain point @1 @4")
    tracee.say("kernel plain chase @1 w:7")
    tracee.say("sync")
    found = tracer.end_epoch(tracee.pid)
    assert numbers(found, tracee) == set(range(6))
    assert any("chase" in reason and "memory" in reason for reason in found.reasons)


def test_a_full_table_makes_all_dirty() -> None:
    with observing(touches=2) as tracer, Tracee() as tracee:
        for _ in range(4):
            tracee.say("alloc plain 65536")
        tracer.poll(0.1)
        for number in range(4):
            tracee.say(f"set {number} 64 64")
        found = tracer.end_epoch(tracee.pid)
        assert len(found.dirty) == 4
        assert any("table was full" in reason for reason in found.reasons)


def test_a_program_from_before_is_partial(tracer: DirtyTracer) -> None:
    with Tracee() as tracee:
        tracee.say("alloc plain 65536")
        tracee.say("launch 1")
        with observing() as late:
            tracee.say("alloc plain 65536")
            tracee.say("set 1 0 64")
            found = late.end_epoch(tracee.pid)
            assert found.partial != ()
            assert [each.address for each in found.allocations] == tracee.addresses[1:]
            # nor are its kernels known, and are soon not told of launch by launch
            tracee.say("launch 1")
            late.poll(1.0)
            before = late.trouble()
            tracee.say("launch 5003")
            found = late.end_epoch(tracee.pid)
            assert late.trouble() == before
            assert found.reasons != ()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), shape=st.sampled_from(["text", "lz4", "zstd", "code"]))
def test_never_less_than_what_was_written(tracer: DirtyTracer, shapes: dict[str, Path], seed: int, shape: str) -> None:
    written = reported = 0
    with Tracee() as tracee:
        if shape != "text":
            tracee.say(f"module {shapes[shape]}")
        for told in epochs(tracer, tracee, program(seed, 4, chases=shape != "code")):
            assert not told.missed, (told.steps, told.found.reasons)
            assert {each.address for each in told.found.allocations} == told.living
            written += told.written_bytes
            reported += told.found.bytes
    tracer.forget(tracee.pid)
    assert reported >= written
