# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import time
import uuid

import pytest
from spatial_lane import GPU_TEXT, Lane

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.runtime import board_layout as layout
from detshare.runtime import sealed
from detshare.runtime.board import Attach, Policy, Tier, map_file, monotonic_ns
from detshare.runtime.directory import Directory
from detshare.runtime.reflexes import AHEAD_US, GATE_US, RANKS, Override
from detshare.runtime.service import Service
from detshare.runtime.tenant import Refused, wait
from tests.patience import LONG_S, Slept, until

pytestmark = pytest.mark.e2e


def process(pid: int) -> ProcessId:
    start = procfs.start_time(pid)
    assert start is not None
    return ProcessId(pid, start)


def ask(at: Lane, /, **body: object) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(LONG_S)
        link.connect(str(at.service.socket))
        link.send(json.dumps(body).encode())
        return json.loads(link.recv(1 << 16))


def test_a_program_gets_a_slot_and_a_policy_it_cannot_write(lane: Lane) -> None:
    program = lane.start("red")
    assert (program.status, program.slot) == (0, 0)
    assert program.do("writable") == "no"
    slot = lane.activity().slots[0]
    assert (slot.get("pid"), slot.get("starttime")) == process(program.pid)
    assert slot.get("state") == layout.SLOT_LIVE
    view = lane.view(program)
    assert view.record.tenant == "red"
    assert view.record.desired.klass == "normal"
    assert lane.page(program).gate_us == 0  # nobody could hold it


def test_what_a_dead_program_had_is_freed_at_once(lane: Lane) -> None:
    first, second = lane.start(), lane.start()
    assert (first.slot, second.slot) == (0, 1)
    first.end()
    until(lambda: lane.activity().slots[0].get("state") == layout.SLOT_FREE)
    until(lambda: not list(lane.boards.glob(f"{first.pid}-*")))
    assert lane.start().slot == 0
    assert len(lane.service.tenants.views()) == 2


def test_gates_are_there_only_while_somebody_higher_is(lane: Lane) -> None:
    low, high = lane.start(), lane.start()
    lane.service.policies.change(process(low.pid), klass="low")
    assert lane.page(low).gate_us == GATE_US  # the other one is normal
    lane.service.policies.change(process(high.pid), klass="high")
    page = lane.page(low)
    assert (page.gate_us, page.mode_busy, page.class_) == (GATE_US, layout.MODE_HOLD, layout.CLASS_LOW)
    assert page.floor_permille == 50
    assert lane.page(high).gate_us == 0
    assert lane.activity().slots[1].get("class") == RANKS["high"]
    high.end()
    until(lambda: lane.page(low).gate_us == 0)


def test_work_ahead_is_bounded_where_a_higher_class_changes_the_tier(lane: Lane) -> None:
    low, high = lane.start(), lane.start()
    lane.service.policies.change(process(low.pid), klass="low")
    lane.service.policies.change(process(high.pid), klass="high")
    assert lane.page(low).ahead_us == 0  # it holds: its gates do it
    lane.service.policies.override("low", Override(busy="rest:32"))
    assert lane.page(low).ahead_us == AHEAD_US
    assert lane.page(high).ahead_us == 0
    lane.service.policies.override("low", Override(idle="rest:32", busy="rest:32"))
    assert lane.page(low).ahead_us == 0  # nothing changes
    lane.service.policies.override("low", Override(busy="rest:32"))
    high.end()
    until(lambda: lane.page(low).ahead_us == 0)


def test_another_gpus_programs_do_not_count(lane: Lane) -> None:
    low, high = lane.start(), lane.start(gpu=uuid.uuid4())
    lane.service.policies.change(process(low.pid), klass="low")
    lane.service.policies.change(process(high.pid), klass="high")
    assert lane.page(low).gate_us == 0


def test_a_share_is_a_tier_and_waits_for_the_acknowledgement(lane: Lane) -> None:
    program = lane.start()
    pending = lane.service.policies.change(process(program.pid), percent=25)
    page = lane.page(program)
    assert page.tiers[page.tier_idle] == page.tiers[page.tier_busy] == Tier(layout.TIER_FIRST, 32)
    assert wait(pending, 0.1)
    program.do("ack")
    assert not wait(pending, 1)
    again = lane.service.policies.change(process(program.pid), percent=25)
    assert not wait(again, 0.1)  # nothing changed, so there is nothing to wait for


def test_nobody_waits_for_a_program_that_ended(lane: Lane) -> None:
    program = lane.start()
    pending = lane.service.policies.change(process(program.pid), percent=25)
    program.end()
    assert not wait(pending, 5)


def test_a_hold_is_a_lease_that_the_daemon_renews(lane: Lane) -> None:
    program = lane.start()
    assert lane.service.policies.hold(process(program.pid), True)
    assert lane.activity().slots[0].get("word") == layout.HELD
    assert lane.page(program).gate_us == GATE_US  # what is queued from now on waits too
    (path,) = lane.boards.glob(f"{program.pid}-*.policy")

    def lease() -> int:
        return Policy(bytearray(path.read_bytes())).get("lease_ns")

    first = lease()
    assert first > monotonic_ns()
    until(lambda: lease() > first)
    assert not lane.service.policies.hold(process(program.pid), True)
    assert lane.service.policies.hold(process(program.pid), False)
    assert lane.activity().slots[0].get("word") == 0
    assert lane.page(program).gate_us == 0


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a daemon that is not root."""
    monkeypatch.setattr(sealed, "possible", lambda: False)


def test_another_daemon_goes_on_with_boards_that_are_files(files: None, lane: Lane) -> None:
    test_another_daemon_goes_on_without_the_program_noticing(lane, killed=True)
    assert (lane.boards / f"{GPU_TEXT}.activity").is_file()
    assert not (lane.boards / f"{GPU_TEXT}.activity").is_symlink()


def test_boards_that_are_files_go_to_nobody_who_could_cut_them_under_others(files: None, lane: Lane) -> None:
    asked = Attach(layout.VERSION, bytes(16), os.getpid(), 132, 8, 80 << 30, "")
    with pytest.raises(Refused, match="cut short") as refused:
        lane.service.tenants.attach(asked, os.getpid(), os.geteuid() + 1)
    assert refused.value.status == errno.EPERM
    assert lane.start().status == 0


@pytest.mark.skipif(not sealed.possible(), reason="sealed boards need root")
@pytest.mark.parametrize("which", [1, 2], ids=["counters", "activity"])
def test_a_program_cannot_cut_a_board_short_under_others(lane: Lane, which: int) -> None:
    hostile, other = lane.start(), lane.start()
    assert hostile.do(f"cut {which}") == "Operation not permitted"
    assert lane.view(hostile).counters["launches"] == 0  # the daemon touches it and lives
    assert lane.activity().slots[other.slot].get("state") == layout.SLOT_LIVE
    lane.again()
    assert hostile.do(f"cut {which}") == "Operation not permitted"
    assert [lane.view(program).record.slot for program in (hostile, other)] == [0, 1]


def test_a_daemon_whose_programs_all_went_with_the_last_one_takes_others(lane: Lane) -> None:
    program = lane.start()
    lane.service.close(restore=False)
    program.end()
    lane.again(restore=False)
    assert lane.start().status == 0


@pytest.mark.parametrize("killed", [True, False])
def test_another_daemon_goes_on_without_the_program_noticing(lane: Lane, killed: bool) -> None:
    program, other = lane.start("red"), lane.start()
    lane.service.policies.change(process(program.pid), percent=25, klass="low")
    lane.service.policies.hold(process(program.pid), True)
    if killed:
        lane.service.policies.stand_aside = lambda: None  # type: ignore[method-assign]
    other_pid = other.pid
    lane.service.close(restore=not killed)
    page = lane.page(program)
    assert (page.tier_idle != 0) is killed  # an ordinary end gives the whole GPU back
    assert lane.activity().slots[0].held is killed
    other.end()  # while nobody looks
    lane.again()
    view = lane.view(program)
    assert (view.record.tenant, view.record.desired.percent, view.record.desired.klass) == ("red", 25, "low")
    assert view.idle.sms == 32
    assert view.held is killed
    assert lane.activity().slots[1].get("state") == layout.SLOT_FREE
    assert not list(lane.boards.glob(f"{other_pid}-*"))
    assert program.do("ack") == "done"
    assert not wait(lane.service.policies.change(process(program.pid), percent=25), 1)
    assert lane.start().slot == 1


def test_a_half_written_policy_is_mended(lane: Lane) -> None:
    program = lane.start()
    lane.service.policies.stand_aside = lambda: None  # type: ignore[method-assign]
    lane.service.close(restore=False)
    (path,) = lane.boards.glob(f"{program.pid}-*.policy")
    with map_file(path, write=True) as mapped:
        policy = Policy(mapped)
        policy.put("epoch", policy.epoch | 1)  # killed in the middle of a change
        policy.close()
    lane.again()
    assert lane.page(program).tier_idle == 0
    assert lane.view(program).epoch % 2 == 0


def test_a_record_that_cannot_be_read_costs_nobody_his_program(lane: Lane) -> None:
    program = lane.start()
    lane.service.close(restore=False)
    (path,) = lane.boards.glob(f"{program.pid}-*.tenant")
    path.write_text("{")
    lane.again(restore=False)
    assert any("keeps its last policy" in text for text in lane.events())
    assert program.process.poll() is None
    assert lane.start().slot == 1  # its slot is still its own
    program.end()
    until(lambda: lane.activity().slots[0].get("state") == layout.SLOT_FREE)


def test_a_library_of_another_version_is_told_both(lane: Lane) -> None:
    program = lane.start(version=layout.VERSION + 1)
    assert program.status == errno.EPROTO
    assert f"speaks version {layout.VERSION + 1}, the daemon {layout.VERSION}" in program.message
    assert lane.service.tenants.views() == []


def test_an_activity_page_of_another_version_is_not_written(lane: Lane) -> None:
    program = lane.start()
    path = lane.boards / f"{GPU_TEXT}.activity"
    lane.service.directory.activity(GPU_TEXT, False).put("version", layout.VERSION + 1)
    before = path.read_bytes()
    lane.again(restore=False)
    refused = lane.start()
    assert refused.status == errno.EPROTO
    assert "restart daemon and programs" in refused.message
    assert path.read_bytes() == before
    program.end()
    lane.again(restore=False)  # nobody uses it any more
    assert lane.start().status == 0


def test_a_full_file_system_is_said_and_leaves_nothing_behind(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    program = lane.start()
    assert program.status == errno.ENOSPC
    assert "no room for a board" in program.message
    assert not list(lane.boards.glob(f"{program.pid}-*"))
    monkeypatch.undo()
    assert lane.start().status == 0


def test_a_file_system_that_is_really_full(folder, mps) -> None:
    boards = folder / "boards"
    boards.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k,mode=0700", "tmpfs", str(boards)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of 8 KiB can be mounted by root only")
    lane = None
    try:
        lane = Lane(folder, mps)
        refused = lane.start()
        assert refused.status == errno.ENOSPC
        assert f"free some (df {boards.parent})" in refused.message
        subprocess.run(["mount", "-o", "remount,size=1m", str(boards)], check=True)
        assert lane.start().status == 0
    finally:
        if lane is not None:
            lane.close()
        subprocess.run(["umount", "-l", str(boards)], check=True)


def test_more_programs_than_slots_are_told_so(lane: Lane) -> None:
    lane.start()
    page = lane.service.directory.activity(GPU_TEXT, False)
    for slot in page.slots[1:]:
        slot.assign(1, 1, 1)
    program = lane.start()
    assert program.status == errno.EUSERS
    assert "places" in program.message


@pytest.mark.parametrize("junk", [b"x", b"\0" * 128, b"{", b"[]", b"{}", b'{"run": "x"}', b"\xff" * 4000])
def test_junk_is_refused_and_the_service_goes_on(lane: Lane, junk: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(LONG_S)
        link.connect(str(lane.service.socket))
        link.send(junk)
        answer = link.recv(4096)
    assert answer
    assert lane.start().status == 0


def test_one_who_says_nothing_is_not_kept(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detshare.runtime.service.PATIENCE", 0.3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(LONG_S)
        link.connect(str(lane.service.socket))
        assert link.recv(10) == b""


def test_two_daemons_do_not_share_a_board_directory(lane: Lane, folder) -> None:
    (folder / "second").mkdir()
    second = Service(folder / "second", lambda *_: [], lane.boards)
    with pytest.raises(ControlError, match=rf"another daemon \(PID {os.getpid()}\) has"):
        second.open()
    assert lane.start().status == 0


def test_a_board_directory_of_others_is_not_used(folder) -> None:
    path = folder / "boards"
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(ControlError, match="mode 777"):
        Directory(path).open()


@pytest.mark.parametrize(("klass", "priority"), [("high", "0"), ("normal", "0"), ("low", "1"), ("idle", "1")])
def test_lower_classes_start_as_clients_below(lane: Lane, klass: str, priority: str) -> None:
    answer = ask(lane, run=["python", "train.py"], lane="spatial", **{"class": klass})
    assert answer["environment"]["CUDA_MPS_CLIENT_PRIORITY"] == priority


def test_run_in_the_spatial_lane_starts_mps_and_keeps_what_was_asked(lane: Lane) -> None:
    answer = ask(lane, run=["python", "serve.py"], lane="spatial", **{"class": "high", "sm": 25, "tenant": "red"})
    assert answer["lane"] == "spatial"
    assert answer["environment"] == {**lane.mps.environment, "CUDA_MPS_CLIENT_PRIORITY": "0"}
    assert lane.mps.control is not None
    program = lane.start()  # a child of the one that asked
    record = lane.view(program).record
    assert (record.desired.klass, record.desired.percent, record.tenant) == ("high", 25, "red")
    lane.again(restore=False)
    assert lane.view(lane.start()).record.desired.percent == 25  # also of a daemon that came later


def test_run_without_mps_goes_to_the_temporal_lane_and_says_why(lane: Lane, control) -> None:
    control.unlink()
    answer = ask(lane, run=["x"], lane="spatial", **{"class": "low", "memory": 1 << 30})
    assert answer["lane"] == "temporal"
    assert "no " + str(control) in str(answer["why"])
    assert "next: install" in str(answer["why"])
    assert lane.steered == [(os.getpid(), "low", 1 << 30, "")]


def test_run_in_the_temporal_lane_passes_class_and_troubles_on(lane: Lane) -> None:
    lane.steer_says = ["set-memory was not done: no module"]
    answer = ask(lane, run=["x"], lane="temporal", **{"class": "high", "memory": 5, "sm": 50})
    assert lane.steered == [(os.getpid(), "high", 5, "")]
    assert "set-memory was not done: no module" in answer["notes"]  # type: ignore[operator]
    assert any("share of the SMs" in note for note in answer["notes"])  # type: ignore[attr-defined]
    assert not answer["observe"]


def test_auto_watches_the_first_run_and_then_knows(lane: Lane) -> None:
    body = {"run": ["/usr/bin/python3", "-u", "/srv/short.py", "7"], "lane": "auto"}
    first = ask(lane, **body)
    assert (first["lane"], first["observe"]) == ("temporal", True)
    program = lane.start()
    assert lane.service.tenants.views() == []  # it is only counted
    assert not (lane.boards / f"{GPU_TEXT}.activity").exists()
    assert lane.page(program).gate_us == 0
    program.do("hist 15 1000")
    program.end()
    until(lambda: not list(lane.boards.glob(f"{program.pid}-*")))
    second = ask(lane, **{**body, "run": ["/usr/bin/python3", "/elsewhere/short.py"]})
    assert second["lane"] == "spatial"
    assert "100% of the GPU time of 'python3 short.py'" in str(second["why"])


def test_auto_takes_a_program_that_leaves_sms_idle_into_the_spatial_lane(lane: Lane) -> None:
    asked = {"run": ["python", "small.py"], "lane": "auto", "class": None, "sm": None, "memory": None, "tenant": "a"}
    assert ask(lane, **asked)["lane"] == "temporal"
    program = lane.start("a")
    for word in ("hist 23 500", "put timed_ns 6000000000", "put filled_ns 1500000000"):
        program.do(word)
    program.end()
    until(lambda: ask(lane, **asked)["lane"] == "spatial")
    assert "left 75% of the SMs idle" in str(ask(lane, **asked)["why"])


def test_a_newcomer_after_a_death_in_mid_work_is_tried_first(lane: Lane, folder) -> None:
    ask(lane, run=["x"], lane="spatial")
    program = lane.start()
    assert not lane.mps.suspect
    program.do("put in_flight 3")
    program.end()
    until(lambda: lane.mps.suspect)
    (folder / "refuse").touch()
    working = lane.start()
    working.do(f"put last_launch {monotonic_ns() + 60 * 10**9}")
    with Slept() as slept:
        answer = ask(lane, run=["x"], lane="spatial")
    assert slept.seconds < 6
    assert answer["lane"] == "temporal"
    assert "takes no newcomer" in str(answer["why"])
    (folder / "refuse").unlink()
    assert ask(lane, run=["x"], lane="spatial")["lane"] == "spatial"


def test_a_death_at_rest_raises_no_doubt(lane: Lane) -> None:
    program = lane.start()
    program.end()
    until(lambda: "left the spatial lane" in lane.events())
    assert not lane.mps.suspect


def test_who_fell_with_the_server_is_named(lane: Lane, folder) -> None:
    ask(lane, run=["x"], lane="spatial", tenant="red")
    program = lane.start()
    (folder / "mps" / "clients").write_text(str(program.pid))
    with lane.service._mps_lock:
        lane.mps.refresh()
    server = lane.mps.servers[0]
    os.kill(server, 9)
    until(lambda: any(f"taken along: {program.pid} (red)" in text for text in lane.events()))
    assert "restart the program" in lane.view(program).lost
    assert any("taken along" in check.detail for check in lane.service.doctor())
    until(lambda: lane.mps.servers != (server,) or lane.mps.control is not None)


def test_who_came_a_moment_before_the_server_fell_is_named(lane: Lane) -> None:
    """The list of clients is asked for half a second after a program came, and MPS itself forgets with the server."""
    ask(lane, run=["x"], lane="spatial", tenant="red")
    with lane.service._mps_lock:
        lane.mps.refresh()
    (server,) = lane.mps.servers
    program = lane.start()
    os.kill(server, 9)
    until(lambda: any(f"taken along: {program.pid} (red)" in text for text in lane.events()))


def test_who_ended_with_the_control_daemon_is_named_too(lane: Lane, folder) -> None:
    """As the real one does: its server follows a moment later, and the clients end of it."""
    ask(lane, run=["x"], lane="spatial", tenant="red")
    program = lane.start()
    (folder / "mps" / "clients").write_text(str(program.pid))
    with lane.service._mps_lock:
        lane.mps.refresh()
    assert lane.mps.control is not None
    (server,) = lane.mps.servers
    os.kill(lane.mps.control, 9)
    program.end()
    time.sleep(0.3)
    os.kill(server, 9)
    until(lambda: any(f"taken along: {program.pid} (red)" in text for text in lane.events()))
    until(lambda: lane.mps.control is not None and lane.mps.state.value == "running")


def test_nothing_is_left_of_a_lane_that_nobody_uses(lane: Lane) -> None:
    program = lane.start()
    program.end()
    until(lambda: not lane.service.tenants.pids())
    lane.service.close()
    assert not lane.boards.exists()


def test_mps_ends_with_the_daemon_only_where_nobody_uses_it(lane: Lane, folder) -> None:
    ask(lane, run=["x"], lane="spatial")
    program = lane.start()
    control = lane.mps.control
    assert control is not None
    lane.again()
    assert lane.mps.control == control
    program.end()
    until(lambda: not lane.service.tenants.pids())
    lane.service.close()
    assert procfs.start_time(control) is None


def test_a_reserve_splits_and_is_kept(lane: Lane) -> None:
    high, low = lane.start(), lane.start()
    lane.service.policies.change(process(high.pid), klass="high")
    lane.service.policies.reserve(32)
    for program, tier in ((high, Tier(layout.TIER_FIRST, 32)), (low, Tier(layout.TIER_REST, 32))):
        page = lane.page(program)
        assert page.tiers[page.tier_idle] == page.tiers[page.tier_busy] == tier
        assert (page.mode_busy, page.gate_us) == (layout.MODE_TIER, 0)
    lane.again()
    page = lane.page(low)
    assert page.tiers[page.tier_idle] == Tier(layout.TIER_REST, 32)
    lane.service.policies.reserve(None)
    assert lane.page(low).tier_idle == 0
