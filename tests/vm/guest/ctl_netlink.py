# SPDX-License-Identifier: Apache-2.0
"""What nobody should send to the kernel module: it answers with an error, and nothing is changed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import select
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl, presence
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.presence import attribute
from tests.vm.guest.ctl_machine import GIB, Hog, driver, link
from tests.vm.guest.ctl_sim import SimDriver

__all__ = ["driver", "link"]  # fixtures

MESSAGES = int(os.environ.get("DETSHARE_MESSAGES", "100000"))
BATCH = 64
NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_DUMP = 4, 0x10, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3
CHANGING = (
    genl.DETSHARE_CMD_LIMIT_SET, genl.DETSHARE_CMD_LIMIT_DEL, genl.DETSHARE_CMD_TENANT_SET,
    genl.DETSHARE_CMD_TENANT_DEL, genl.DETSHARE_CMD_SCHED_SET, genl.DETSHARE_CMD_SCHED_DEL,
    genl.DETSHARE_CMD_CLASS_SET, genl.DETSHARE_CMD_CLASS_DEL, genl.DETSHARE_CMD_BUCKET_SET,
    genl.DETSHARE_CMD_BUCKET_DEL, genl.DETSHARE_CMD_HOLD_SET, genl.DETSHARE_CMD_HOLD_DEL, genl.DETSHARE_CMD_PREEMPT,
)  # fmt: skip
NAMED = (genl.DETSHARE_CMD_TENANT_SET, genl.DETSHARE_CMD_TENANT_DEL)
"""whose second attribute is a text; that of the others is a number"""
DUMPS = (2, 3, 4, 5, 8, 11, *(
    genl.DETSHARE_CMD_CLASS_GET, genl.DETSHARE_CMD_BUCKET_GET, genl.DETSHARE_CMD_HOLD_GET, genl.DETSHARE_CMD_ENTITY_GET,
    genl.DETSHARE_CMD_DENIED_GET,
))  # fmt: skip
FIRST_EVENTS = range(genl.DETSHARE_CMD_VCTX_NEW, genl.DETSHARE_CMD_DRIVER_DOWN + 1)
EVENTS = (*FIRST_EVENTS, *range(genl.DETSHARE_CMD_KICK, genl.DETSHARE_CMD_DENIED + 1))
REQUESTS = [cmd for cmd in range(1, genl.DETSHARE_CMD_DENIED + 1) if cmd not in EVENTS]
NONE = 1 << 21  # no process has such a number: PID_MAX_LIMIT is 2^22, the guest's pid_max far below


@dataclass(frozen=True)
class State:
    """All that a message could change."""

    limits: object
    tenants: object
    orders: object
    contexts: object
    classes: object
    buckets: object
    holds: object


def state(link: Link) -> State:
    return State(
        sorted(map(repr, link.limits())),
        sorted(map(repr, link.tenants())),
        sorted(map(repr, link.orders())),
        sorted(map(repr, link.vctxs())),
        sorted(map(repr, link.classes())),
        sorted((row.kind, row.pid, row.rate_us, row.burst_us) for row in link.buckets()),
        sorted((row.kind, row.pid, row.gate, row.pause) for row in link.holds()),
    )


@pytest.fixture
def wire() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    sock.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: answers of a batch
    return sock


def family() -> int:
    number = presence.family_id()
    assert number is not None
    return number


def message(cmd: int, attributes: bytes, *, flags: int = NLM_F_ACK, version: int = 1, sequence: int = 1) -> bytes:
    body = struct.pack("=BBH", cmd, version, 0) + attributes
    return struct.pack("=IHHII", 16 + len(body), family(), 1 | flags, sequence, 0) + body


def answers(sock: socket.socket, wait: bool) -> dict[int, int]:
    """sequence -> errno of what came (0: an ACK, -1: data); all that is there, at least something if `wait`."""
    found: dict[int, int] = {}
    while True:
        if wait and not found:
            ready = select.poll()
            ready.register(sock, select.POLLIN)
            assert ready.poll(20_000), "the kernel did not answer within 20 s"
        try:
            data = sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return found
        at = 0
        while at + 16 <= len(data):
            length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data, at)
            if kind == NLMSG_ERROR:
                found[sequence] = -struct.unpack_from("=i", data, at + 16)[0]
            elif kind != NLMSG_DONE:
                found.setdefault(sequence, -1)
            at += (length + 3) & ~3


def u32(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=I", value))


def u8(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=B", value))


def u64(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=Q", value))


def text(number: int, value: bytes) -> bytes:
    return attribute(number, value + b"\0")


LIMIT_KIND, LIMIT_PID, LIMIT_TENANT, LIMIT_LIMIT = 2, 3, 5, 7
SOUND: dict[int, Callable[[], bytes]] = {
    genl.DETSHARE_CMD_LIMIT_SET: lambda: u32(LIMIT_KIND, 0) + u32(LIMIT_PID, os.getpid()) + u64(LIMIT_LIMIT, GIB),
    genl.DETSHARE_CMD_LIMIT_DEL: lambda: u32(LIMIT_KIND, 0) + u32(LIMIT_PID, os.getpid()),
    genl.DETSHARE_CMD_TENANT_SET: lambda: text(2, b"garbage"),
    genl.DETSHARE_CMD_TENANT_DEL: lambda: text(2, b"garbage"),
    genl.DETSHARE_CMD_SCHED_SET: lambda: u32(2, os.getpid()) + text(3, b"high") + u64(4, 20_000) + u32(5, 2),
    genl.DETSHARE_CMD_SCHED_DEL: lambda: u32(2, os.getpid()),
    genl.DETSHARE_CMD_CLASS_SET: lambda: u32(2, 0) + text(3, b"garbage") + u64(5, 1000) + u32(6, 2),
    genl.DETSHARE_CMD_CLASS_DEL: lambda: u32(2, 0) + text(3, b"garbage"),
    genl.DETSHARE_CMD_BUCKET_SET: lambda: u32(2, 0) + u32(3, os.getpid()) + u64(6, 100_000) + u64(7, 10_000),
    genl.DETSHARE_CMD_BUCKET_DEL: lambda: u32(2, 0) + u32(3, os.getpid()),
    genl.DETSHARE_CMD_HOLD_SET: lambda: u32(2, 0) + u32(3, os.getpid()) + u8(6, 1) + u8(7, 0) + u32(8, 60_000),
    genl.DETSHARE_CMD_HOLD_DEL: lambda: u32(2, 0) + u32(3, os.getpid()),
    genl.DETSHARE_CMD_PREEMPT: lambda: u32(2, os.getpid()),
}
"""requests that would be done; a defect is put into each"""


def defective(rng: random.Random, sequence: int) -> bytes:
    """A request that changes something, with one thing in it that must not be."""
    cmd = rng.choice(CHANGING)
    sound = SOUND[cmd]()
    match rng.randrange(8):
        case 0:  # an attribute that the family does not have
            return message(
                cmd, sound + attribute(rng.randrange(40, 1 << 13), rng.randbytes(rng.randrange(9))), sequence=sequence
            )
        case 1:  # an attribute that is longer than what is there
            broken = bytearray(sound)
            struct.pack_into("=H", broken, 0, rng.randrange(len(sound) + 1, 1 << 16))
            return message(cmd, bytes(broken), sequence=sequence)
        case 2:  # a number of the wrong size, or a text without an end, before the right one
            size = 64 if cmd in NAMED else rng.choice((1, 2, 3, 5, 7, 9))
            return message(cmd, attribute(2, bytes(rng.choices(range(1, 256), k=size))) + sound, sequence=sequence)
        case 3:  # nothing of what must be there
            return message(cmd, b"", sequence=sequence)
        case 4:  # a length below that of an attribute's own head
            return message(cmd, struct.pack("=HH", rng.randrange(4), 2) + sound, sequence=sequence)
        case 5:  # bytes behind the last attribute
            return message(cmd, sound + rng.randbytes(rng.choice((1, 2, 3))), sequence=sequence)
        case 6:  # a command that there is not
            return message(rng.randrange(genl.DETSHARE_CMD_DENIED + 1, 256), sound, sequence=sequence)
        case _:  # an event, sent to the kernel
            return message(rng.choice(EVENTS), sound, sequence=sequence)


def test_every_defective_request_is_refused_and_changes_nothing(link: Link, wire: socket.socket) -> None:
    before = state(link)
    rng = random.Random(20261121)
    wrong: list[bytes] = []
    for first in range(1, MESSAGES // 2 + 1, BATCH):
        sent = {sequence: defective(rng, sequence) for sequence in range(first, first + BATCH)}
        wire.sendto(b"".join(each + bytes(-len(each) % 4) for each in sent.values()), (0, 0))
        got: dict[int, int] = {}
        while len(got) < len(sent):
            got |= answers(wire, wait=True)
        wrong += [sent[sequence] for sequence, code in got.items() if code <= 0]
    assert [each.hex() for each in wrong[:5]] == []
    assert state(link) == before


def test_bytes_of_any_kind_change_nothing(link: Link, wire: socket.socket) -> None:
    before = state(link)
    rng = random.Random(20261122)
    number = family()
    for sequence in range(MESSAGES // 2):
        length = rng.choice((0, 3, 15, 16, 17, 20, 24, 40, 120, 700))
        data = bytearray(rng.randbytes(length))
        if length >= 16:
            claimed = length if rng.random() < 0.7 else rng.randrange(1 << 32)
            flags = rng.choice((1, 5, 0x301, rng.randrange(1 << 16)))
            struct.pack_into("=IHHII", data, 0, claimed, number, flags, sequence, 0)
        if length >= 20 and rng.random() < 0.8:
            struct.pack_into("=BBH", data, 16, rng.randrange(genl.DETSHARE_CMD_DENIED + 3), 1, 0)
        try:
            wire.sendto(data, (0, 0))
        except OSError as error:
            assert error.errno in (errno.EINVAL, errno.EMSGSIZE, errno.ENODATA)  # noqa: PT017 - not even a header
        if sequence % 32 == 0:
            answers(wire, wait=False)
    answers(wire, wait=False)
    assert state(link) == before


def parts(sock: socket.socket) -> Iterator[list[tuple[int, int]]]:
    """A dump as it comes: (type, flags) of the messages of each part, up to the one that ends it."""
    while True:
        data, at, found = sock.recv(4096), 0, []
        while at + 16 <= len(data):
            length, kind, flags = struct.unpack_from("=IHH", data, at)
            found.append((kind, flags))
            at += (length + 3) & ~3
        yield found
        if found[-1][0] in (NLMSG_DONE, NLMSG_ERROR):
            return


def test_a_dump_of_several_parts_says_that_a_row_went_meanwhile(link: Link, wire: socket.socket) -> None:
    """Rows are listed by their place: of those behind it one is left out."""
    names = [f"rows-{n}" for n in range(300)]
    for name in names:
        link.set_tenant(name)
    request = message(genl.DETSHARE_CMD_TENANT_GET, b"", flags=NLM_F_DUMP)
    try:
        wire.sendto(request, (0, 0))
        whole = [each for part in parts(wire) for each in part]
        assert [kind for kind, _ in whole] == [family()] * (len(whole) - 1) + [NLMSG_DONE]
        assert not any(flags & NLM_F_DUMP_INTR for _, flags in whole)
        wire.sendto(request, (0, 0))
        reading = parts(wire)
        first = next(reading)
        link.del_tenant(names[0])
        later = [each for part in reading for each in part]
        assert len(first) + len(later) < len(whole)
        assert not any(flags & NLM_F_DUMP_INTR for _, flags in first)
        assert later[-1][1] & NLM_F_DUMP_INTR
        assert any(flags & NLM_F_DUMP_INTR for kind, flags in later if kind == family())
    finally:
        for name in names:
            with contextlib.suppress(KernelRefused):
                link.del_tenant(name)


def test_dumps_that_nobody_reads_end_with_their_socket(link: Link) -> None:
    for _ in range(200):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            sock.sendto(message(genl.DETSHARE_CMD_VCTX_GET, b"", flags=NLM_F_DUMP), (0, 0))
    assert link.status().module_version


def refusal(call: Callable[[], object]) -> KernelRefused:
    with pytest.raises(KernelRefused) as caught:
        call()
    assert len(caught.value.words) > 20, "an error says what was asked, what stopped it and what to do next"
    return caught.value


def test_a_process_that_is_not_there(link: Link) -> None:
    before = state(link)
    socket_ = genl.DetShare()
    for call in (
        lambda: socket_.limit_set(GIB, kind=0, pid=NONE),
        lambda: socket_.limit_del(kind=0, pid=NONE),
        lambda: socket_.sched_set(NONE, "high", 20_000, 2),
        lambda: socket_.tenant_set("red", NONE),
        lambda: socket_.sched_del(NONE),
        lambda: socket_.preempt(pid=NONE),
        lambda: socket_.hold_set(gate=True, pause=True, kind=0, pid=NONE),
        lambda: socket_.hold_del(kind=0, pid=NONE),
        lambda: socket_.bucket_set(1000, 1000, pid=NONE),
        lambda: socket_.bucket_del(pid=0),
    ):
        with pytest.raises(Exception, match=r".") as caught:
            call()
        assert caught.value.args[0] in (errno.ESRCH, errno.ENOENT)
        assert "no such process" in str(caught.value.args[1])
    socket_.close()
    assert state(link) == before


@pytest.mark.parametrize(
    ("size", "code"), [(0, errno.EINVAL), ((1 << 64) - 1, errno.ERANGE), ((1 << 63) + 1, errno.ERANGE)]
)
def test_sizes_that_are_none(link: Link, driver: SimDriver, size: int, code: int) -> None:
    from detshare.ctl.core.accounts import Target
    from detshare.ctl.core.snapshot import AccountKind

    hog = Hog(driver)
    before = state(link)
    target = Target(AccountKind.PID, str(hog.pid), hog.process.id)
    assert refusal(lambda: link.set_limit(target, size, None)).code == code
    assert state(link) == before
    assert hog.take(GIB)[0] == 0


def test_accounts_that_are_none(link: Link) -> None:
    before = state(link)
    socket_ = genl.DetShare()
    for account in (
        {"kind": 3, "pid": 1},
        {"kind": 0},
        {"kind": 1},
        {"kind": 2},
        {"kind": 1, "cgroup_id": 0x7FFFFFFFFFFF},
        {"kind": 2, "tenant": "nosuch"},
        {"kind": 2, "tenant": ""},
        {"kind": 2, "tenant": "x" * 64},
        {"kind": 0, "pid": os.getpid(), "gpu": 77},
        {"kind": 0, "pid": 0},
    ):
        with pytest.raises(Exception, match=r".") as caught:
            socket_.limit_set(GIB, **account)
        assert caught.value.args[0] in (errno.EINVAL, errno.ENOENT, errno.ESRCH, errno.ERANGE, errno.ENODEV), account
    for words in ((os.getpid(), "x" * 64, 1, 1), (os.getpid(), "high", 1, 3), (0, "high", 1, 1)):
        with pytest.raises(Exception, match=r".") as caught:
            socket_.sched_set(*words)
        assert caught.value.args[0] in (errno.EINVAL, errno.ESRCH, errno.ERANGE), words
    socket_.close()
    assert state(link) == before


ME: dict[str, object] = {"kind": 0, "pid": os.getpid()}
TENANT: dict[str, object] = {"kind": 2, "tenant": "nosuch"}


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda s: s.sched_set(os.getpid(), weight=0), errno.ERANGE, "weight is 1 to 1000"),
        (lambda s: s.sched_set(os.getpid(), weight=1001), errno.ERANGE, "weight is 1 to 1000"),
        (lambda s: s.sched_set(os.getpid(), slice_us=5, weight=5), errno.EINVAL, "give one of them"),
        (lambda s: s.sched_set(os.getpid(), tpc_percent=0), errno.ERANGE, "tpc-percent is 1 to 100"),
        (lambda s: s.sched_set(os.getpid(), tpc_percent=101), errno.ERANGE, "tpc-percent is 1 to 100"),
        (lambda s: s.sched_set(os.getpid()), errno.EINVAL, "nothing is ordered"),
        (lambda s: s.sched_set(os.getpid(), "high", 60_000_001), errno.ERANGE, "above 60 s"),
        (lambda s: s.sched_set(klass="high", **TENANT), errno.ENOENT, "make it by tenant-set"),
        (lambda s: s.sched_set(klass="high", kind=1, cgroup_id=1), errno.EINVAL, "root cgroup"),
        (lambda s: s.sched_set(klass="high", kind=1), errno.EINVAL, "add the attribute cgroup-id"),
        (lambda s: s.sched_del(os.getpid()), errno.ENOENT, "sched-get lists"),
        (lambda s: s.preempt(**ME), errno.ESRCH, "nobody of it"),
        (lambda s: s.class_set("a b"), errno.EINVAL, "without spaces"),
        (lambda s: s.class_set(""), errno.EINVAL, "1 to 63 bytes"),
        (lambda s: s.class_set("x", turn_rank=1001), errno.ERANGE, "above 1000"),
        (lambda s: s.class_set("x", weight=0), errno.ERANGE, "weight is 1 to 1000"),
        (lambda s: s.class_set("x", floor_permille=1001), errno.ERANGE, "above 1000"),
        (lambda s: s.class_set("x", turn_us=1 << 40), errno.ERANGE, "5 ms to 1 s"),
        (lambda s: s.class_set("x", slice_us=9, weight=9), errno.EINVAL, "give one of them"),
        (lambda s: s.class_set("x", gpu=77), errno.ERANGE, "no such GPU"),
        (lambda s: s.class_del("nosuch"), errno.ENOENT, "class-get lists"),
        (lambda s: s.bucket_set(None, 5, **ME), errno.EINVAL, "add the attribute rate-us"),
        (lambda s: s.bucket_set(0, 5, **ME), errno.ERANGE, "1 to 1000000"),
        (lambda s: s.bucket_set(1_000_001, 5, **ME), errno.ERANGE, "1 to 1000000"),
        (lambda s: s.bucket_set(5, 0, **ME), errno.ERANGE, "burst-us is 1"),
        (lambda s: s.bucket_del(**ME), errno.ENOENT, "bucket-get lists"),
        (lambda s: s.bucket_set(5, 5, **TENANT), errno.ENOENT, "no such tenant"),
        (lambda s: s.hold_set(False, False, **ME), errno.EINVAL, "to let go use hold-del"),
        (lambda s: s.hold_set(2, 0, **ME), errno.ERANGE, "0 or 1"),
        (lambda s: s.hold_set(1, 0, lease_ms=0, **ME), errno.ERANGE, "one hour"),
        (lambda s: s.hold_set(1, 0, lease_ms=3_600_001, **ME), errno.ERANGE, "one hour"),
        (lambda s: s.hold_del(**ME), errno.ENOENT, "entity-get says"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(
    link: Link, call: Callable[[genl.DetShare], object], code: int, words: str
) -> None:
    before = state(link)
    with genl.DetShare() as sock, pytest.raises(NetlinkError) as caught:
        call(sock)
    assert caught.value.code == code
    assert words in str(caught.value.args[1])
    assert state(link) == before


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def become_network_admin() -> None:
    """root with CAP_NET_ADMIN alone: what a container with the host's network may be."""
    version, sets = 0x20080522, 1 << 12
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(struct.pack("=Ii", version, 0), struct.pack("=6I", sets, sets, sets, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")


WITHOUT_RIGHTS = (become_nobody, become_network_admin)


def in_child(become: Callable[[], None], function: Callable[[], int]) -> int:
    """What `function` returns in a child that has become so."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            become()
            code = function()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("become", WITHOUT_RIGHTS)
@pytest.mark.parametrize("cmd", REQUESTS)
def test_who_is_no_administrator_is_told_nothing_and_changes_nothing(
    link: Link, wire: socket.socket, cmd: int, become: Callable[[], None]
) -> None:
    before = state(link)
    dump = cmd in DUMPS
    request = message(cmd, SOUND.get(cmd, bytes)(), flags=NLM_F_DUMP if dump else NLM_F_ACK, sequence=7)

    def ask() -> int:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16) as sock:
            sock.sendto(request, (0, 0))
            return answers(sock, wait=True)[7]

    assert in_child(become, ask) == errno.EPERM
    assert state(link) == before


@pytest.mark.parametrize("become", WITHOUT_RIGHTS)
def test_who_is_no_administrator_hears_no_events(become: Callable[[], None]) -> None:
    def join() -> int:
        from detshare.ctl.core.driver import NotAllowed
        from detshare.ctl.netlink.events import Listener

        try:
            Listener().close()
        except NotAllowed:
            return 3
        return 0

    assert in_child(become, join) == 3
