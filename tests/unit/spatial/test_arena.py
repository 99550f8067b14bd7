# SPDX-License-Identifier: Apache-2.0
"""Host memory for parked programs: what is asked for, what is given, and what stops it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core import config
from detshare.ctl.core.backend import BadRequest
from detshare.runtime import arena as arenas
from detshare.runtime import board_layout as layout
from detshare.runtime.admission import Request, idle
from detshare.runtime.arena import Arena, asked, host_bytes
from detshare.runtime.board import BadBoard
from detshare.runtime.residence import Residence
from detshare.runtime.tenant import Refused

MIB = 1 << 20


def message(version: int = layout.VERSION, size: int = 5 * MIB, magic: int = layout.MAGIC_ARENA) -> bytes:
    return struct.pack("<II16sQ", magic, version, b"u" * 16, size)


def tenant() -> Any:
    return SimpleNamespace(park=Residence())


def test_a_request_is_read() -> None:
    assert len(message()) == layout.ARENA_SIZE
    assert asked(message()) == (b"u" * 16, 5 * MIB)
    assert asked(message(magic=layout.MAGIC_ATTACH)) is None
    for wrong in (message(version=layout.VERSION + 1), message(size=0), message(size=1 << 60)):
        with pytest.raises(BadBoard):
            asked(wrong)


@given(st.binary(max_size=64))
def test_no_bytes_of_a_program_do_harm(data: bytes) -> None:
    try:
        asked(data)
    except BadBoard:
        return


def test_all_together_have_no_more_than_the_arena() -> None:
    made, first, second = Arena(10 * MIB), tenant(), tenant()
    everybody = [first, second]
    made.room(everybody, first, 4 * MIB)
    made.room(everybody, second, 6 * MIB)
    with pytest.raises(Refused, match="has 4M left, and 5M are needed") as refused:
        made.room(everybody, first, 5 * MIB)
    assert refused.value.status == errno.ENOSPC
    assert "park.arena" in str(refused.value)
    assert (first.park.arena, second.park.arena) == (4 * MIB, 6 * MIB)
    second.park.arena = 0
    made.room(everybody, first, 10 * MIB)  # in place of what it had


def test_the_host_keeps_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "_available", lambda: host_bytes() // 20 + 3 * MIB)
    made, who = Arena(100 * MIB), tenant()
    made.room([who], who, 2 * MIB)
    with pytest.raises(Refused, match="the host has") as refused:
        made.room([who], who, 9 * MIB)
    assert refused.value.status == errno.ENOMEM
    assert who.park.arena == 2 * MIB


def test_what_is_given_is_zero_and_cannot_be_cut() -> None:
    descriptor = Arena().make("1", 2 * MIB)
    try:
        with mmap.mmap(descriptor, 2 * MIB) as mapped:
            assert mapped[:] == bytes(2 * MIB)
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, MIB)
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, 3 * MIB)
            mapped[:] = b"x" * (2 * MIB)
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL
    finally:
        os.close(descriptor)
    other = Arena().make("2", 2 * MIB)
    try:
        with mmap.mmap(other, 2 * MIB) as mapped:
            assert mapped[:] == bytes(2 * MIB)
    finally:
        os.close(other)


@pytest.mark.parametrize(("text", "size"), [("64G", 64 << 30), ("512M", 512 * MIB), ("50%", host_bytes() * 50 // 100)])
def test_its_size_is_a_setting(text: str, size: int) -> None:
    assert config.parse(f'[park]\narena = "{text}"'.encode()).park.bytes == size
    assert config.parse(b"").park.bytes == host_bytes() // 2


@pytest.mark.parametrize("text", ['"0%"', '"100%"', '"max"', '"much"', '"64"', '"1M"', "7", "true", "[]"])
def test_what_is_no_size_is_told(text: str) -> None:
    with pytest.raises(config.ConfigError, match=r"park\.arena"):
        config.parse(f"[park]\narena = {text}".encode())


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("500ms", 0.5), ("5m", 300.0), ("2h", 7200.0), ("7", 7.0)]
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert idle(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "0", "10ms", "25h", "1e3", "nan"])
def test_no_times(text: str) -> None:
    with pytest.raises(BadRequest):
        idle(text)


def test_detshare_run_asks_for_it() -> None:
    asked_for = Request(("python",), "auto", None, None, None, "", True, 30.0)
    assert Request.parse(asked_for.pack()) == asked_for
    assert Request.parse(b'{"run": ["a"], "lane": "auto", "park_after": 3}').park
    assert not Request.parse(b'{"run": ["a"], "lane": "auto"}').park
    for wrong in (b'"soon"', b"0", b"true", b"1e9"):
        with pytest.raises(BadRequest):
            Request.parse(b'{"run": ["a"], "lane": "auto", "park_after": ' + wrong + b"}")


@given(st.lists(st.booleans(), min_size=1))
def test_each_request_differs_from_the_one_before(asks: list[bool]) -> None:
    residence = Residence(asked=0xFFFFFFFE)
    for away in asks:
        before = residence.asked
        assert residence.next(away) != before
        assert bool(residence.asked & layout.PARK_WANTED) is away
        assert residence.asked < 1 << 32
