# SPDX-License-Identifier: Apache-2.0
"""One user's crowd at the spatial lane's socket, which everybody may reach: it keeps nobody else out."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spatial_lane import GPU, Lane

from detshare.runtime import board_layout as layout
from detshare.runtime import descriptors, directory, service, tenants
from detshare.runtime.board import Attach
from detshare.runtime.descriptors import Descriptors
from detshare.runtime.tenant import Refused
from tests.patience import LONG_S, until

pytestmark = pytest.mark.e2e
RUN = json.dumps({"run": ["true"], "lane": "temporal"}).encode()


@pytest.fixture
def connect(lane: Lane) -> Iterator[Callable[[], socket.socket]]:
    made: list[socket.socket] = []

    def one() -> socket.socket:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.append(link)
        link.settimeout(LONG_S)
        link.connect(str(lane.service.socket))
        return link

    yield one
    for link in made:
        link.close()


def answer(link: socket.socket) -> dict[str, object]:
    return json.loads(link.recv(1 << 16))


def test_who_holds_most_connections_loses_one_to_a_newcomer(
    lane: Lane, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(service, "PATIENCE", LONG_S)
    users, true_peer = iter((1, 2, 1, 1, 3)), service._peer
    monkeypatch.setattr(service, "_peer", lambda link: (os.getpid(), next(users), 0))
    silent = []
    for count in range(1, 5):
        silent.append(connect())
        until(lambda count=count: len(lane.service._connections) == count)  # type: ignore[misc]
    newcomer = connect()
    assert silent[0].recv(1) == b""
    monkeypatch.setattr(service, "_peer", true_peer)
    for link in (*silent[1:], newcomer):
        link.send(RUN)
        assert answer(link)["lane"] == "temporal"


def test_a_user_with_many_requests_waits_for_them_and_others_do_not(
    lane: Lane, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.service._jobs.most = 2
    goes_on, answered, true_peer = threading.Event(), lane.service._admission.answer, service._peer

    def slow(data: bytes, pid: int, uid: int, gid: int) -> dict[str, object]:
        if uid == 1:
            goes_on.wait(LONG_S)
        return answered(data, pid, os.geteuid(), gid)

    monkeypatch.setattr(lane.service._admission, "answer", slow)
    monkeypatch.setattr(service, "_peer", lambda link: (os.getpid(), 1, 0))
    slow_ones = [connect() for _ in range(2)]
    for link in slow_ones:
        link.send(RUN)
    until(lambda: lane.service._jobs.waiting[1] == 2)
    third = connect()
    third.send(RUN)
    refused = answer(third)
    assert "2 requests of uid 1 wait already" in str(refused["error"])
    assert refused["again"] is True
    monkeypatch.setattr(service, "_peer", true_peer)
    other = connect()
    other.send(RUN)
    assert answer(other)["lane"] == "temporal"
    goes_on.set()
    assert [answer(link)["lane"] for link in slow_ones] == ["temporal"] * 2
    until(lambda: not lane.service._jobs.waiting)


def test_programs_that_come_without_end_keep_no_request_waiting(
    lane: Lane, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, begun = threading.Event(), threading.Event()
    kept: list[object] = []

    def slow(tenant: object) -> None:
        begun.set()
        goes_on.wait(LONG_S)
        kept.append(tenant)

    monkeypatch.setattr(lane.service.tenants, "keep", slow)
    asked = Attach(layout.VERSION, GPU.bytes, os.getpid(), 132, 8, 80 << 30, "").pack()
    for _ in range(40):
        link = connect()
        link.send(asked)
        _, given, _, _ = socket.recv_fds(link, 4096, 8)
        for each in given:
            os.close(each)
        begun.wait(LONG_S)
    other = connect()
    other.settimeout(20.0)
    other.send(RUN)
    try:
        assert answer(other)["lane"] == "temporal"
    finally:
        goes_on.set()
    until(lambda: len(kept) == 80)
    assert len({id(tenant) for tenant in kept}) == 40


def attach(lane: Lane, number: int) -> None:
    asked = Attach(layout.VERSION, number.to_bytes(16, "big"), os.getpid(), 132, 8, 80 << 30, "")
    _, given = lane.service.tenants.attach(asked, os.getpid(), os.geteuid())
    for each in given:
        os.close(each)


def test_a_process_does_not_invent_gpus_without_end(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "MOST_GPUS", 3)
    for number in range(3):
        attach(lane, number)
    with pytest.raises(Refused, match="boards of 3 GPUs"):
        attach(lane, 3)


def test_pages_of_gpus_that_are_not_here_are_few(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_PAGES", 2)
    here = directory.procfs.Gpu(f"GPU-{GPU}", 0, "", "")
    monkeypatch.setattr(directory.procfs, "gpus", lambda: [here])
    for number in range(2):
        attach(lane, number)
    with pytest.raises(Refused, match="none of this machine's"):
        attach(lane, 2)
    attach(lane, GPU.int)


def test_of_a_program_with_descriptors_without_end_some_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "DEVICES", "/dev/null")
    monkeypatch.setattr(descriptors, "MOST", 3)
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(6)]
    pidfd = os.pidfd_open(os.getpid())
    kept = Descriptors(os.getpid(), pidfd)
    try:
        kept.take()
        assert len(kept) == 3
    finally:
        kept.close()
        for each in (*opened, pidfd):
            os.close(each)
