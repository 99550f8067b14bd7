# SPDX-License-Identifier: Apache-2.0
"""From the kernel module's lists to programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.module import activity, census, orders, rotation
from detshare.ctl.backends.module.census import Census
from detshare.ctl.core import words
from detshare.ctl.core.driver import Gpu, Opener, ProcessId
from detshare.ctl.core.gputime import Mode, Standing
from detshare.ctl.core.snapshot import AccountKind, Containment, Kind, Level, Program, State, plain
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import (
    ClassRow,
    DeniedRow,
    EntityRow,
    GpuRow,
    LimitRow,
    SchedRow,
    TenantRow,
    TsgRow,
    VctxRow,
)

ABI = for_version("580.159.04")
GR0, COPY1 = ABI.constant("NV2080_ENGINE_TYPE_GR0"), ABI.constant("NV2080_ENGINE_TYPE_COPY1")
UUID = "GPU-3b269624-5005-67c3-4026-6cc0bb057439"
SERVE = ProcessId(42, 900)
OPENER = Opener(SERVE, 1, "python serve.py", "python", "ann", "/kube/pod", "", (3,), ((4, 0),))
VCTX = VctxRow(1, 42, 0xC1D00001, 900, "python", cgroup_id=70, gpu=0, memory_used=3 << 30, managed=1 << 30, tsgs=2)
TSGS = (
    TsgRow(1, 42, 0xC1D00001, 0x5C000015, 0, GR0, True, 8, 2048),
    TsgRow(1, 42, 0xC1D00001, 0x5C000020, 0, COPY1, False, 4, 1024),
)
SEEN = Census([VCTX], TSGS, gpu_rows=[GpuRow(0, UUID, 0, 80 << 30)], openers={SERVE: OPENER})


def only(seen: Census, **more: object) -> Program:
    (found,) = census.programs(seen, abi=ABI, **more)  # type: ignore[arg-type]
    return found


def test_a_program_is_what_the_kernel_lists() -> None:
    found = only(SEEN)
    assert (found.id, found.command, found.user, found.state) == (SERVE, "python serve.py", "ann", State.RUNNING)
    assert found.memory_bytes == 4 << 30  # managed memory is memory
    assert found.gpus == (UUID,)
    assert [(t.kind, t.engine, len(t.channels), t.slice_us) for t in found.tsgs] == [
        (Kind.COMPUTE, "GR0", 8, 2048),
        (Kind.COPY, "COPY1", 4, 1024),
    ]
    assert found.containment is Containment.NONE
    assert found.memory_limit is None


def test_several_contexts_of_one_process_are_one_program() -> None:
    second = replace(VCTX, vctx_id=2, client=0xC1D00002, gpu=1, memory_used=1 << 30, managed=0, refused=2)
    found = only(replace(SEEN, vctxs=[VCTX, second]))
    assert found.memory_bytes == 5 << 30
    assert found.gpu_memory == {UUID: 4 << 30, "GPU 1": 1 << 30}  # nobody opened that one yet: it has no UUID
    assert found.gpus == (UUID,)  # it computes there only
    beside = replace(TSGS[0], vctx_id=2, client=0xC1D00002, gpu=1)
    assert only(replace(SEEN, vctxs=[VCTX, second], tsgs=(*TSGS, beside))).gpus == (UUID, "GPU 1")
    assert found.refused == 2


def test_a_reused_pid_is_another_program() -> None:
    seen = replace(SEEN, vctxs=[VCTX, replace(VCTX, vctx_id=9, start_time=950)])
    assert [p.id.start for p in census.programs(seen, abi=ABI)] == [900, 950]


def test_who_holds_descriptors_and_has_no_client_is_listed_too() -> None:
    waiting = Opener(ProcessId(7, 1), 1, "idle", "idle", "bob", "/", "", (3,), ((4, 0),))
    seen = replace(SEEN, gpus=[Gpu(UUID, 0, "H100", "")], openers={SERVE: OPENER, waiting.id: waiting})
    first, second = census.programs(seen, abi=ABI)
    assert (first.id.pid, first.state, first.gpus, first.memory_bytes) == (7, State.NO_CONTEXT, (UUID,), None)
    assert second.id == SERVE


def test_who_ended_between_two_questions_has_a_name_all_the_same() -> None:
    assert only(replace(SEEN, openers={})).command == "[python]"


@pytest.mark.parametrize(
    ("change", "paused", "state"),
    [
        ({}, True, State.PAUSED),
        ({"comm": "nvidia-cuda-mps"}, False, State.MPS_SERVER),
        ({"mps": True}, True, State.MPS_CLIENT),
        ({"gpu": None, "vctx_id": 5, "tsgs": 0}, False, State.NO_CONTEXT),
        ({"partial": True, "vctx_id": 5}, False, State.RUNNING),
    ],
)
def test_states(change: dict[str, object], paused: bool, state: State) -> None:
    row = replace(VCTX, **change)  # type: ignore[arg-type]
    found = only(replace(SEEN, vctxs=[row]), paused={SERVE} if paused else ())
    assert found.state is state
    assert bool(found.notes) is row.partial


def test_the_lowest_of_all_limits_that_apply_is_shown_and_all_are_kept() -> None:
    limits = [
        LimitRow(genl.DETSHARE_KIND_PID, pid=42, limit=8 << 30, used=4 << 30),
        LimitRow(genl.DETSHARE_KIND_PID, pid=43, limit=1),
        LimitRow(genl.DETSHARE_KIND_CGROUP, cgroup_id=60, limit=6 << 30, refused=3),
        LimitRow(genl.DETSHARE_KIND_CGROUP, cgroup_id=61, limit=2),
        LimitRow(genl.DETSHARE_KIND_TENANT, tenant="red", gpu=0, limit=20 << 30),
        LimitRow(genl.DETSHARE_KIND_TENANT, tenant="blue", limit=3),
        LimitRow(9, limit=4),  # of a newer module
        LimitRow(genl.DETSHARE_KIND_PID, pid=42),  # use only
    ]
    seen = replace(SEEN, vctxs=[replace(VCTX, tenant="red")], limits=limits, cgroups={60: "/kube"})
    found = only(seen, lineage=lambda path: {70: "/kube/pod", 60: "/kube"} if path == "/kube/pod" else {})
    assert [(a.kind, a.name, a.gpu) for a in found.limits] == [
        (AccountKind.PID, "42", None), (AccountKind.CGROUP, "/kube", None), (AccountKind.TENANT, "red", 0),
    ]  # fmt: skip
    assert found.memory_limit == 6 << 30
    assert found.containment is Containment.KERNEL
    data = found.to_json()
    assert (data["memory_limit"], data["containment"]) == (6 << 30, "kernel")
    assert data["limits"][1] == {
        "kind": "cgroup", "name": "/kube", "gpu": None, "limit": 6 << 30, "used": 0, "peak": 0, "refused": 3,
    }  # fmt: skip
    assert [a.name for a in seen.accounts()] == ["42", "43", "/kube", "number 61", "red", "blue"]


def test_tenants() -> None:
    seen = replace(SEEN, vctxs=[replace(VCTX, tenant="red")], tenants=[TenantRow("red", (41,)), TenantRow("blue")])
    assert [(t.name, t.pids) for t in seen.named()] == [("red", (41, 42)), ("blue", ())]


@pytest.mark.parametrize(
    ("desired", "shown"),
    [
        (Desired(klass="high"), ("high", None)),
        (Desired(weight=3), (None, 3)),
        (Desired(weight=3, ceiling=40), (None, 3)),
        (Desired(slice_us=500, level=Level.LOW), (None, None)),
        (Desired(ceiling=25), (None, None)),
    ],
)
def test_an_order_that_is_found_is_the_wish_it_was_made_from(
    desired: Desired, shown: tuple[str | None, int | None]
) -> None:
    order = orders.order_of(desired)
    row = SchedRow(
        42, order.klass or "", order.slice_us, order.level, weight=order.weight, tpc_percent=order.tpc_percent
    )
    assert orders.desired_of(row) == desired
    found = only(replace(SEEN, vctxs=[replace(VCTX, klass=row.klass)], orders=[row]))
    assert (found.klass, found.weight) == shown


ENTITY = EntityRow(1, 42, klass="low", state=genl.DETSHARE_ENTITY_STATE_ACTIVE, idle_ns=2_000_000, kicks=3, used_us=70)


def test_what_a_program_does_is_what_its_contexts_do() -> None:
    gated = replace(
        ENTITY, vctx_id=2, state=genl.DETSHARE_ENTITY_STATE_GATED, reasons=6, idle_ns=5, kicks=1, waits=2, wait_ns=10**6
    )
    doing = only(replace(SEEN, entities=[ENTITY, gated])).activity
    assert doing is not None
    assert (doing.state, doing.reasons) == ("gated", ("bucket", "turn"))
    assert (doing.kicks, doing.waits, doing.wait_ms, doing.used_us, doing.idle_ms) == (4, 2, 1.0, 140, 5e-6)
    assert only(replace(SEEN, entities=[ENTITY, gated])).state is State.GATED
    assert only(replace(SEEN, entities=[ENTITY])).state is State.RUNNING
    paused = replace(ENTITY, state=genl.DETSHARE_ENTITY_STATE_PAUSED, reasons=1, channels_off=8)
    assert only(replace(SEEN, entities=[gated, paused])).state is State.PAUSED
    assert only(replace(SEEN, vctxs=[replace(VCTX, mps=True)], entities=[gated])).state is State.MPS_CLIENT
    assert only(SEEN).activity is None


def test_denials_are_added_up_and_named() -> None:
    known = ABI.controls["NVA06C_CTRL_CMD_SET_TIMESLICE"].number
    rows = [
        DeniedRow(42, known, genl.DETSHARE_DENIAL_ORDER, vctx_id=1, count=2),
        DeniedRow(42, known, genl.DETSHARE_DENIAL_ORDER, vctx_id=2, count=3),
        DeniedRow(42, 0x4E, genl.DETSHARE_DENIAL_DOORBELL, status=0x1B, count=1),
        DeniedRow(42, 0x30000011, genl.DETSHARE_DENIAL_DOORBELL, status=0x1B, count=9),
        DeniedRow(43, 0x80, 77),
    ]
    doing = only(replace(SEEN, entities=[ENTITY], denied=rows)).activity
    assert doing is not None
    assert [(d.name, d.reason, d.count) for d in doing.denials] == [
        ("UVM ioctl 17", "doorbell", 9), ("NVA06C_CTRL_CMD_SET_TIMESLICE", "order", 5), ("escape 0x4e", "doorbell", 1),
    ]  # fmt: skip
    assert doing.denied == 15
    assert activity.command_name(0x12345678, None) == "control 0x12345678"


def test_levels_that_were_set() -> None:
    tsgs = [replace(TSGS[0], level=2, managed=True), replace(TSGS[1], level=7)]
    assert [t.level for t in only(replace(SEEN, tsgs=tsgs)).tsgs] == [Level.HIGH, None]


def test_turns_are_told_as_the_kernel_tells_them() -> None:
    turn = genl.DETSHARE_HOLD_TURN
    rows = [ClassRow("low", turn_us=100_000), ClassRow("high")]
    entities = [
        EntityRow(1, 42, klass="low"),
        EntityRow(2, 43, klass="low", reasons=turn),
        EntityRow(3, 44, klass="low"),
        EntityRow(4, 45, klass="high"),
    ]
    row = GpuRow(0, UUID, turn_mode=genl.DETSHARE_TURN_MODE_TURNS, turn_vctx=1, turn_pid=42, turn_left_ms=60)
    seen = replace(SEEN, gpu_rows=[row], classes=rows, entities=entities)
    (schedule,) = rotation.schedules(seen)
    assert (schedule.gpu, schedule.mode, schedule.holder, schedule.left_s) == (UUID, Mode.TURNS, "42", 0.06)
    assert words.schedule(plain(schedule)) == "turns, 42 has its turn for 60ms"
    standing = {pid: [p.standing for p in rotation.places(seen, ProcessId(pid, 1))] for pid in (42, 43, 44, 45)}
    assert standing == {42: [Standing.HOLDS], 43: [Standing.WAITS], 44: [Standing.RESTS], 45: []}
    assert rotation.waiting(seen) == {43}
    window = replace(seen, gpu_rows=[replace(row, turn_mode=genl.DETSHARE_TURN_MODE_WINDOWS)])
    assert [p.standing for p in rotation.places(window, ProcessId(42, 1))] == [Standing.WINDOW]
    quiet = replace(seen, gpu_rows=[replace(row, turn_mode=genl.DETSHARE_TURN_MODE_NONE)])
    assert rotation.schedules(quiet) == ()
    assert rotation.places(quiet, ProcessId(42, 1)) == ()
