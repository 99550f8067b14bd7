# SPDX-License-Identifier: Apache-2.0
"""A message of the family as it came: bytes, of which the attributes are read when somebody asks for them.

pyroute2 makes an object for each attribute, and each of these knows its message: a thousand programs left a million
objects in cycles every few seconds, and the collector stood in the way of decisions. Nothing of that kind is made here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

__all__ = ["ATTRIBUTE", "FIRST", "Answer", "Malformed"]

_HEADER: Final = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence number, port"""
_COMMAND_AT: Final = 16
"""where genlmsghdr begins: command, version, reserved"""
FIRST: Final = 20
"""bytes before the first attribute"""
ATTRIBUTE: Final = struct.Struct("=HH")
"""nlattr: length, type"""
_TYPE: Final = 0x3FFF
"""bits of an attribute's type that are no flags"""
_TEXT: Final = None
_NUMBERS: Final = {"uint8": struct.Struct("=B"), "uint32": struct.Struct("=I"), "uint64": struct.Struct("=Q")}


class Malformed(ValueError):
    """Bytes that are no message of the family; the text says why."""


@cache
def _forms(kind: Any) -> Mapping[int, tuple[str, struct.Struct | None]]:
    """Name and form of each attribute of a class of detshare.ctl.netlink.messages, by number. None is a text."""
    return {
        number: (name, _TEXT if form == "asciiz" else _NUMBERS[form])
        for number, (name, form) in enumerate(kind.nla_map)
        if form != "none"
    }


class Answer:
    """`kind`: the class of detshare.ctl.netlink.messages that says what its attributes are; None for a command of a
    newer module, of which nothing can be read. `header` is a dict for pyroute2's sake, which writes into it."""

    __slots__ = ("_begin", "_data", "_end", "cmd", "header", "kind")

    def __init__(self, data: bytes, begin: int, kinds: Mapping[int, Any]) -> None:
        """The message that begins at `begin`; Malformed where no whole one does."""
        if begin + FIRST > len(data):
            raise Malformed(f"a message of {len(data) - begin} bytes is too short to be one of detshare.ko")
        length, number, flags, sequence, port = _HEADER.unpack_from(data, begin)
        if length < FIRST or begin + length > len(data):
            raise Malformed(f"a message of detshare.ko says {length} bytes, and {len(data) - begin} came")
        self._data, self._begin, self._end = data, begin, begin + length
        self.cmd = data[begin + _COMMAND_AT]
        self.kind = kinds.get(self.cmd)
        self.header: dict[str, Any] = {
            "length": length,
            "type": number,
            "flags": flags,
            "sequence_number": sequence,
            "pid": port,
            "error": None,
        }

    @property
    def body(self) -> bytes:
        """All that it says: two with the same body say the same."""
        return self._data[self._begin + _COMMAND_AT : self._end]

    def values(self) -> Iterator[tuple[int, int | str]]:
        """Number and value of each attribute in the order in which they came; those of a newer module are passed over.

        Malformed at the first that is none: what came before it was given.
        """
        if self.kind is None:
            return
        forms, data, end = _forms(self.kind), self._data, self._end
        at = self._begin + FIRST
        while at + 4 <= end:
            length, number = ATTRIBUTE.unpack_from(data, at)
            if length < 4 or at + length > end:
                raise Malformed(f"an answer of detshare.ko (command {self.cmd}) is cut off at byte {at - self._begin}")
            number &= _TYPE
            known = forms.get(number)
            if known is not None:
                form = known[1]
                if form is None:  # up to the zero that ends it; the name of a command may be no UTF-8
                    yield number, data[at + 4 : at + length].partition(b"\0")[0].decode("utf-8", "replace")
                elif form.size + 4 != length:
                    name = known[0]
                    raise Malformed(f"{name} in an answer of detshare.ko has {length - 4} bytes, not {form.size}")
                else:
                    yield number, form.unpack_from(data, at + 4)[0]
            at += (length + 3) & ~3

    # -- as pyroute2's own messages ------------------------------------------------------------------------------

    @property
    def attrs(self) -> list[tuple[str, int | str]]:
        """Name and value of each attribute."""
        if self.kind is None:
            return []
        forms = _forms(self.kind)
        return [(forms[number][0], value) for number, value in self.values()]

    def get_attr(self, name: str, default: Any = None) -> Any:
        """The first value of an attribute by its name, DETSHARE_A_..., or `default`."""
        return next((value for each, value in self.attrs if each == name), default)

    def __getitem__(self, key: str) -> Any:
        if key not in ("header", "cmd", "attrs"):
            raise KeyError(key)
        return getattr(self, key)

    def __contains__(self, key: object) -> bool:
        return key in ("header", "cmd", "attrs")

    def get(self, key: str, default: Any = None) -> Any:
        """As of a dict."""
        return getattr(self, key) if key in self else default
