# SPDX-License-Identifier: Apache-2.0
"""Whether detshare.ko is loaded, without the weight of a netlink library."""

from __future__ import annotations

import socket
import struct
from typing import Final

FAMILY: Final = "detshare"
_NETLINK_GENERIC: Final = 16
_GENL_ID_CTRL: Final = 16  # include/uapi/linux/genetlink.h
_CTRL_CMD_GETFAMILY: Final = 3
_CTRL_ATTR_FAMILY_ID: Final = 1
_CTRL_ATTR_FAMILY_NAME: Final = 2
_NLM_F_REQUEST: Final = 1
_NLMSG_HEADER: Final = struct.Struct("=IHHII")
_GENL_HEADER: Final = struct.Struct("=BBH")
_ATTRIBUTE: Final = struct.Struct("=HH")


def message(kind: int, command: int, attributes: bytes, flags: int = 0, sequence: int = 1) -> bytes:
    """A generic netlink request; `attributes` are encoded ones."""
    body = _GENL_HEADER.pack(command, 1, 0) + attributes
    return _NLMSG_HEADER.pack(_NLMSG_HEADER.size + len(body), kind, _NLM_F_REQUEST | flags, sequence, 0) + body


def attribute(number: int, payload: bytes) -> bytes:
    """One encoded attribute, padded."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), number) + payload + bytes(-len(payload) % 4)


def family_id(name: str = FAMILY) -> int | None:
    """The number under which a family is registered; None: it is not."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC) as sock:
        sock.settimeout(5.0)
        asked = attribute(_CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        sock.sendto(message(_GENL_ID_CTRL, _CTRL_CMD_GETFAMILY, asked), (0, 0))
        answer = sock.recv(65536)
    kind = _NLMSG_HEADER.unpack_from(answer)[1]
    at = _NLMSG_HEADER.size + _GENL_HEADER.size
    while kind == _GENL_ID_CTRL and at + _ATTRIBUTE.size <= len(answer):
        length, number = _ATTRIBUTE.unpack_from(answer, at)
        if length < _ATTRIBUTE.size:
            break
        if number == _CTRL_ATTR_FAMILY_ID:
            return int(struct.unpack_from("=H", answer, at + _ATTRIBUTE.size)[0])
        at += (length + 3) & ~3
    return None


def loaded() -> bool:
    """Whether the family is there. False where this machine has no generic netlink."""
    try:
        return family_id() is not None
    except OSError:
        return False
