# SPDX-License-Identifier: Apache-2.0
"""The helper against guests that are honest, wrong, hostile. The sanitizers end it at the first fault."""

from __future__ import annotations

import mmap
import os
import random
import struct
from collections.abc import Callable

from detshare.tools.replay.records import Call, read
from tests.patience import until
from tests.unit.nvfwd.conftest import TRACE
from tests.unit.nvfwd.fake_qemu import (
    CLOSE,
    DATA,
    DESC,
    HELLO,
    IOCTL,
    KERNEL,
    MMAP,
    NUM,
    OPEN,
    PIN,
    POLL,
    RAM,
    REP,
    REQ,
    TEXT,
    UNPIN,
    WRITE,
    FakeQemu,
)  # fmt: skip

CTL, GPU, UVM = 0, 1, 2
EBADF, EFAULT, EINVAL, ENODEV, ENOSYS, EPROTO = -9, -14, -22, -19, -38, -71
Guest = Callable[[], FakeQemu]


def open_file(guest: FakeQemu, device: int = CTL) -> int:
    error, value, _ = guest.ask(OPEN, a=device)
    assert error == 0
    return value


def first_call() -> Call:
    return next(record for record in read(TRACE) if isinstance(record, Call))


def test_what_it_says_first(qemu: Guest) -> None:
    guest = qemu()
    error, _, back = guest.ask(HELLO, room=512)
    assert error == 0
    assert back[:11] == b"580.159.04\0"
    assert struct.unpack_from("<II", back, 32) == (1, 1)
    assert b"580.159.04" in guest.ask(TEXT, room=512)[2]
    # a text that has no room is cut, not written behind it
    assert len(guest.ask(TEXT, room=8)[2]) == 8


def test_a_recorded_call_is_answered_once_and_in_order(qemu: Guest) -> None:
    guest = qemu()
    file = open_file(guest)
    call = first_call()
    error, back = guest.escape(file, call.nr, call.before)
    assert (error, back[: len(call.after)]) == (0, call.after)
    # it is not the next one any more
    assert guest.escape(file, call.nr, call.before)[0] == ENOSYS
    assert guest.stat()["unrecorded"] == 1
    # all files closed: the recording begins anew
    assert guest.ask(CLOSE, file)[0] == 0
    file = open_file(guest)
    assert guest.escape(file, call.nr, call.before)[0] == 0
    # one byte differs
    guest.ask(CLOSE, file)
    file = open_file(guest)
    changed = bytes([call.before[0] ^ 1]) + call.before[1:]
    assert guest.escape(file, call.nr, changed)[0] == ENOSYS


def test_handles_that_are_none(qemu: Guest) -> None:
    guest = qemu()
    for handle in (-1, -(2**31), 0, 1, 4095, 4096, 2**31 - 1):
        for op in (CLOSE, IOCTL, MMAP, POLL):
            assert guest.ask(op, handle, bytes(8), 8)[0] == EBADF, (op, handle)
    assert guest.ask(OPEN, a=3)[0] == ENODEV
    assert guest.ask(OPEN, a=GPU, b=1 << 40)[0] == ENODEV
    assert guest.ask(99)[0] == ENOSYS
    file = open_file(guest)
    assert guest.ask(CLOSE, file)[0] == 0
    assert guest.ask(CLOSE, file)[0] == EBADF


def test_descriptors_inside_parameters_are_handles_only(qemu: Guest) -> None:
    guest = qemu()
    file = open_file(guest, GPU)
    for number in (0, 1, 2, 5, 4096, 2**31 - 1):
        if number != file:
            assert guest.escape(file, 201, struct.pack("<I", number))[0] == EBADF


def test_sizes_that_do_not_fit_are_refused(qemu: Guest) -> None:
    guest = qemu()
    file = open_file(guest)
    control = struct.pack("<IIIIQII", 1, 1, 0x2080014A, 0, 0x1000, 268, 0)
    assert guest.escape(file, 0x2A, control, bytes(268))[0] == ENOSYS  # well formed: asked, and not recorded
    for size in (0, 8, 264, 280):
        assert guest.escape(file, 0x2A, control, bytes(size))[0] == EPROTO, size
    for block in (0, 31, 33, 1 << 20, 1 << 63):
        assert guest.ask(IOCTL, file, control, 32, 0x2A, block)[0] in (EPROTO, EINVAL), block
    # no room for the answer
    assert guest.ask(IOCTL, file, control + bytes(272), 8, 0x2A, 32)[0] == EPROTO
    # a list of which the parameters say that it is longer than all memory
    for count in (2, 8193, 0xFFFFFFFF):
        params = struct.pack("<I4xQQ", count, 1, 1)
        channels = struct.pack("<IIIIQII", 1, 1, 0x80170D, 0, 0x1000, 24, 0)
        assert guest.escape(file, 0x2A, channels, params)[0] in (EPROTO, EINVAL)
    assert guest.stat()["replayed"] == 0


def test_unknown_calls_never_pass(qemu: Guest) -> None:
    guest = qemu()
    file, uvm = open_file(guest), open_file(guest, UVM)
    before = guest.stat()["unrecorded"]
    for number in (0, 0x32, 0x39, 0x4D, 0x5F, 211, 216, 217, 255, 2**32 - 1):
        assert guest.escape(file, number, bytes(64))[0] == EINVAL, number
    for number in (0, 18, 77, 0x30000003):
        assert guest.escape(uvm, number, bytes(64))[0] == EINVAL, number
    privileged = struct.pack("<IIIIQII", 1, 1, 0x90670102, 0, 0, 0, 0)
    assert guest.escape(file, 0x2A, privileged)[0] == EINVAL
    after = guest.stat()
    assert after["unrecorded"] == before
    assert after["refused"] >= 15


def test_views_of_memory(qemu: Guest) -> None:
    guest = qemu()
    page = mmap.PAGESIZE

    def pin(*runs: tuple[int, int], length: int) -> tuple[int, int]:
        return guest.ask(PIN, data=b"".join(struct.pack("<QQ", *run) for run in runs), a=length)[:2]

    error, view = pin((RAM - page, page), (0x200000, page), length=2 * page)
    assert error == 0
    for wrong in (
        [(RAM, page)], [(RAM - page, 2 * page)], [(2**64 - page, page)], [(2**64 - page, 2 * page)], [(1, page)],
        [(0, 1)], [(0, 0)], [],
    ):  # fmt: skip
        for length in (page, 0, 2**63, 2**64 - page):
            assert pin(*wrong, length=length)[0] < 0, (wrong, length)
    assert pin((0, page), length=2 * page)[0] == EINVAL
    assert guest.stat()["pins"] == 1
    # an ioctl that registers more than there is
    gpu = open_file(guest, GPU)
    for number, offset, limit in (
        (view, 0, 2 * page),
        (view, 1, 2 * page - 1),
        (view + 1, 0, 0),
        (1 << 20, 0, 0),
        (view, 0, 2**32),
    ):
        block = struct.pack("<IIIII4xQQIIi4x", 1, 1, 2, 0x71, 0, number << 32 | offset, limit, 0, 0, -1)
        assert guest.escape(gpu, 0x27, block[:56])[0] in (EFAULT, EINVAL), (number, offset, limit)
    assert guest.ask(UNPIN, a=view)[0] == 0
    for number in (view, 1023, 1024, 2**64 - 1):
        assert guest.ask(UNPIN, a=number)[0] < 0
    # given up by a guest that dies
    pin((0, page), length=page)


def test_mappings_are_asked_within_bounds(qemu: Guest) -> None:
    guest = qemu()
    file = open_file(guest)
    for offset, length in ((0, 0), (0, 1), (1, 4096), (0, 1 << 62), (0, 2**64 - 4096), (2**64 - 4096, 4096)):
        assert guest.ask(MMAP, file, a=offset, b=length)[0] < 0
    assert guest.mapped == []


def test_chains_that_are_none(qemu: Guest) -> None:
    guest = qemu()
    ask, answer = (DATA, REQ.size, 0), (DATA + 0x800, REP.size, WRITE)
    for parts in (
        [ask],
        [answer],
        [answer, ask],
        [ask, ask, ask, answer],
        [ask, answer, answer, answer],
        [(RAM, REQ.size, 0), answer],
        [(RAM - 8, REQ.size, 0), answer],
        [(2**64 - 8, REQ.size, 0), answer],
        [(DATA, 0, 0), answer],
        [(DATA, REQ.size - 1, 0), answer],
        [ask, (DATA, REP.size + 1, WRITE)],
        [(DATA, REQ.size, 4), answer],  # an indirect table
    ):
        guest.chain(parts)
        assert guest.used() == 0, parts
    # in a circle, and out of the table
    guest.ram[DESC : DESC + 16] = struct.pack("<QIHH", DATA, 8, 1, 0)
    guest.offer(0)
    assert guest.used() == 0
    guest.ram[DESC : DESC + 16] = struct.pack("<QIHH", DATA, 8, 1, 0xFFFF)
    guest.offer(0)
    assert guest.used() == 0
    guest.offer(NUM)
    assert guest.used() == 0
    # lengths that contradict
    guest.ram[DATA : DATA + REQ.size] = REQ.pack(IOCTL, 0, 0x2A, 1 << 31, 32, 0, 0)
    guest.chain([ask, (DATA + 0x1000, 64, 0), answer])
    guest.used()
    assert REP.unpack_from(guest.ram, DATA + 0x800)[0] == EPROTO
    assert guest.ask(HELLO, room=512)[0] == 0


def test_a_reset_forgets_everything(qemu: Guest) -> None:
    guest = qemu()
    before = guest.stat()
    for device in (CTL, GPU, UVM) * 20:
        open_file(guest, device)
    guest.ask(PIN, data=struct.pack("<QQ", 0, 4096), a=4096)
    now = guest.stat()
    assert (now["handles"], now["pins"]) == (60, 1)
    guest.stop()
    guest.start()
    after = guest.stat()
    assert [after[name] for name in ("handles", "pins", "descriptors")] == [0, 0, before["descriptors"]]


def test_a_poll_waits_without_a_worker_and_ends_with_its_file(qemu: Guest) -> None:
    guest = qemu()
    file = open_file(guest, GPU)
    # apart from where other calls are put together
    asked, answer = DATA + 0x600, DATA + 0x400
    guest.ram[asked : asked + REQ.size] = REQ.pack(POLL, file, 0, 0, 1, 0, 0)
    guest.chain([(asked, REQ.size, 0), (answer, REP.size, WRITE)], head=6)
    until(lambda: guest.stat()["waits"] == 1)
    guest.ask(CLOSE, file)
    guest.used()
    assert REP.unpack_from(guest.ram, answer)[0] == -125  # ECANCELED


def test_bytes_at_random_never_end_it(qemu: Guest) -> None:
    """6000 calls: whole requests, and well-formed ones with a few bytes changed."""
    seed = int(os.environ.get("DETSHARE_SEED", "20261123"))
    choice = random.Random(seed)
    guest = qemu()
    files = [open_file(guest, device) for device in (CTL, GPU, UVM)]
    calls = [record for record in read(TRACE) if isinstance(record, Call)]
    for _ in range(6000):
        record = choice.choice(calls)
        data = bytearray(
            record.before[: choice.choice((len(record.before), choice.randrange(256)))] + record.nested_before
        )
        data += bytes(-len(data) % 8)
        for _ in range(choice.randrange(6)):
            if data:
                data[choice.randrange(len(data))] = choice.choice((0, 1, 0x7F, 0x80, 0xFF, choice.randrange(256)))
        op = choice.choice((IOCTL,) * 6 + (KERNEL, KERNEL, OPEN, MMAP, PIN, UNPIN, choice.randrange(1, 9)))
        handle = choice.choice((*files, choice.randrange(-2, 40)))
        words = [choice.choice((0, 1, len(record.before), 4096, choice.randrange(2**64), 2**64 - 1)) for _ in range(3)]
        guest.ask(op, handle, bytes(data), choice.choice((len(data), 0, 64)), record.nr, *words)
        if op == CLOSE:
            files = [open_file(guest, device) for device in (CTL, GPU, UVM)]
    assert guest.ask(HELLO, room=512)[0] == 0, f"seed {seed}"
    guest.stop()
    guest.start()
    assert guest.stat()["handles"] == 0
