# SPDX-License-Identifier: Apache-2.0
"""A glance at an event's bytes says what reading it says; and what nobody wants is counted without being read."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.netlink import events, genl
from detshare.ctl.netlink.glance import glance, messages
from detshare.ctl.netlink.records import EventRow, record

FAMILY = 41
FREQUENT = [command for command, name in events.NAMES.items() if name in events.FREQUENT]


def encoded(cmd: int, seq: int, **attributes: Any) -> bytes:
    msg = genl.detshare_event_msg()
    msg["cmd"], msg["version"] = cmd, 1
    values = {"seq": seq, "time": 7, **attributes}
    msg["attrs"] = [(genl.detshare_event_msg.name2nla(name), value) for name, value in values.items()]
    msg["header"].update(type=FAMILY, flags=0, sequence_number=0, pid=0)
    msg.encode()
    return bytes(msg.data)


def read(data: bytes) -> list[EventRow]:
    marshal = genl.MarshalDetShare()
    marshal.prid = FAMILY
    return [record(EventRow, msg) for msg in marshal.parse(data)]


ROWS = st.fixed_dictionaries(
    {"cmd": st.sampled_from(FREQUENT), "seq": st.integers(0, 2**64 - 1)},
    optional={
        "handle": st.integers(0, 2**32 - 1),
        "vctx_id": st.integers(0, 2**64 - 1),
        "pid": st.integers(0, 2**32 - 1),
        "comm": st.text("abc", max_size=15),
        "gpu": st.integers(0, 63),
        "idle_ns": st.integers(0, 2**64 - 1),
        "reasons": st.integers(0, 7),
    },
)


@given(st.lists(ROWS, max_size=5))
def test_a_glance_says_what_reading_says(rows: list[dict[str, Any]]) -> None:
    data = b"".join(encoded(**row) for row in rows)
    for command_too in (True, False):  # with a plan for each command and length, and with one for each length
        found = [
            (command, glance(data, begin, end, command if command_too else 0))
            for begin, end, kind, command in messages(data)
            if kind == FAMILY
        ]
        assert [(command, seen.seq, seen.vctx_id, seen.reasons) for command, seen in found] == [
            (row.cmd, row.seq, row.vctx_id or 0, row.reasons or 0) for row in read(data)
        ]


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    for begin, end, _, _ in messages(data):
        assert 0 <= begin < end <= len(data)
        assert glance(data, begin, end) == glance(data, begin, end)  # first without a plan, then with one


class Wire:
    """In place of the family's socket: datagrams that a test sends."""

    prid = FAMILY

    def __init__(self) -> None:
        self.kernel, self._ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.marshal = genl.MarshalDetShare()
        self.marshal.prid = FAMILY
        self.parsed = 0
        self._parse = self.marshal.parse
        self.marshal.parse = self._counted  # type: ignore[method-assign]

    def _counted(self, data: bytes) -> Iterator[Any]:
        for message in self._parse(data):
            self.parsed += 1
            yield message

    def recv(self, size: int, flags: int) -> bytes:
        return self._ours.recv(size, flags)

    def add_membership(self, group: object) -> None:
        pass

    def close(self) -> None:
        self.kernel.close()
        self._ours.close()


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    made = Wire()
    monkeypatch.setattr(events.genl, "DetShare", lambda rcvbuf: made)
    yield made
    made.close()


def test_what_nobody_wants_is_counted_and_not_read(wire: Wire) -> None:
    listener = events.Listener()
    listener.worth = lambda kind, seen: seen.vctx_id == 5
    gated = genl.DETSHARE_CMD_GATED
    for seq, vctx in ((1, 4), (2, 5), (3, 4)):
        wire.kernel.send(encoded(gated, seq, vctx_id=vctx, pid=42, reasons=1))
    wire.kernel.send(encoded(genl.DETSHARE_CMD_VCTX_GONE, 4, vctx_id=4, pid=42))
    found = listener.drain()
    assert [(event.kind, event.data["vctx_id"]) for event in found] == [("gated", 5), ("vctx-gone", 4)]
    assert wire.parsed == 2
    wire.kernel.send(encoded(gated, 9, vctx_id=4, pid=42, reasons=2))
    listener.drain()
    lost = SimpleNamespace(value=sum(numbers.lost(1e12) for numbers in listener._numbers))
    assert lost.value == 4  # 5 to 8, though 1, 3 and 9 were never read


def test_a_message_of_another_family_is_left_to_the_parser(wire: Wire) -> None:
    listener = events.Listener()
    listener.worth = lambda kind, seen: False
    data = bytearray(encoded(genl.DETSHARE_CMD_GATED, 1, vctx_id=4))
    data[4:6] = struct.pack("=H", FAMILY + 1)
    wire.kernel.send(bytes(data))
    assert listener.drain() == []
