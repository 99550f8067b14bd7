# SPDX-License-Identifier: Apache-2.0
"""Our reading of the family's messages says what pyroute2's own says, of any bytes; and it leaves nothing in cycles."""

from __future__ import annotations

import gc
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.netlink import genl, records
from detshare.ctl.netlink.answer import Answer, Malformed
from detshare.ctl.netlink.link import Link

FAMILY = 41
KINDS = genl.MarshalDetShare.cmd_map
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "uint8": st.integers(0, 2**8 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "asciiz": st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=70),
}


def encoded(cmd: int, attributes: list[tuple[str, Any]], flags: int = 0, sequence: int = 0) -> bytes:
    """As pyroute2 writes it; attributes by their whole names."""
    msg = KINDS[cmd]()
    msg["cmd"], msg["version"] = cmd, 1
    msg["attrs"] = list(attributes)  # it writes into it
    msg["header"].update(type=FAMILY, flags=flags, sequence_number=sequence, pid=77)
    msg.encode()
    return bytes(msg.data)


def pyroute2s(data: bytes) -> list[tuple[str, Any]]:
    """What pyroute2 reads of one message."""
    msg = KINDS[data[16]](data)
    msg.decode()
    nothing = {"UNKNOWN", *(name for name, form in KINDS[data[16]].nla_map if form == "none")}
    return [(name, value) for name, value in msg["attrs"] if name not in nothing]


@st.composite
def said(draw: st.DrawFn) -> tuple[int, list[tuple[str, Any]]]:
    """A command and attributes of its set, in any order, some of them more than once."""
    cmd = draw(st.sampled_from(sorted(KINDS)))
    forms = {name: form for name, form in KINDS[cmd].nla_map if form != "none"}
    names = draw(st.lists(st.sampled_from(sorted(forms)), max_size=30))
    return cmd, [(name, draw(VALUES[forms[name]])) for name in names]


@given(said(), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1))
def test_it_reads_what_pyroute2_reads(message: tuple[int, list[tuple[str, Any]]], flags: int, sequence: int) -> None:
    cmd, attributes = message
    data = encoded(cmd, attributes, flags, sequence)
    marshal = genl.MarshalDetShare()
    marshal.prid = FAMILY
    (answer,) = marshal.parse(data)
    assert isinstance(answer, Answer)
    assert answer["attrs"] == pyroute2s(data) == attributes
    assert (answer["cmd"], answer["header"]["flags"], answer["header"]["sequence_number"]) == (cmd, flags, sequence)
    for name, _ in attributes:
        assert answer.get_attr(name) == next(value for each, value in attributes if each == name)


@given(st.lists(said(), max_size=6))
def test_several_in_one_buffer(messages: list[tuple[int, list[tuple[str, Any]]]]) -> None:
    marshal = genl.MarshalDetShare()
    marshal.prid = FAMILY
    found = list(marshal.parse(b"".join(encoded(*each) for each in messages)))
    assert [(each.cmd, each["attrs"]) for each in found] == messages


@given(said(), st.data())
def test_of_spoilt_bytes_it_reads_the_same_or_nothing(
    message: tuple[int, list[tuple[str, Any]]], data: st.DataObject
) -> None:
    """pyroute2 guesses where ours refuses."""
    good = bytearray(encoded(*message))
    at = data.draw(st.integers(16, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    spoilt = bytes(good)
    try:
        ours = Answer(spoilt, 0, KINDS)["attrs"]
    except Malformed:
        return
    if spoilt[16] not in KINDS:
        assert ours == []
        return
    theirs = pyroute2s(spoilt)
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    # of texts the two keep something else: pyroute2 what follows a zero within, and bytes that are no UTF-8 as bytes
    assert [v for _, v in ours if isinstance(v, int)] == [v for _, v in theirs if isinstance(v, int)]


@given(st.binary(max_size=300))
def test_no_bytes_are_too_odd(body: bytes) -> None:
    for claimed in (16 + len(body), len(body), 0, 2**32 - 1):
        data = struct.pack("=IHHII", claimed, FAMILY, 0, 0, 0) + body
        try:
            answer = Answer(data, 0, KINDS)
            list(answer.values())
        except Malformed:
            continue
        assert 20 <= claimed <= len(data)
        assert answer.body == data[16:claimed]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[:-3], "says"),
        (lambda data: data[:18], "too short"),
        (lambda data: data[:20] + struct.pack("=HH", 2, 2) + data[24:], "cut off"),
        (lambda data: data[:20] + struct.pack("=HH", 4000, 2) + data[24:], "cut off"),
        (lambda data: data[:20] + struct.pack("=HH", 11, 2) + data[24:], "VCTX_ID in an answer .* has 7 bytes, not 8"),
    ],
)
def test_what_is_malformed_says_how(spoil: Any, why: str) -> None:
    data = spoil(encoded(genl.DETSHARE_CMD_VCTX_GET, [("DETSHARE_A_VCTX_VCTX_ID", 7), ("DETSHARE_A_VCTX_PID", 8)]))
    with pytest.raises(Malformed, match=why):
        Answer(data, 0, KINDS).attrs  # noqa: B018


def test_a_command_of_a_newer_module_says_nothing() -> None:
    data = bytearray(encoded(genl.DETSHARE_CMD_VCTX_GET, [("DETSHARE_A_VCTX_PID", 8)]))
    data[16] = 250
    answer = Answer(bytes(data), 0, KINDS)
    assert answer["attrs"] == []
    assert "attrs" in answer
    assert answer.get("errmsg", "none") == "none"


def rows(count: int, used: int = 0) -> bytes:
    names = ("VCTX_ID", "PID", "CLIENT", "MEMORY_USED")
    numbers = [(number, 5000 + number, 9, used) for number in range(count)]
    return b"".join(
        encoded(genl.DETSHARE_CMD_VCTX_GET, [(f"DETSHARE_A_VCTX_{n}", v) for n, v in zip(names, each, strict=True)])
        for each in numbers
    )


def test_nothing_of_a_dump_stays_in_cycles() -> None:
    marshal = genl.MarshalDetShare()
    marshal.prid = FAMILY
    data = rows(200)
    gc.collect()
    gc.disable()
    try:
        found = [records.record(records.VctxRow, each) for each in marshal.parse(data)]
        assert len(found) == 200
        del found
        assert gc.collect() == 0
    finally:
        gc.enable()


class Family:
    """In place of the family's socket: each dump is the next of some bytes."""

    prid = FAMILY

    def __init__(self, *dumps: bytes) -> None:
        self._dumps = list(dumps)

    def vctx_get(self, pid: int | None = None) -> tuple[Any, ...]:
        marshal = genl.MarshalDetShare()
        marshal.prid = FAMILY
        return tuple(marshal.parse(self._dumps.pop(0)))


def test_rows_that_say_the_same_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = rows(2) + rows(3, used=5)[-len(rows(1)) :]
    family = Family(rows(3), changed, rows(1), changed)
    monkeypatch.setattr(genl, "DetShare", lambda: family)
    link = Link()
    first, second = link.vctxs(), link.vctxs()
    assert [row.memory_used for row in first] == [0, 0, 0]
    assert [row.memory_used for row in second] == [0, 0, 5]
    assert [a is b for a, b in zip(first, second, strict=True)] == [True, True, False]
    assert len(link.vctxs(pid=5000)) == 1  # a part: it tells nothing about the others
    assert [a is b for a, b in zip(second, link.vctxs(), strict=True)] == [True] * 3


def test_an_event_that_is_cut_off_is_no_event() -> None:
    data = encoded(genl.DETSHARE_CMD_REFUSED, [("DETSHARE_A_EVENT_SEQ", 1), ("DETSHARE_A_EVENT_PID", 2)])
    extra = struct.pack("=HH", 40, 2)
    data = struct.pack("=I", len(data) + len(extra)) + data[4:] + extra
    with pytest.raises(ValueError, match="cut off"):
        records.record(records.EventRow, Answer(data, 0, KINDS))
