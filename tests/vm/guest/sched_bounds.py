# SPDX-License-Identifier: Apache-2.0
"""What one program can take of what all share: places in the driver, waits, channel groups, lines in the log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_reach import asks
from tests.vm.guest.kmod_tools import PID, load, row, unload
from tests.vm.guest.nvsim_rm import Block, Rm, Uvm, number, status, truth
from tests.vm.guest.nvsim_tools import channel, rm, tsg, vas
from tests.vm.guest.nvsim_work import ENDLESS, Channel, Doorbell
from tests.vm.guest.sched_answers import calls, waiting
from tests.vm.guest.sched_guests import ALL, distrusted, is_paused, maker
from tests.vm.guest.sched_hidden import Play, Programs, program
from tests.vm.guest.sched_stalled import Stalled
from tests.vm.guest.sched_tools import family, tsgs, worker

__all__ = ["family", "program", "rm", "worker"]  # fixtures

ME = {"kind": PID, "pid": os.getpid()}
GIB = 1 << 30
REFUSED = status("NV_ERR_INSUFFICIENT_PERMISSIONS")
RAW = 0x20808000
WAIT_S = 0.01  # as long as a wait for idle channels may take
KMSG = Path("/dev/kmsg")
PATIENCE_S = 10  # for an answer of the driver
MOST_MS = 10_000  # the simulator's
DUPLICATES = 4096


@contextmanager
def parameter(name: str, value: int) -> Iterator[None]:
    file = Path("/sys/module/detshare/parameters", name)
    before = file.read_text()
    file.write_text(str(value))
    try:
        yield
    finally:
        file.write_text(before)


@pytest.fixture
def limited(family: genl.DetShare) -> Iterator[genl.DetShare]:
    family.limit_set(40 * GIB, **ME)
    yield family
    family.limit_del(**ME)


# ---- channel groups ---------------------------------------------------------------------


def group(rm: Rm) -> tuple[int, int]:
    handle = rm.handle()
    return rm.alloc(
        "KEPLER_CHANNEL_GROUP_A", rm.device, handle, Block.of("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", engineType=1)
    )[0], handle


def test_a_limit_bounds_the_channel_groups_too(limited: genl.DetShare, rm: Rm) -> None:
    with parameter("groups_max", 3):
        made = [group(rm) for _ in range(4)]
        assert [code for code, _ in made] == [0, 0, 0, status("NV_ERR_NO_MEMORY")]
        assert rm.free(made[0][1]) == 0
        code, again = group(rm)
        assert code == 0
        limited.limit_del(**ME)
        code, more = group(rm)
        assert code == 0, "nobody has a limit"
        limited.limit_set(40 * GIB, **ME)
    for handle in (made[1][1], made[2][1], again, more):
        assert rm.free(handle) == 0


def test_memory_that_a_channel_keeps_stays_charged(family: genl.DetShare, rm: Rm) -> None:
    """That of its USERD, whatever else is in it, is free when the channel is gone."""
    piece, limit = 8 << 20, 32 << 20
    family.limit_set(limit, **ME)
    made = tsg(rm, vas(rm))
    for _ in range(2 * limit // piece):
        if rm.memory(piece)[0] == 0:
            code, _handle = channel(rm, made, userd=rm.last)
            assert code == 0
            assert rm.free(rm.last) == 0
    assert truth("used") == limit
    assert rm.free(made) == 0
    assert truth("used") == 0
    (entry,) = map(row, family.limit_get())
    assert entry["used"] == 0
    family.limit_del(**ME)


def test_none_of_them_lives_on_in_a_descriptor(limited: genl.DetShare, rm: Rm) -> None:
    """It would keep its context buffers and be counted no more."""
    with parameter("groups_max", 3):
        for _ in range(6):
            code, made = group(rm)
            assert code == 0
            rm.export(made, rm.open("nvidiactl"))
            assert rm.free(made) == 0
    assert tsgs() == []


# ---- sharing --------------------------------------------------------------------------------


def taking(client: int, group: int, mps: bool) -> Play:
    rm = Rm.start()
    if mps:
        assert rm.alloc("MPS_COMPUTE", rm.client, rm.handle())[0] == 0
    yield {"clients": [rm.client]}
    while True:
        yield {"status": rm.dup(client, group, rm.handle())}


def test_who_is_managed_shares_no_channel_group(family: genl.DetShare, program: Programs) -> None:
    one = program(maker)
    rival = program(taking, one.clients[0], one.ready["group"], False)
    family.sched_set(one.pid, None, 700)
    assert rival.ask() == {"status": REFUSED}
    assert is_paused(family, one)
    (denied,) = (row(each) for each in family.denied_get(rival.pid))
    assert denied["command"] == number("NV_ESC_RM_DUP_OBJECT")
    with parameter("share_groups", 2):
        assert rival.ask() == {"status": 0}
    assert not is_paused(family, one)


def partner() -> Play:
    """It lets everybody duplicate its context share."""
    rm = Rm.start()
    space, share = vas(rm), rm.handle()
    params = Block.of("NV_CTXSHARE_ALLOCATION_PARAMETERS", hVASpace=space)
    assert rm.alloc("FERMI_CONTEXT_SHARE_A", tsg(rm, space), share, params)[0] == 0
    assert rm.share(share, ALL) == 0
    while True:
        yield {"clients": [rm.client], "share": share}


def partaking(client: int, share: int) -> Play:
    """In a channel group of its own, as the driver allows."""
    rm = Rm.start()
    own = tsg(rm, vas(rm))
    yield {"clients": [rm.client]}
    while True:
        yield {"status": rm.dup(client, share, rm.handle(), parent=own)}


@pytest.mark.parametrize("managed", ["giver", "taker"])
def test_who_is_managed_shares_no_part_of_one_either(family: genl.DetShare, program: Programs, managed: str) -> None:
    one = program(partner)
    rival = program(partaking, one.clients[0], one.ready["share"])
    assert rival.ask() == {"status": 0}, "nobody is managed"
    family.sched_set((one if managed == "giver" else rival).pid, None, 700)
    assert rival.ask() == {"status": REFUSED}


@pytest.mark.parametrize("most", [0, 1])
def test_mps_may_be_let_share_them(family: genl.DetShare, program: Programs, most: int) -> None:
    one = program(maker)
    server = program(taking, one.clients[0], one.ready["group"], True)
    family.sched_set(one.pid, None, 700)
    with parameter("share_groups", most):
        assert server.ask() == {"status": 0 if most else REFUSED}


def collecting(client: int, group: int, count: int) -> Play:
    """Duplicates of another's channel group, until there are no more."""
    rm = Rm.start()
    yield {"clients": [rm.client]}
    codes: list[int] = []
    while len(codes) < count and not any(codes):
        codes.append(rm.dup(client, group, rm.handle()))
    last = rm.next - 1
    yield {"count": codes.count(0), "code": codes[-1]}
    assert rm.free(last - 1) == 0
    yield {"code": rm.dup(client, group, last - 1)}


def test_a_client_has_so_many_duplicates_of_channel_groups_of_others(program: Programs) -> None:
    one = program(maker)
    many = program(collecting, one.clients[0], one.ready["group"], DUPLICATES + 1)
    assert many.ask() == {"count": DUPLICATES, "code": status("NV_ERR_NO_MEMORY")}
    assert many.ask() == {"code": 0}


def test_an_mps_object_helps_nobody_of_one_tenant(family: genl.DetShare, program: Programs) -> None:
    one = program(maker)
    rival = program(taking, one.clients[0], one.ready["group"], True)
    for each in (one, rival):
        family.sched_set(each.pid, None, 700)
    assert rival.ask() == {"status": REFUSED}
    assert is_paused(family, one)


# ---- calls ------------------------------------------------------------------------------------


def starts() -> Play:
    """Makes a client."""
    yield {}
    while True:
        Rm.start().close()
        yield {}


def test_one_process_has_so_many_calls_in_the_driver(family: genl.DetShare, program: Programs) -> None:
    other = program(starts)
    mine = [Rm.start() for _ in range(3)]
    blocks = [
        Block.of(
            "NVOS64_PARAMETERS",
            hRoot=each.client,
            hObjectParent=each.client,
            hObjectNew=each.handle(),
            hClass=number("MPS_COMPUTE"),
        )
        for each in mine[:2]
    ]
    with parameter("calls_of_one", 2):
        stalled = [Stalled(each.ctl, "NV_ESC_RM_ALLOC", block) for each, block in zip(mine, blocks, strict=False)]
        third = threading.Thread(target=lambda: group(mine[2]))
        third.start()
        assert other.ask() == {}, "another process"
        third.join(0.5)
        assert third.is_alive()
        assert stalled.pop().end() == 0
        third.join()
        assert stalled.pop().end() == 0
    for each in mine:
        each.close()


def test_waits_for_idle_channels_of_one_tenant_follow_each_other(family: genl.DetShare, rm: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.submit(bell, ENDLESS)
    until(channel.moves)
    family.sched_set(ME["pid"], None, 700)
    threads, times = 4, 20
    codes: list[int] = []

    def loop(door: str) -> None:
        codes.extend(asks(rm, channel, door) for _ in range(times))

    running = [threading.Thread(target=loop, args=("escape" if n else "control",)) for n in range(threads)]
    begin = time.monotonic()
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert codes == [status("NV_ERR_TIMEOUT")] * (threads * times)
    assert time.monotonic() - begin >= threads * times * WAIT_S
    bell.close()


# ---- answers of the driver ----------------------------------------------------------------------


def log_since(log: int) -> str:
    lines = []
    while True:
        try:
            lines.append(os.read(log, 1 << 14).decode(errors="replace"))
        except BlockingIOError:
            return "".join(lines)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("NV2080_CTRL_CMD_GPU_GET_GID_INFO", "who GPU 0 is"),
        ("NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS", "a new channel on GPU 0"),
    ],
)
def test_a_program_does_not_wait_for_ever_for_what_the_module_asks(program: Programs, question: str, said: str) -> None:
    """The first program of a GPU, and its first channel, bring the module's questions about."""
    unload()
    load()
    log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    with waiting(number(question), MOST_MS, MOST_MS):
        one = program(maker)
        given_up = calls(number(question))[2] == 0
        lines = log_since(log)
        until(lambda: calls(number(question))[2])
    os.close(log)
    assert given_up, "it went on only when the driver had answered"
    assert f"has not said within {PATIENCE_S} s" in lines
    assert said in lines
    one.end()
    program(maker)


# ---- controls -----------------------------------------------------------------------------------


def exporting() -> Play:
    rm = Rm.start()
    distrusted()
    yield {"clients": [rm.client]}
    while True:
        yield {"status": rm.control(rm.client, "NV00E0_CTRL_CMD_EXPORT_MEM", Block.of("NV00E0_CTRL_EXPORT_MEM_PARAMS"))}


def test_who_is_limited_exports_nothing(family: genl.DetShare, program: Programs) -> None:
    one = program(exporting)
    assert one.ask()["status"] != REFUSED
    family.limit_set(GIB, kind=PID, pid=one.pid)
    assert one.ask()["status"] == REFUSED


def trying(count: int) -> Play:
    rm = Rm.start()
    yield {"clients": [rm.client]}
    yield {"codes": sorted({rm.control(rm.subdevice, RAW + n) for n in range(count)})}


def test_the_log_takes_few_lines_of_one(family: genl.DetShare, program: Programs) -> None:
    one = program(trying, 60)
    family.sched_set(one.pid, None, 700)
    log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    assert one.ask() == {"codes": [REFUSED]}
    lines = log_since(log).splitlines()
    os.close(log)
    said = [line for line in lines if f"process {one.pid} " in line and "not let through" in line]
    assert 1 <= len(said) <= 12
    assert sum(row(each)["count"] for each in family.denied_get(one.pid)) == 60


# ---- managed memory -------------------------------------------------------------------------------


def initialised(uvm: Uvm, flags: int) -> int:
    """As the driver: NV_OK if the file was made with the same flags."""
    return uvm.call("UVM_INITIALIZE", Block.of("UVM_INITIALIZE_PARAMS", flags=flags))


def test_who_is_limited_goes_without_hmm(family: genl.DetShare, rm: Rm) -> None:
    no_hmm, other = 1, status("NV_ERR_INVALID_ARGUMENT")
    free = Uvm(rm)
    assert (initialised(free, 0), initialised(free, no_hmm)) == (0, other)
    family.limit_set(40 * GIB, **ME)
    bound = Uvm(rm)
    assert (initialised(bound, no_hmm), initialised(bound, 0)) == (0, other)
    family.limit_del(**ME)
    for each in (free, bound):
        each.close()
