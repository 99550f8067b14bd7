# SPDX-License-Identifier: Apache-2.0
"""The few numbers of an event that decide whether it is read at all: a tenth of the time that reading it takes.

The kernel tells what reflexes do, a hundred thousand times a second where a thousand programs take turns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from detshare.ctl.netlink.messages import detshare_event_msg

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


class Glance(NamedTuple):
    """Of one event; 0 for what it does not say."""

    seq: int
    vctx_id: int
    reasons: int


def messages(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Begin, end, type and command of each message; what follows a length that cannot be is passed over."""
    at, end = 0, len(data)
    while at + _FIRST <= end:
        length, kind, _, _, _, command = _MESSAGE.unpack_from(data, at)
        if length < 16 or at + length > end:
            return
        yield at, at + length, kind, command
        at += (length + 3) & ~3


def glance(data: bytes, begin: int, end: int) -> Glance:
    """The numbers of the event in `data[begin:end]`."""
    seq = vctx_id = reasons = 0
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
        elif kind == _REASONS and length == 8:
            reasons = _U32.unpack_from(data, at + 4)[0]
        at += (length + 3) & ~3
    return Glance(seq, vctx_id, reasons)
