# SPDX-License-Identifier: Apache-2.0
"""The few numbers of an event that decide whether it is read at all: a tenth of the time that reading it takes.

The kernel tells each turn, a hundred thousand times a second where a thousand programs take turns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

from detshare.ctl.netlink.uapi import detshare_event_msg

__all__ = ["Glance", "glance", "messages"]

_MESSAGE: Final = struct.Struct("=IHHIIB")
"""nlmsghdr, and the command that begins genlmsghdr"""
_FIRST: Final = 20
"""bytes before the first attribute"""
_ATTRIBUTE: Final = struct.Struct("=HH")
_U64: Final = struct.Struct("=Q")
_U32: Final = struct.Struct("=I")
_TYPES: Final = {name: number for number, (name, _) in enumerate(detshare_event_msg.nla_map)}
_SEQ: Final = _TYPES["DETSHARE_A_EVENT_SEQ"]
_VCTX: Final = _TYPES["DETSHARE_A_EVENT_VCTX_ID"]
_REASONS: Final = _TYPES["DETSHARE_A_EVENT_REASONS"]
_PID: Final = _TYPES["DETSHARE_A_EVENT_PID"]


class Glance(NamedTuple):
    """Of one event; 0 for what it does not say."""

    seq: int
    vctx_id: int
    reasons: int
    pid: int = 0


def messages(data: bytes) -> Iterable[tuple[int, int, int, int]]:
    """Begin, end, type and command of each message; what follows a length that cannot be is passed over."""
    end = len(data)
    if end >= _FIRST:  # nearly always it is one
        length, kind, _, _, _, command = _MESSAGE.unpack_from(data)
        if length == end:
            return ((0, end, kind, command),)
    return _several(data, end)


def _several(data: bytes, end: int) -> Iterator[tuple[int, int, int, int]]:
    at = 0
    while at + _FIRST <= end:
        length, kind, _, _, _, command = _MESSAGE.unpack_from(data, at)
        if length < 16 or at + length > end:
            return
        yield at, at + length, kind, command
        at += (length + 3) & ~3


class _Plan(NamedTuple):
    """How messages of one length are laid out. All headers of attributes are compared, so that no other layout of the
    same length is taken for it."""

    layout: struct.Struct
    headers: Callable[[tuple[int, ...]], object]
    expected: object
    numbers: tuple[int, int, int, int]
    """of seq, vctx_id, reasons and pid in what `layout` gives; -1: there is none"""


_plans: dict[tuple[int, int], _Plan | None] = {}
_MOST_PLANS: Final = 256
_WANTED: Final = {(_SEQ, 12): (0, "Q"), (_VCTX, 12): (1, "Q"), (_REASONS, 8): (2, "I"), (_PID, 8): (3, "I")}


def _plan(data: bytes, begin: int, end: int) -> _Plan | None:
    """The layout of `data[begin:end]`; None where it has no attributes that fill it."""
    text, headers, expected, numbers = f"={_FIRST}x", [], [], [-1, -1, -1, -1]
    at, fields = begin + _FIRST, 0
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4 or at + length > end:
            return None
        headers.append(fields)
        expected.append(_U32.unpack_from(data, at)[0])
        text, fields = text + "I", fields + 1
        which, form = _WANTED.get((kind, length), (-1, ""))
        if form:
            numbers[which] = fields
            text, fields = text + form, fields + 1
        else:
            text += f"{length - 4}x"
        padded = min(end, at + ((length + 3) & ~3))
        text += f"{padded - at - length}x"
        at = padded
    if len(headers) < 2:
        return None
    seq, vctx_id, reasons, pid = numbers
    return _Plan(struct.Struct(text), itemgetter(*headers), tuple(expected), (seq, vctx_id, reasons, pid))


def glance(data: bytes, begin: int, end: int, command: int = 0) -> Glance:
    """The numbers of the event in `data[begin:end]`."""
    key = command, end - begin
    plan = _plans.get(key)
    if plan is not None:
        found = plan.layout.unpack_from(data, begin)
        if plan.headers(found) == plan.expected:
            seq, vctx_id, reasons, pid = plan.numbers
            return Glance(
                found[seq] if seq >= 0 else 0,
                found[vctx_id] if vctx_id >= 0 else 0,
                found[reasons] if reasons >= 0 else 0,
                found[pid] if pid >= 0 else 0,
            )
    elif key not in _plans and len(_plans) < _MOST_PLANS:
        _plans[key] = _plan(data, begin, end)
    return _walk(data, begin, end)


def _walk(data: bytes, begin: int, end: int) -> Glance:
    """The same, whatever the layout."""
    seq = vctx_id = reasons = pid = 0
    at = begin + _FIRST
    unpack = _ATTRIBUTE.unpack_from
    while at + 4 <= end:
        length, kind = unpack(data, at)
        if length < 4 or at + length > end:
            break
        if length == 12:
            if kind == _SEQ:
                seq = _U64.unpack_from(data, at + 4)[0]
            elif kind == _VCTX:
                vctx_id = _U64.unpack_from(data, at + 4)[0]
        elif length == 8:
            if kind == _REASONS:
                reasons = _U32.unpack_from(data, at + 4)[0]
            elif kind == _PID:
                pid = _U32.unpack_from(data, at + 4)[0]
        at += (length + 3) & ~3
    return Glance(seq, vctx_id, reasons, pid)
