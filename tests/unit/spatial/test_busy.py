# SPDX-License-Identifier: Apache-2.0
"""What one program has while a higher class is active, and how its launches were timed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spatial_lane import GPU_TEXT, Lane

from detshare.ctl.backends.spatial.backend import ShimBackend
from detshare.ctl.backends.spatial.shapes import shapes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.verbs import request
from detshare.ctl.core.work import times
from detshare.runtime.reflexes import HOLD, Desired, Mode, Override, reflex
from detshare.runtime.tiers import FULL, Gpu, Kind, Tier, of_percent

H100 = Gpu(GPU_TEXT, 132, 8)


@pytest.fixture
def backend(lane: Lane) -> ShimBackend:
    return ShimBackend(lane.service)


def spatial(backend: ShimBackend, pid: int):
    return next(each.spatial for each in backend.look().programs if each.id.pid == pid)


def test_a_program_moves_or_holds_and_goes_back_to_its_class(lane, backend):
    program, higher = lane.start(), lane.start()
    backend.set_priority(str(program.pid), "low")
    backend.set_priority(str(higher.pid), "high")
    assert spatial(backend, program.pid).busy_sms == 0, "class low holds"
    done = backend.set_busy(str(program.pid), 20)
    assert done.changed[0].note == "while a higher class is active: the first 16 SMs"
    assert lane.view(program).busy == Tier(Kind.FIRST, 16)
    assert not lane.view(program).hold
    assert spatial(backend, program.pid).busy_sms == 16
    assert lane.view(program).idle == FULL, "only while a higher class is active"
    backend.set_busy(str(program.pid), 500)
    assert lane.view(program).busy == FULL
    backend.set_busy(str(program.pid), 0)
    assert lane.view(program).hold
    backend.set_busy(str(program.pid), 3)
    assert lane.view(program).busy == Tier(Kind.FIRST, 8), "the smallest there is"
    backend.set_busy(str(program.pid), None)
    assert lane.view(program).hold
    backend.set_busy(str(program.pid), 16)
    backend.release(str(program.pid))
    assert lane.view(program).busy == FULL


@pytest.mark.parametrize("sms", [-1, 4097])
def test_a_number_out_of_range_is_refused(lane, backend, sms):
    program = lane.start()
    with pytest.raises(BadRequest, match="out of range"):
        backend.do(request("set-busy", str(program.pid), sms=sms))


def test_it_is_kept_over_a_restart(lane, backend):
    program = lane.start()
    backend.set_busy(str(program.pid), 16)
    lane.again(restore=False)
    assert lane.view(program).busy == Tier(Kind.FIRST, 16)


def test_a_programs_own_goes_before_its_classs_and_its_share():
    override = Override(busy="rest:32")
    assert reflex(Desired("low", busy="first:16"), H100, None, override).busy == Tier(Kind.FIRST, 16)
    assert reflex(Desired("low", busy=HOLD), H100, None, override).mode is Mode.HOLD
    assert reflex(Desired("low"), H100, None, override).busy == Tier(Kind.REST, 32)
    made = reflex(Desired("low", percent=50, busy="first:8"), H100, None)
    assert (made.idle, made.busy) == (of_percent(50, H100), Tier(Kind.FIRST, 8))
    assert reflex(Desired("low", busy="first:8"), H100, None, crowded=True).busy == Tier(Kind.FIRST, 8)


def test_launches_are_timed_from_the_boards_histogram(lane, backend):
    program = lane.start()
    assert spatial(backend, program.pid).kernels is None
    program.do("hist 10 90")  # 1024 to 2047 ns
    program.do("hist 20 10")  # 1.05 to 2.1 ms
    seen = spatial(backend, program.pid).kernels
    assert (seen.count, seen.p50_us, seen.p90_us, seen.p99_us) == (100, 2.048, 2.048, 2097.152)


def test_kernels_are_told_apart_by_grid_and_block(lane, backend):
    program = lane.start()
    assert spatial(backend, program.pid).shapes == ()
    program.do("shape 3 132 256 5000000 12 9")
    program.do("shape 0 528 128 7000000 20 4")
    program.do("shape 5 16 1 9000000 10 0")  # an entry that has just changed hands
    seen = spatial(backend, program.pid)
    assert [(each.blocks, each.threads, each.times.count) for each in seen.shapes] == [(528, 128, 4), (132, 256, 9)]
    assert seen.shapes[1].times.p50_us == 8.192
    assert seen.blocks == 16


@given(st.data())
def test_shapes_of_whatever_programs_wrote(data):
    boards = []
    for _ in range(data.draw(st.integers(1, 3))):
        wide = st.integers(0, 2**64 - 1)
        narrow = st.integers(0, 2**32 - 1) | st.integers(0, 2)
        columns = {"blocks": narrow, "threads": narrow, "ns": wide}
        made = {f"shape_{name}": data.draw(st.lists(of, min_size=16, max_size=16)) for name, of in columns.items()}
        made["shape_hist"] = [data.draw(narrow)] * 512
        boards.append(made)
    found = shapes(boards)
    assert len(found) <= 16
    assert len({(each.blocks, each.threads) for each in found}) == len(found)
    assert all(each.blocks and each.times.count for each in found)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=32, max_size=32))
def test_percentiles_of_whatever_a_program_wrote(histogram):
    made = times(histogram)
    if made is None:
        assert sum(histogram) == 0
    else:
        assert 0.002 <= made.p50_us <= made.p90_us <= made.p99_us <= (2 << 31) / 1000
