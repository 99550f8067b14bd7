# SPDX-License-Identifier: Apache-2.0
"""Whatever comes in on the socket: a clear 4xx, nothing changed, and the daemon lives.

10 000 requests with `make test-e2e`, of which `make test-unit` sends some; DETSHARE_FUZZ=N sends N times as many.
"""

from __future__ import annotations

import json
import os
import re
import socket
from contextlib import suppress

import pytest
from fake_backend import FakeBackend
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from detshare.ctl.core import verbs
from tests.patience import LONG_S

ARGUMENTS = sorted({arg.name for verb in verbs.VERBS.values() for arg in verb.args})
TIMES = int(os.environ.get("DETSHARE_FUZZ", "1"))
BATCH = 25  # requests of one example
SOME, ALL = 80, 200  # examples of each of two tests: 2 x 200 x 25 requests

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**63, max_value=2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["-1", "0", "-4242", "4242.0", "1e3", "\x00", "\ud800", "9" * 12, "nobody-*", "../.."]),
)
JSON = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(["who", "class", "weight", "slice_us", "level", "x"]), JSON, max_size=4),
    st.dictionaries(st.sampled_from(["who", "name", "params", *ARGUMENTS]), JSON, max_size=4),
    JSON,
)
VERBS = st.one_of(
    st.sampled_from(["set-priority", "set-weight", "set-slice", "pause", "resume", "preempt", "release"]),
    st.sampled_from(sorted(verbs.VERBS)),
    st.sampled_from(["", "look", "close", "__init__", "Pause", "pause/", "%00", "..%2f", "set_weight"]),
)
DEPTHS = st.integers(min_value=1, max_value=15_000)


def _bodies() -> st.SearchStrategy[bytes]:
    written = BODIES.map(lambda value: json.dumps(value).encode())  # NaN and Infinity included, as Python writes them
    return st.one_of(
        written,
        written.map(lambda text: text[:-1]),
        st.binary(max_size=40),
        DEPTHS.map(lambda n: b'{"who":' + b"[" * n),
        DEPTHS.map(lambda n: b'{"who":' + b"[" * n + b"]" * n + b"}"),
        DEPTHS.map(lambda n: b'{"who":"4242","weight":' + b"7" * n + b"}"),
    )


def _http(verb: str, body: bytes) -> bytes:
    head = f"POST /v1/verbs/{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Wire:
    """A connection that is kept as long as the daemon keeps it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._sock: socket.socket | None = None

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one well-framed request."""
        if self._sock is None:
            self._sock = socket.socket(socket.AF_UNIX)
            self._sock.settimeout(LONG_S)
            self._sock.connect(self._path)
        self._sock.sendall(data)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = self._sock.recv(65536)
            assert part, f"no answer to {data[:80]!r}"
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"content-length"]):
            body += self._sock.recv(65536)
        if fields.get(b"connection") == b"close":
            self.close()
        return int(head.split()[1]), body

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None


@pytest.fixture
def daemon(start):
    backend = FakeBackend()
    backend.programs = backend.programs[:2]
    running = start(backend)
    yield running
    assert running.client.alive()
    assert running.client.programs()["programs"]
    assert running.client.verb("preempt", "4242")["changed"]  # and it still works


def _times(examples: int) -> settings:
    return settings(
        max_examples=examples * TIMES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )


STRUCTURED = st.lists(st.tuples(VERBS, _bodies()), min_size=BATCH, max_size=BATCH)


@_times(SOME)
@given(requests=STRUCTURED)
def test_structured_garbage(daemon, requests):
    structured(daemon, requests)


@pytest.mark.rest
@pytest.mark.e2e
@_times(ALL)
@given(requests=STRUCTURED)
def test_all_structured_garbage(daemon, requests):
    structured(daemon, requests)


def structured(daemon, requests):
    wire = Wire(str(daemon.socket))
    for verb, body in requests:
        before, calls = daemon.backend.state(), len(daemon.backend.calls)
        status, answer = wire.ask(_http(verb, body))
        if status == 200:
            # it was a request after all: well formed, for a verb that exists, and it came to the backend
            assert len(daemon.backend.calls) == calls + 1
            assert set(json.loads(answer)) == {"verb", "changed", "skipped", "seconds"}
            assert isinstance(json.loads(body)["who"], str)
        else:
            assert 400 <= status < 500, (verb, body[:80], status, answer)
            error = json.loads(answer)["error"]
            assert error["asked"]
            assert error["stopped"]
            assert error["next"]
            assert daemon.backend.state() == before
    wire.close()


RAW = st.one_of(
    st.binary(min_size=1, max_size=200),
    st.binary(min_size=1, max_size=60).map(lambda junk: b"GET " + junk + b" HTTP/1.1\r\n\r\n"),
    st.binary(min_size=1, max_size=60).map(lambda junk: b"GET /v1/nothing HTTP/1.1\r\n" + junk + b"\r\n\r\n"),
    st.binary(min_size=1, max_size=60).map(
        lambda junk: b"POST /v1/verbs/pause HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + junk + b"\r\n0\r\n\r\n"
    ),
    st.binary(min_size=1, max_size=60).map(
        lambda junk: b"POST /v1/verbs/release HTTP/1.1\r\nContent-Length: " + junk + b"\r\n\r\n{}"
    ),
    st.sampled_from([b"A" * 70_000, b"\x00" * 70_000, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n"]),
)


RAWS = st.lists(RAW, min_size=BATCH, max_size=BATCH)


@_times(SOME)
@example(requests=[b"\r\n", b" ", b"\n\n\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /x HTTP/0.9\r\n\r\n"])
@given(requests=RAWS)
def test_raw_garbage(daemon, requests):
    raw(daemon, requests)


@pytest.mark.rest
@pytest.mark.e2e
@_times(ALL)
@given(requests=RAWS)
def test_all_raw_garbage(daemon, requests):
    raw(daemon, requests)


def raw(daemon, requests):
    before, calls = daemon.backend.state(), len(daemon.backend.calls)
    for data in requests:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LONG_S)
            sock.connect(str(daemon.socket))
            answer = b""
            # what is refused before all of it was sent has its answer all the same
            with suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while part := sock.recv(65536):
                    answer += part
        # several answers where the garbage happened to hold several requests; each one refuses
        statuses = re.findall(rb"^HTTP/\d\.\d (\d+)", answer, re.MULTILINE)
        assert statuses, (data[:200], answer[:200])
        assert all(status.startswith(b"4") for status in statuses), (data[:200], answer[:200])
    assert daemon.backend.state() == before
    assert len(daemon.backend.calls) == calls


# -- addresses ----------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.sampled_from(["v1", "programs", "pool", "events", "doctor", "readings", "metrics", "policy", "set", "resume"]),
    st.sampled_from(["why", "decisions", "verbs", "4242", "-1", "0", "9" * 30, "%2e%2e", "%00", "%ff", "..", ""]),
    st.text("abc/.%~", max_size=6),
)
QUERIES = st.one_of(
    st.just(""),
    st.dictionaries(
        st.sampled_from(["since", "most", "follow", "x"]),
        st.sampled_from(["0", "1", "-1", "nan", "inf", "1e400", "x", "", "%00", "9" * 400]),
        max_size=2,
    ).map(lambda made: "?" + "&".join(f"{name}={value}" for name, value in made.items() if (name, value) != FOLLOW)),
)
FOLLOW = ("follow", "1")
"""that answer has no end; test_api follows events"""
ADDRESSES = st.one_of(
    st.lists(WORDS, max_size=4).map(lambda words: "/" + "/".join(words)),
    st.sampled_from(["/v1/programs", "/v1/pool", "/v1/policy", "/v1/decisions", "/v1/why/4242"]),
    st.sampled_from(["/v1/policy/set", "/v1/policy/resume", "/v1/policy/deadline"]),
)
ASKED = st.lists(
    st.tuples(st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE"]), ADDRESSES, QUERIES, _bodies()),
    min_size=BATCH,
    max_size=BATCH,
)


@_times(SOME)
@given(requests=ASKED)
def test_odd_addresses(daemon, requests):
    addresses(daemon, requests)


@pytest.mark.rest
@pytest.mark.e2e
@_times(ALL)
@given(requests=ASKED)
def test_all_odd_addresses(daemon, requests):
    addresses(daemon, requests)


def addresses(daemon, requests):
    """Whatever is asked: an answer below 500, and an error in the one form."""
    for method, address, query, body in requests:
        head = f"{method} {address}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LONG_S)
            sock.connect(str(daemon.socket))
            sock.sendall(head.encode() + body)
            answer = b""
            while part := sock.recv(65536):
                answer += part
        status = int(answer.split(None, 2)[1])
        assert status < 500, (method, address, query, body[:80], answer[-300:])
        if status >= 400 and method != "HEAD":
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert error["asked"]
            assert error["stopped"]
            assert error["next"]
            assert "Traceback" not in error["stopped"]
