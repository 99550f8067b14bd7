# SPDX-License-Identifier: Apache-2.0
"""A request for boards goes ahead of the context: what is given for a context that is never made is given back."""

from __future__ import annotations

import array
import errno
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builds import LIBRARY, made
from spatial_lane import GPU, Lane

from detshare.runtime import board_layout as layout
from detshare.runtime import sealed
from detshare.runtime.board import TAKEN, Attach, Attached
from detshare.runtime.tenant import Tenant
from tests.patience import LONG_S, until

pytestmark = pytest.mark.e2e

ENTERED = "entered the spatial lane"
LEFT = "left the spatial lane"


def ask(lane: Lane, ahead: bool = True) -> tuple[socket.socket, Attached]:
    """The request of a library in this process; the descriptors of the answer are closed."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(LONG_S)
    link.connect(str(lane.service.socket))
    link.send(Attach(layout.VERSION, GPU.bytes, os.getpid(), 132, 8, 80 << 30, "", ahead).pack())
    data, rights, _, _ = link.recvmsg(4096, socket.CMSG_SPACE(64))
    got = array.array("i")
    for _, _, raw in rights:
        got.frombytes(raw)
    for each in got:
        os.close(each)
    return link, Attached.unpack(data)


def told(lane: Lane, text: str) -> int:
    return sum(text in event for event in lane.events())


def places(lane: Lane) -> dict[int, int]:
    """Slots by PID."""
    return {view.record.pid: view.record.slot for view in lane.service.tenants.views()}


@pytest.fixture
def kept(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """PIDs whose descriptors the daemon went to duplicate."""
    pids: list[int] = []
    keep = lane.service.tenants.keep

    def noting(tenant: Tenant) -> None:
        pids.append(tenant.record.pid)
        keep(tenant)

    monkeypatch.setattr(lane.service.tenants, "keep", noting)
    return pids


PROGRAM = """
import ctypes, os, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
def retain():
    print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), flush=True)
for line in sys.stdin:
    if line == "retain\\n":
        retain()
    elif line == "fork meanwhile\\n":
        thread = threading.Thread(target=retain)
        thread.start()
        sys.stdin.readline()
        child = os.fork()
        if not child:
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(lane: Lane) -> Iterator[Start]:
    """Starts programs with the library, on the stand-in driver."""
    made("runtime")
    driver = made("fakecuda")
    programs: list[subprocess.Popen[str]] = []

    def start_one(**settings: str) -> subprocess.Popen[str]:
        ours = {"LD_LIBRARY_PATH": str(driver), "LD_PRELOAD": str(LIBRARY), "DETSHARE_SOCKET": str(lane.service.socket)}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", PROGRAM]
        environment = {**os.environ, **ours, **settings}
        program = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True)
        programs.append(program)
        return programs[-1]

    yield start_one
    for program in programs:
        os.killpg(program.pid, signal.SIGKILL)  # its child, too, which has the same pipes
        program.communicate()


def say(program: subprocess.Popen[str], text: str) -> None:
    assert program.stdin is not None
    program.stdin.write(text + "\n")
    program.stdin.flush()


def said(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def test_who_gives_up_has_no_place(lane: Lane, kept: list[int]) -> None:
    link, answer = ask(lane)
    assert (answer.status, answer.slot) == (0, 0)
    assert lane.activity().slots[0].get("state") == layout.SLOT_LIVE
    link.close()
    until(lambda: not lane.service.tenants.pids())
    assert lane.activity().slots[0].get("state") == layout.SLOT_FREE
    assert not list(lane.boards.glob(f"{os.getpid()}-*"))
    assert (told(lane, ENTERED), told(lane, LEFT)) == (1, 1)
    assert kept == []
    assert lane.start().slot == 0


def test_what_else_is_said_takes_nothing(lane: Lane) -> None:
    link, _ = ask(lane)
    link.send(b"junk")
    until(lambda: not lane.service.tenants.pids())
    link.close()


def test_who_took_it_stays(lane: Lane, kept: list[int]) -> None:
    link, _ = ask(lane)
    assert lane.start().slot == 1  # answered after it: it may take its time
    assert os.getpid() not in kept
    link.send(TAKEN)
    link.close()
    until(lambda: os.getpid() in kept)
    assert lane.start().slot == 2
    assert os.getpid() in lane.service.tenants.pids()


def test_who_asks_with_a_context_takes_it_by_asking(lane: Lane, kept: list[int]) -> None:
    link, _ = ask(lane, ahead=False)
    link.close()
    until(lambda: os.getpid() in kept)
    assert lane.start().slot == 1
    assert os.getpid() in lane.service.tenants.pids()


def test_a_refusal_is_told_ahead(lane: Lane) -> None:
    lane.start()
    for slot in lane.service.directory.activity(f"GPU-{GPU}", False).slots[1:]:
        slot.assign(1, 1, 1)
    link, answer = ask(lane)
    assert answer.status == errno.EUSERS
    assert link.recv(10) == b""  # nothing is waited for
    link.close()


def test_another_daemon_knows_nothing_of_what_nobody_took(lane: Lane) -> None:
    """Sealed pages are in no program then. Who has a context in the end notices that nobody listens, and asks again."""
    other = lane.start()
    link, answer = ask(lane)
    assert answer.slot == 1
    lane.again(restore=False)
    with pytest.raises(BrokenPipeError):
        link.send(TAKEN)
    link.close()
    assert other.pid in lane.service.tenants.pids()
    if sealed.possible():
        assert lane.service.tenants.pids() == [other.pid]
        assert not any("keeps its last policy" in event for event in lane.events())
    link, answer = ask(lane, ahead=False)
    assert (answer.status, answer.slot) == (0, 1)
    link.close()
    assert set(lane.service.tenants.pids()) == {os.getpid(), other.pid}


def test_another_daemon_goes_on_with_what_was_taken(lane: Lane, start: Start) -> None:
    program = start()
    say(program, "retain")
    assert said(program) == "0"
    until(lambda: not lane.service._ahead)
    lane.again(restore=False)
    assert lane.service.tenants.pids() == [program.pid]


def test_another_daemon_goes_on_with_what_was_taken_and_not_heard(lane: Lane, start: Start) -> None:
    lane.service.tenants.taken = lambda tenant: None  # type: ignore[method-assign]
    test_another_daemon_goes_on_with_what_was_taken(lane, start)


def test_an_older_request_is_not_listened_to(lane: Lane) -> None:
    first, _ = ask(lane)
    second, _ = ask(lane)
    assert first.recv(10) == b""
    first.close()
    assert len(lane.service._ahead) == 1
    second.close()


def test_an_older_request_that_ends_takes_nothing_of_a_newer(lane: Lane) -> None:
    first, _ = ask(lane)
    second, answer = ask(lane)
    assert answer.status == 0
    first.close()
    assert lane.start().status == 0  # answered after that
    assert lane.activity().slots[answer.slot].get("pid") == os.getpid()
    second.send(TAKEN)
    second.close()
    assert os.getpid() in lane.service.tenants.pids()


def test_the_library_asks_once_and_before_there_is_a_context(lane: Lane, kept: list[int], start: Start) -> None:
    program = start(FAKECUDA_PRIMARY_US="60000000")
    say(program, "retain")
    until(lambda: told(lane, ENTERED) == 1)
    assert program.pid in lane.service.tenants.pids()
    other = start()
    say(other, "retain")
    assert said(other) == "0"
    until(lambda: other.pid in kept)
    assert told(lane, ENTERED) == 2
    assert program.pid not in kept
    assert places(lane) == {program.pid: 0, other.pid: 1}


def test_a_context_that_cannot_be_made_keeps_no_place(lane: Lane, start: Start) -> None:
    program = start(FAKECUDA_PRIMARY_FAIL="3")
    for _ in range(3):
        say(program, "retain")
        assert said(program) == "2"
    until(lambda: told(lane, LEFT) == 1)
    assert told(lane, ENTERED) == 1  # asked ahead once, not each time
    assert lane.service.tenants.pids() == []
    say(program, "retain")
    assert said(program) == "0"
    assert places(lane) == {program.pid: 0}
    assert told(lane, ENTERED) == 2


def test_who_got_no_answer_ahead_asks_again(lane: Lane, monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    """As of a daemon that was killed in between, and followed by another."""
    requests: list[bool] = []
    answer = lane.service._answer_attach

    def later(connection: socket.socket, data: bytes, pid: int, uid: int) -> bool:
        requests.append(Attach.unpack(data).ahead)
        return len(requests) > 1 and answer(connection, data, pid, uid)

    monkeypatch.setattr(lane.service, "_answer_attach", later)
    program = start()
    say(program, "retain")
    assert said(program) == "0"
    assert requests == [True, False]
    assert lane.service.tenants.pids() == [program.pid]


def test_who_was_not_heard_asks_again(lane: Lane, start: Start) -> None:
    """The daemon is another when the context is there."""
    program = start(FAKECUDA_PRIMARY_US="1000000")
    say(program, "retain")
    until(lambda: told(lane, ENTERED) == 1)
    program.send_signal(signal.SIGSTOP)  # its context takes as long as the daemons do
    lane.again(restore=False)
    assert lane.service._ahead == {}
    program.send_signal(signal.SIGCONT)
    assert said(program) == "0"
    assert lane.service.tenants.pids() == [program.pid]
    assert not next(iter(lane.service.tenants._tenants.values())).record.ahead


SLOW_CONNECT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
int connect(int fd, const struct sockaddr *to, socklen_t size)
{
	int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");

	if (write(1, "asks\n", 5) == 5)
		usleep(500000);
	return next(fd, to, size);
}
"""


def test_a_child_of_a_fork_while_its_parent_asks_goes_on(start: Start, tmp_path: Path) -> None:
    """What the other thread held at that moment nobody lets go in the child."""
    slow = tmp_path / "slow.so"
    compiler = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(slow), "-ldl"]
    subprocess.run(compiler, input=SLOW_CONNECT, text=True, check=True)
    program = start(LD_PRELOAD=f"{LIBRARY}:{slow}")
    say(program, "fork meanwhile")
    assert said(program) == "asks"
    say(program, "")
    assert said(program) == "0"
    say(program, "retain")  # it does not while it waits for its child
    assert select.select([program.stdout], [], [], LONG_S)[0]
    assert said(program) == "0"


def test_a_child_leaves_its_parents_request_alone(lane: Lane, start: Start) -> None:
    program = start(FAKECUDA_PRIMARY_US="1000000")
    say(program, "fork meanwhile")
    until(lambda: told(lane, ENTERED) == 1)
    say(program, "")
    assert said(program) == "0"
    until(lambda: not lane.service._ahead)
    assert (told(lane, ENTERED), told(lane, LEFT)) == (1, 0)
    assert lane.service.tenants.pids() == [program.pid]
