# SPDX-License-Identifier: Apache-2.0
"""The API over a fake backend: shapes, statuses, errors, events, metrics."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
import os
import re
import socket
import stat
import threading

import pytest
from fake_backend import CONTAINER, FakeBackend, refusing
from prometheus_client.parser import text_string_to_metric_families

from detshare.ctl.client import Client, ClientError
from detshare.ctl.daemon.access import Caller, caller_of
from tests.patience import LONG_S, until


def raw(running, data: bytes, *, half_close: bool = True, timeout: float = LONG_S) -> bytes:
    """Send bytes, read to the end."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout)
        sock.connect(str(running.socket))
        try:
            sock.sendall(data)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was read to the end; the answer may be there all the same
        answer = b""
        try:
            while part := sock.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
        return answer


def request(running, method: str, path: str, body: bytes | None = None) -> tuple[int, dict]:
    data = b"" if body is None else body
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    head_, _, payload = raw(running, head.encode() + data, half_close=False).partition(b"\r\n\r\n")
    return int(head_.split()[1]), json.loads(payload)


def test_programs_are_the_snapshot(running):
    answer = running.client.programs()
    assert answer["proof"] == "unit"
    assert [p["pid"] for p in answer["programs"]] == [4242, 4300, 4400]
    first = answer["programs"][0]
    assert first["state"] == "running"
    assert first["class"] is None
    assert first["tsgs"][0]["kind"] == "compute"
    assert first["tsgs"][0]["slice_us"] == 2048
    assert first["container"] == CONTAINER


def test_a_program_that_ended_is_not_shown_although_the_look_still_goes_on(running):
    running.backend.ended = {4300}
    assert [p["pid"] for p in running.client.programs()["programs"]] == [4242, 4400]


def test_a_look_that_hangs_is_said(running):
    running.backend.hang = threading.Event()
    try:
        warnings = until(lambda: running.client.programs()["warnings"], pause=0.1)
        assert "has not answered" in warnings[0]
    finally:
        running.backend.hang.set()


def test_socket_is_for_its_owner_only(running):
    assert stat.S_IMODE(running.socket.stat().st_mode) == 0o600


def test_a_verb_changes_and_the_next_question_sees_it(running):
    answer = running.client.verb("set-priority", "4242", klass="high")
    assert answer["verb"] == "set-priority"
    assert answer["changed"][0]["pid"] == 4242
    assert answer["changed"][0]["tsgs"][0]["before_us"] == 2048
    assert answer["skipped"] == []
    assert running.client.programs()["programs"][0]["class"] == "high"


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("set-priority", {"class": "low"}),
        ("set-weight", {"weight": 3}),
        ("set-slice", {"slice_us": 500}),
        ("set-slice", {"slice_us": 500, "level": "high"}),
        ("pause", {}),
        ("resume", {}),
        ("preempt", {}),
        ("release", {}),
    ],
)
def test_each_verb_reaches_the_backend(running, verb, args):
    answer = running.client.verb(verb, "train.py", **args)
    assert [c["pid"] for c in answer["changed"]] == [4300]
    assert running.backend.calls == [(verb, "train.py")]


def test_the_backend_is_called_from_one_thread(running):
    for _ in range(5):
        running.client.verb("preempt", "4242")
    assert len(running.backend.threads) == 1


def test_nothing_matched_is_an_answer_with_the_reason(running):
    answer = running.client.verb("pause", "no such thing")
    assert answer["changed"] == []
    assert "nothing matches" in answer["skipped"][0]["reason"]


def test_priority_of_a_process_without_gpu_is_remembered(running):
    answer = running.client.verb("set-priority", "999", klass="high")
    assert "will be applied" in answer["changed"][0]["note"]
    assert running.client.verb("pause", "999")["changed"] == []


BAD = [
    ("pause", {}),
    ("pause", {"who": 4242}),
    ("pause", {"who": None}),
    ("pause", {"who": ["4242"]}),
    ("pause", {"who": ""}),
    ("pause", {"who": "  "}),
    ("pause", {"who": "-5"}),
    ("pause", {"who": "0"}),
    ("pause", {"who": "99999999"}),
    ("pause", {"who": "a\x00b"}),
    ("pause", {"who": "\x1b[2J"}),
    ("pause", {"who": "\ud800"}),
    ("pause", {"who": "x" * 5000}),
    ("pause", {"who": "4242", "force": True}),
    ("set-priority", {"who": "4242"}),
    ("set-priority", {"who": "4242", "class": "urgent"}),
    ("set-priority", {"who": "4242", "class": 1}),
    ("set-priority", {"who": "4242", "klass": "high"}),
    ("set-weight", {"who": "4242", "weight": "3"}),
    ("set-weight", {"who": "4242", "weight": 3.0}),
    ("set-weight", {"who": "4242", "weight": True}),
    ("set-weight", {"who": "4242", "weight": 0}),
    ("set-weight", {"who": "4242", "weight": 1001}),
    ("set-weight", {"who": "4242", "weight": 10**30}),
    ("set-slice", {"who": "4242", "slice_us": 0}),
    ("set-slice", {"who": "4242", "slice_us": -1}),
    ("set-slice", {"who": "4242", "slice_us": 100, "level": "highest"}),
    ("set-slice", {"who": "4242", "slice_us": 100, "level": 2}),
    ("reboot", {"who": "4242"}),
    ("look", {"who": "4242"}),
    ("__class__", {"who": "4242"}),
]


@pytest.mark.parametrize(("verb", "body"), BAD)
def test_what_cannot_be_meant_is_400_and_changes_nothing(running, verb, body):
    before = running.backend.state()
    status, answer = request(running, "POST", f"/v1/verbs/{verb}", json.dumps(body).encode())
    assert status == 400
    assert set(answer["error"]) == {"asked", "stopped", "next"}
    assert all(answer["error"].values())
    assert running.backend.state() == before


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"4242"',
        b"\xff\xfe",
        b'{"who": "4242", "weight": NaN}',
        b'{"who": "4242", "weight": Infinity}',
        b'{"who": "4242", "weight": 1, "weight": 2}',
        b'{"who": "4242", "weight": ' + b"9" * 6000 + b"}",
        b'{"who": ' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"who": ' * 8000,
    ],
)
def test_bad_bodies_are_400(running, body):
    status, answer = request(running, "POST", "/v1/verbs/set-weight", body)
    assert status == 400
    assert answer["error"]["next"]
    assert running.backend.calls == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nosuch", None, 404),
        ("GET", "/v1/secrets", None, 404),
        ("GET", "/v1/verbs/pause", None, 405),
        ("DELETE", "/v1/programs", None, 405),
        ("GET", "/v1/events?follow=yes", None, 400),
        ("GET", "/v1/readings", None, 404),
        ("POST", "/v1/verbs/pause", b" " * 70_000, 413),
        ("POST", "/v1/verbs/../../etc/passwd", b"{}", 404),
    ],
)
def test_statuses(running, method, path, body, status):
    got, answer = request(running, method, path, body)
    assert got == status
    assert set(answer["error"]) == {"asked", "stopped", "next"}


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /v1/programs",
        b"GET /v1/programs HTTP/9.9\r\n\r\n",
        b"POST /v1/verbs/pause HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/verbs/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        b"POST /v1/verbs/pause HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    ],
)
def test_what_is_no_http_gets_a_4xx(running, data):
    answer = raw(running, data)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer[:200]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["next"]
    assert running.client.programs()["programs"]


def test_half_a_request_is_answered_in_the_end(running, monkeypatch):
    monkeypatch.setattr("detshare.ctl.daemon.api.REQUEST_SECONDS", 0.2)
    assert raw(running, b"GET /v1/pro", half_close=False).startswith(b"HTTP/1.1 408")
    half = b'POST /v1/verbs/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"who"'
    assert raw(running, half, half_close=False).startswith(b"HTTP/1.1 408")
    assert running.backend.calls == []


def test_a_client_that_sent_all_may_close_its_side(running):
    answer = raw(running, b"GET /v1/programs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


def test_what_the_kernel_refuses_is_409_with_a_next_step(start):
    running = start(refusing())
    with pytest.raises(ClientError, match="kernel refused") as caught:
        running.client.verb("pause", "4242")
    assert caught.value.status == 409
    assert not caught.value.usage
    assert "root" in caught.value.next_step


def test_an_error_of_our_own_is_500_and_the_daemon_lives(start):
    backend = FakeBackend()
    backend.fail = ZeroDivisionError("oops")
    running = start(backend)
    with pytest.raises(ClientError, match="ZeroDivisionError") as caught:
        running.client.verb("pause", "4242")
    assert caught.value.status == 500
    backend.fail = None
    assert running.client.verb("pause", "4242")["changed"]


def test_a_driver_that_hangs_is_told(running, monkeypatch):
    monkeypatch.setattr("detshare.ctl.daemon.daemon.VERB_SECONDS", 0.1)
    go_on = threading.Event()
    monkeypatch.setattr(running.backend, "preempt", lambda who: go_on.wait(LONG_S))
    with pytest.raises(ClientError, match="did not answer within") as caught:
        running.client.verb("preempt", "4242")
    assert caught.value.status == 500
    assert running.client.programs()["programs"]  # what was seen last can still be asked
    go_on.set()


def test_restoring_that_fails_is_not_called_done(running, monkeypatch):
    def fail(restore=True):
        raise OSError("the bus fell off")

    monkeypatch.setattr(running.backend, "close", fail)
    assert asyncio.run(running.daemon.close()) is False


def test_restoring_that_hangs_is_not_called_done(running, monkeypatch):
    monkeypatch.setattr("detshare.ctl.daemon.daemon.CLOSE_SECONDS", 0.05)
    go_on = threading.Event()
    monkeypatch.setattr(running.backend, "close", lambda: go_on.wait(LONG_S))

    async def close() -> bool:
        done = await running.daemon.close()
        go_on.set()
        return done

    assert asyncio.run(close()) is False


def test_looks_that_fail_are_shown_and_tried_again(running):
    running.backend.fail_look = OSError("the bus fell off")
    until(lambda: any("the bus fell off" in w for w in running.client.programs()["warnings"]))
    assert any(e["kind"] == "error" for e in running.client.events())
    assert [c["ok"] for c in running.client.doctor()["checks"] if c["name"] == "daemon"] == [False]
    running.backend.fail_look = None
    until(lambda: running.client.programs()["warnings"] == [])


def test_only_root_and_the_daemons_user_change_anything(running, monkeypatch):
    monkeypatch.setattr("detshare.ctl.daemon.api.caller_of", lambda connection: Caller(1, os.geteuid() + 1000))
    with pytest.raises(ClientError, match="may not change") as caught:
        running.client.verb("pause", "4242")
    assert caught.value.status == 403
    assert running.backend.calls == []
    assert running.client.programs()["programs"]


def test_the_kernel_says_who_is_at_the_other_end():
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        assert caller_of(left) == Caller(os.getpid(), os.geteuid())


def test_doctor_adds_the_daemons_checks(running):
    checks = {c["name"]: c for c in running.client.doctor()["checks"]}
    assert checks["daemon"]["ok"] is True
    assert checks["fake"]["ok"] is True
    assert checks["guardian"]["ok"] is False  # this daemon was started without one


def test_readings_of_the_model(start):
    assert start(readings=lambda: {"latency": [1.5]}).client.readings() == {"latency": [1.5]}


def test_readings_without_a_model(running):
    with pytest.raises(ClientError, match="only the model backend"):
        running.client.readings()


def test_events_follow_until_the_daemon_stops(running):
    got: list[dict] = []
    reader = threading.Thread(target=lambda: got.extend(running.client.events(follow=True)))
    reader.start()
    running.client.verb("pause", "4242")
    until(lambda: any(e["pid"] == 4242 for e in got))
    running.stop()
    reader.join(LONG_S)
    assert not reader.is_alive()
    assert [e["kind"] for e in got] == ["daemon", "change", "daemon"]


def test_a_follower_that_goes_away_is_forgotten(running):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(running.socket))
        sock.sendall(b"GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in sock.recv(1000)
        assert len(running.daemon._queues) == 1
    until(lambda: not running.daemon._queues)


def test_metrics(running):
    running.client.verb("set-priority", "4242", klass="high")
    connection = http.client.HTTPConnection("x")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(running.socket))
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/plain")
    text = response.read().decode()
    connection.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def find(name: str, **labels: str) -> list[float]:
        return [s.value for s in samples if s.name == f"detshare_{name}" and labels.items() <= s.labels.items()]

    who = {"pid": "4242", "command": "/usr/bin/python serve.py", "user": "ann", "container": CONTAINER[:12]}
    assert find("program_memory_bytes", **who) == [3 << 30]
    assert find("program_gpu_share", **who) == [0.25]
    assert find("program_class", **who, **{"class": "high"}) == [1]
    assert find("program_slice_seconds", **who, level="high") == [0.000777]
    assert find("program_slice_seconds", pid="4300", level="") == [0.002048]
    assert find("program_state", pid="4300", state="running") == [1]
    assert find("program_state", pid="4300", state="paused") == [0]
    assert find("verbs_total", verb="set-priority", result="changed") == [1]
    assert find("look_seconds") == [0.001]
    assert find("programs") == [3]


def test_client_without_a_daemon(run_dir):
    client = Client(run_dir)
    assert not client.alive()
    with pytest.raises(ClientError, match="no daemon answers") as caught:
        client.programs()
    assert "detshared --run-dir" in caught.value.next_step
    with pytest.raises(ClientError, match="no daemon answers"):
        list(client.events())


def test_a_wrong_address_is_told_which_there_are(running):
    told = raw(running, b"GET /v1/nosuch HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").decode()
    ours = set(re.findall(r"/v1/(?!page|readings)[a-z]+(?:/[a-z]+)?", inspect.getsource(Client)))
    assert len(ours) > 10
    assert {address for address in ours if address not in told} == set()
