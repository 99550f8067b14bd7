# SPDX-License-Identifier: Apache-2.0
"""What policies see of a look: rates, ages, GPU time, and the same object where nothing changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policy_world import GPU, activity, program

from detshare.ctl.core.driver import Gpu
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.observed import Requests
from detshare.ctl.core.snapshot import Snapshot as Look
from detshare.ctl.core.snapshot import State
from detshare.ctl.core.work import ShapeTimes, Times
from detshare.ctl.policy.types import PCtx, Shape
from detshare.ctl.policy.view import Viewer


def look(viewer: Viewer, now: float, *programs, pool=None) -> None:
    gpu = Gpu(GPU, 0, "Fake H100", "0000:01:00.0", 80 << 30)
    viewer.look(Look("model", "unit", "580.0", now, 0.001, (gpu,), programs), now * 1e6, pool)


def spatial(pid: int, **counters):
    made = program(pid, lane="spatial")
    return replace(made, spatial=replace(made.spatial, **counters))


def test_rates_are_of_the_last_second():
    viewer = Viewer()
    for number in range(20):
        launches = 100 * number if number < 10 else 900
        look(viewer, number * 0.25, spatial(1, launches=launches, graph_launches=number, held_ms=number * 25.0))
        if number == 9:
            busy = viewer.tenants(GPU)["1"]
    assert (busy.launches_per_s, busy.graph_launches_per_s, busy.held_share) == (400.0, 4.0, 0.1)
    assert viewer.tenants(GPU)["1"].launches_per_s == 0.0


def test_queue_delays_are_of_the_last_second_and_calm_after_it():
    viewer = Viewer()
    slow, quick = [0] * 32, [0] * 32
    slow[20], quick[20], quick[10] = 1000, 1000, 100
    look(viewer, 0.0, spatial(1, delays=tuple(slow)))
    assert viewer.tenants(GPU)["1"].delay_p99_us is None
    look(viewer, 0.5, spatial(1, delays=tuple(quick)))
    seen = viewer.tenants(GPU)["1"]
    assert (seen.delay_p50_us, seen.delay_p99_us) == (2.048, 2.048)
    for number in range(4, 12):
        look(viewer, number * 0.25, spatial(1, delays=tuple(quick)))
    seen = viewer.tenants(GPU)["1"]
    assert (seen.delay_p50_us, seen.delay_p99_us) == (None, None)
    look(viewer, 10.0, spatial(1, delays=tuple(quick)))
    assert viewer.tenants(GPU)["1"] is seen


@pytest.mark.parametrize("works_on", [GPU, "GPU-other"])
def test_gpu_time_of_a_program_on_two_gpus_is_that_of_the_one_where_it_works(works_on: str):
    """A rank has a context on its neighbours' GPUs, too, and no work there."""
    viewer, gpus = Viewer(), (GPU, "GPU-other")
    for number in range(9):
        times = tuple(GpuTime(gpu, 5.0, *[float(gpu == works_on)] * 2, 4.0, 10_000.0, 0.0, ()) for gpu in gpus)
        look(viewer, number * 0.25, replace(program(1), gpus=gpus, gpu_time=times))
    assert [viewer.tenants(gpu)["1"].used_us for gpu in gpus] == [2e6, 2e6]
    assert [viewer.tenants(gpu)["1"].active for gpu in gpus] == [gpu == works_on for gpu in gpus]


def test_in_flight_is_the_age_of_what_does_not_move():
    viewer = Viewer()
    look(viewer, 0.0, spatial(1, in_flight=2, launches=7))
    look(viewer, 0.3, spatial(1, in_flight=2, launches=7))
    assert viewer.tenants(GPU)["1"].in_flight_us == 300_000.0
    look(viewer, 0.4, spatial(1, in_flight=2, launches=8))
    assert viewer.tenants(GPU)["1"].in_flight_us == 0.0
    look(viewer, 0.6, spatial(1, in_flight=0, launches=8))
    assert (viewer.tenants(GPU)["1"].in_flight_us, viewer.tenants(GPU)["1"].active) == (0.0, False)


def test_gpu_time_is_what_the_module_counts_else_the_sum_of_shares():
    viewer = Viewer()
    for number in range(5):
        counted = replace(program(2), activity=activity("active", used_us=1000 * number))
        look(viewer, float(number), replace(program(1), gpu_share=0.25), counted)
    assert viewer.tenants(GPU)["1"].used_us == pytest.approx(1e6)
    assert viewer.tenants(GPU)["2"].used_us == 4000


def test_who_did_not_change_is_the_same_object():
    viewer = Viewer()
    idle = [program(pid) for pid in range(1, 4)]
    look(viewer, 0.0, *idle)
    before = dict(viewer.tenants(GPU))
    look(viewer, 0.25, *idle)
    assert all(viewer.tenants(GPU)[name] is view for name, view in before.items())


def test_gates_shapes_pool_and_lanes_are_shown():
    viewer = Viewer(hand=lambda seen: ("Gate",) if seen.id.pid == 2 else ())
    pool = {GPU: (PCtx("25%", 32, False, ("1",)),)}
    times = Times(128, 2.0, 4.0, 8.0)
    shape = ShapeTimes(264, 256, Times(4321, 1.0, 2.0, 3.0))
    look(
        viewer,
        0.0,
        spatial(1, kernels=times, graphs=times, blocks=264, shapes=(shape,), idle_sms=32, busy_sms=8),
        replace(program(2), state=State.PAUSED),
        replace(program(3), activity=activity("gated", reasons=("turn",), waiting=1)),
        replace(program(4), state=State.NO_CONTEXT),
        pool=pool,
    )
    views = viewer.tenants(GPU)
    assert sorted(views) == ["1", "2", "3"], "who has no context is no tenant"
    first = views["1"]
    assert (first.lane, first.pctx, first.standing_sms, first.reflex_sms) == ("spatial", "25%", 32, 8)
    assert first.shapes == (Shape("", 264, 256, 4300, 1.0, 2.0, 3.0), Shape("graph", 0, 0, 130, 2.0, 4.0, 8.0))
    assert first.blocks == 264
    assert (views["2"].gate_open, views["2"].by_hand) == (False, ("Gate",))
    assert (views["3"].gate_open, views["3"].active) == (True, True), "another's turn is no gate of a policy"
    now = viewer.snapshot(GPU, 5.0, 0.0)
    assert (now.sms, now.lane, now.member("25%").sms) == (132, "temporal", 32)
    assert [each.name for each in now.tenants] == ["1", "2", "3"]


def gpu_time(share: float, **more) -> GpuTime:
    return GpuTime(GPU, 5.0, share, share, 10.0, 100.0, 100.0, (), **more)


def test_gpu_time_of_the_log_goes_before_what_nvml_says():
    viewer = Viewer()
    seen = replace(program(1), gpu_share=0.9, gpu_time=(replace(gpu_time(0.5), gpu="another"), gpu_time(0.25)))
    for now in (0.0, 1.0, 2.0):
        look(viewer, now, seen)
    assert viewer.tenants(GPU)["1"].used_us == 500_000.0
    look(viewer, 3.0, replace(seen, gpu_time=(gpu_time(0.0),)))
    assert not viewer.tenants(GPU)["1"].active
    look(viewer, 4.0, replace(seen, gpu_time=(gpu_time(0.0, stalled_s=2.0),)))
    assert viewer.tenants(GPU)["1"].active  # it has work and makes no progress


def test_requests_and_floors_are_seen_while_nothing_else_changes():
    viewer = Viewer(backend="root")
    still = replace(program(1), floor=0.05)
    for number in range(3):
        look(viewer, number, replace(still, requests=Requests(200 + number, 4.0, 0.01, 0.02, 0.1, 900)))
    seen = viewer.tenants(GPU)["1"]
    assert (seen.requests, seen.request_p50_us, seen.request_p99_us, seen.floor) == (202, 10_000.0, 20_000.0, 5.0)
    assert (seen.request_window_us, seen.request_age_us) == (4e6, 1e5)
    now = viewer.snapshot(GPU, 0.0, 0.0)
    assert (now.rows, now.floors) == (False, True)
    assert Viewer(backend="kmod").snapshot(GPU, 0.0, 0.0).rows
    assert not Viewer().snapshot(GPU, 0.0, 0.0).floors
