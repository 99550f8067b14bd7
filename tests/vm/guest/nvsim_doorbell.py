# SPDX-License-Identifier: Apache-2.0
"""CPU mappings of doorbells: what rings, what comes back after a revocation, what the page tables remember."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from detshare.tools.replay.run import CLIENTS
from tests.patience import until
from tests.vm.guest.nvsim_rm import Block, Rm, status
from tests.vm.guest.nvsim_tools import in_child, other, rm, tsg, vas
from tests.vm.guest.nvsim_work import DOORBELL_SIZE, ENDLESS, MS, SIM, Channel, Doorbell, of, order, table, usermode

__all__ = ["other", "rm"]  # fixtures

TIME = SIM["USERMODE_TIME_0"]
BELL = SIM["USERMODE_DOORBELL"]


def clock(bell: mmap.mmap) -> int:
    return int(struct.unpack_from("<Q", bell, TIME)[0])


def test_the_functions_of_mappings_can_be_traced() -> None:
    traceable = Path("/sys/kernel/tracing/available_filter_functions").read_text()
    for name in ("nvidia_mmap", "nvidia_fault", "nvidia_vma_access", "nvidia_vma_open", "nvidia_vma_release"):
        assert f"\n{name} [nvidia]\n" in traceable


def test_a_ring_starts_work_and_is_counted(rm: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.queue(MS)
    time.sleep(0.05)
    assert channel.finished == 0, "nobody rang"
    before = time.monotonic_ns()
    bell.kick(channel.token)
    assert channel.wait()
    row = of(rm, "kicks")[0]
    assert (row["way"], row["client"], row["pid"], row["rings"]) == ("cpu", f"{rm.client:#010x}", str(os.getpid()), "1")
    assert before <= int(row["last_ns"]) <= time.monotonic_ns()
    assert channel.row()["rings"] == "1"
    assert int(row["last_ns"]) <= int(channel.row()["last_ring_ns"]) <= time.monotonic_ns()
    bell.kick(channel.token + 0x800)
    assert until(lambda: of(rm, "kicks")[0]["rings"] == "2"), "a ring for nobody is still a ring"
    assert channel.row()["rings"] == "1"
    bell.close()
    channel.close()


def test_get_is_written_as_entries_are_fetched(rm: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.submit(bell, ENDLESS)
    channel.queue(MS)
    bell.kick(channel.token)
    assert until(lambda: channel.get == 1), "fetched, though its kernel has not ended"
    assert channel.finished == 0
    channel.release()
    assert channel.wait()
    until(lambda: channel.get == 2)
    bell.close()
    channel.close()


def test_an_entry_may_be_found_without_a_ring_while_the_channel_is_busy(rm: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.submit(bell, 50 * MS)
    channel.queue(MS)
    assert channel.wait(), "GP_PUT is looked at again when the ring seems empty"
    assert of(rm, "kicks")[0]["rings"] == "1"
    channel.queue(MS)
    assert not channel.wait(0.1), "and not when the channel has gone idle"
    bell.close()
    channel.close()


def test_a_copy_engine_launches_for_a_compute_object_only(rm: Rm) -> None:
    bell, space = Doorbell(rm), vas(rm)
    for computes in (True, False):
        channel = Channel(rm, tsg(rm, space, engine=9), space=space)
        if computes:
            channel.compute()
        assert channel.schedule() == 0
        channel.submit(bell, MS)
        assert channel.wait(None if computes else 0.5) is computes
        assert channel.row()["faulted"] == str(int(not computes))
        channel.close()
    far = Channel(rm, tsg(rm, space, engine=11), space=space)
    params = Block.of("NV_GR_ALLOCATION_PARAMETERS")
    refused = rm.alloc("HOPPER_COMPUTE_A", far.handle, rm.handle(), params)[0]
    assert refused == status("NV_ERR_INVALID_CLASS"), "it has a run list of its own"
    far.close()
    bell.close()


def test_a_revoked_mapping_comes_back_whole(rm: Rm, other: Rm) -> None:
    bell, neighbour, channel = Doorbell(rm), Doorbell(other), Channel(rm)
    faults = Path("/proc/self/stat")

    def minor() -> int:
        return int(faults.read_text().rsplit(")", 1)[1].split()[7])

    until(lambda: clock(bell.at) > 0)
    for revoked in (0, 1):
        if revoked:
            order("revoke", 1)
        before = minor()
        for page in range(0, DOORBELL_SIZE, 4096):
            struct.unpack_from("<I", bell.at, page)
        took = minor() - before
        # what Python itself faults is little; 16 pages one by one would be 16
        assert took < 12, f"{took} faults"
    until(lambda: clock(bell.at) > 0 and clock(neighbour.at) > 0)
    assert in_child(lambda: int(clock(bell.at) > 0)), "a child has the mapping too"
    order("revoke", 1)
    assert in_child(lambda: int(clock(bell.at) > 0)), "also when it has to come back there"
    neighbour.close()
    bell.close()
    channel.close()


libc = ctypes.CDLL(None, use_errno=True)


def test_a_piece_of_a_revoked_mapping_is_lost(rm: Rm) -> None:
    bell = Doorbell(rm)

    def use_tail(revoke: bool) -> int:
        faulthandler.disable()
        at = ctypes.addressof(ctypes.c_char.from_buffer(bell.at))
        assert libc.munmap(ctypes.c_void_p(at), 8 * 4096) == 0
        if revoke:
            order("revoke", 1)
        return ctypes.c_uint32.from_address(at + 9 * 4096).value

    assert in_child(lambda: use_tail(False)) == 0
    assert in_child(lambda: use_tail(True)) == -signal.SIGBUS
    bell.close()


def test_access_by_file_needs_no_page_tables(rm: Rm) -> None:
    """/proc/PID/mem and ptrace reach the doorbell of a revoked mapping, and ring it."""
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    at = ctypes.addressof(ctypes.c_char.from_buffer(bell.at))
    channel.queue(MS)
    order("revoke", 1)
    memory = os.open("/proc/self/mem", os.O_RDWR)
    assert os.pwrite(memory, struct.pack("<I", channel.token), at + BELL) == 4
    assert channel.wait()
    assert int.from_bytes(os.pread(memory, 8, at + TIME), "little") > 0
    assert of(rm, "touched")[0]["pages"] == "0", "no page table took part"
    os.close(memory)
    bell.close()
    channel.close()


def test_page_tables_remember_stores(rm: Rm) -> None:
    bell, channel = Doorbell(rm), Channel(rm)

    def touched() -> int:
        return int(of(rm, "touched")[0]["pages"])

    touched()
    clock(bell.at)
    assert touched() == 0, "a read is no store"
    bell.kick(1)
    assert touched() == 1
    assert touched() == 0
    bell.kick(1)
    assert touched() == 1, "also the second time"

    def store() -> int:
        bell.at[BELL : BELL + 4] = struct.pack("<I", 1)
        return 0

    assert in_child(store) == 0
    assert touched() == 0, "page tables of a process that is gone are gone"
    order("revoke", 1)
    clock(bell.at)
    assert touched() == 0
    bell.kick(1)
    assert touched() == 1, "also in a mapping that came back"
    bell.close()
    channel.close()


def test_more_mappings_duplicates_and_passed_files_ring_as_well(rm: Rm, other: Rm) -> None:
    channel = Channel(rm)
    assert channel.schedule() == 0
    object_ = usermode(rm)
    first, second = Doorbell(rm, object_), Doorbell(rm, object_)
    for bell in (first, second):
        channel.submit(bell, MS)
        assert channel.wait()
    # another client's duplicate rings for anybody
    assert rm.share(object_, "RS_SHARE_TYPE_ALL") == 0
    copy = other.handle()
    assert other.dup(rm.client, object_, copy, parent=other.subdevice) == 0
    third = Doorbell(other, copy)
    channel.submit(third, MS)
    assert channel.wait()
    assert (len(of(rm, "kicks")), len(of(other, "kicks"))) == (2, 1)
    # a file that was armed here is mapped elsewhere
    fd = rm.open("nvidia0")
    assert rm.map(object_, DOORBELL_SIZE, fd) == 0
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b"x"], [fd])
    channel.queue(MS)

    def elsewhere() -> int:
        passed = socket.recv_fds(theirs, 1, 1)[1][0]
        Doorbell(other, fd=passed).kick(channel.token)
        return 0

    assert in_child(elsewhere) == 0
    assert channel.wait()
    assert rm.map(object_, DOORBELL_SIZE, fd) == status("NV_ERR_STATE_IN_USE"), "a file is armed once"
    for bell in (first, second, third):
        bell.close()
    ours.close()
    theirs.close()
    channel.close()


def test_nothing_moves_while_the_machine_sleeps(rm: Rm) -> None:
    channel, bell = Channel(rm), Doorbell(rm)
    assert channel.schedule() == 0
    channel.submit(bell, ENDLESS)
    until(channel.moves)
    thread = threading.Thread(target=lambda: order("suspend", 1500))
    ran, began, longest = channel.ran_ns, time.monotonic(), 0.0
    thread.start()
    while thread.is_alive():
        before = time.monotonic()
        clock(bell.at)
        longest = max(longest, time.monotonic() - before)
    assert longest > 1.0, "the fault waited for the machine"
    assert channel.ran_ns - ran < (time.monotonic() - began - 1.0) * 1e9, "and the kernel stood still"
    assert until(channel.moves), "and the kernel goes on"
    channel.release()
    assert channel.wait()
    bell.close()
    channel.close()


@pytest.mark.parametrize("mappings", ["1", "2"])
def test_nvkick_counts_every_ring(mappings: str) -> None:
    words = [
        str(CLIENTS / "nvkick"),
        "--kicks",
        "50000",
        "--mappings",
        mappings,
        "--burst",
        "50000",
        "--idle-ms",
        "700",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        until(lambda: sum(int(row["kicks"]) for row in table("kicks")) == 50_000)
        until(lambda: all(int(row["rings"]) for row in table("kicks")))  # the GPU's clock sees the last burst later
        rows = table("kicks")
        assert len(rows) == int(mappings)
        assert all(int(row["rings"]) <= int(row["kicks"]) for row in rows)
        out, _ = process.communicate()
    summary = json.loads(out.splitlines()[-1])
    assert (summary["kicks"], summary["faults"]) == (50_000, 0)
    assert sum(summary["histogram"].values()) == 50_000
