# SPDX-License-Identifier: Apache-2.0
"""RM objects as the recorder has them: births and deaths out of a program's calls, without the observer's code.

Blocks are those of branches 535 to 580: NVOS21/NVOS64, NVOS02, NVOS05, NVOS55, NVOS00.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Birth", "Recorded", "differences", "read", "replay"]

_ALLOC_MEMORY, _ALLOC_OBJECT, _FREE, _ALLOC, _DUP, _VID_HEAP = 0x27, 0x28, 0x29, 0x2B, 0x34, 0x4A
_ROOTS = (0x0, 0x1, 0x41)
_STATUS_OF_ALLOC = {32: 28, 48: 40}

Birth = tuple[int, int, int, int]
"""client, handle, class, parent"""


@dataclass
class Recorded:
    """Of one process. `freed`: deaths before its end; what is left dies with it. `odd`: calls not understood."""

    births: Counter[Birth] = field(default_factory=Counter)
    freed: Counter[Birth] = field(default_factory=Counter)
    ended: Counter[Birth] = field(default_factory=Counter)
    calls: int = 0
    odd: int = 0

    @property
    def deaths(self) -> Counter[Birth]:
        """All of them."""
        return self.freed + self.ended


class _Tree:
    def __init__(self) -> None:
        self.found = Recorded()
        self.clients: dict[int, int] = {}
        """client -> the descriptor that it was made on"""
        self.alive: dict[tuple[int, int], Birth] = {}

    def born(self, birth: Birth) -> None:
        self.alive[birth[0], birth[1]] = birth
        self.found.births[birth] += 1

    def below(self, client: int, handle: int) -> list[tuple[int, int]]:
        if handle == client:
            return [key for key in self.alive if key[0] == client]
        found = [(client, handle)] if (client, handle) in self.alive else []
        for key in found:
            found += [other for other, birth in self.alive.items() if other[0] == client and birth[3] == key[1]]
        return found

    def free(self, client: int, handle: int) -> None:
        for key in self.below(client, handle):
            self.found.freed[self.alive.pop(key)] += 1
        if handle == client:
            self.clients.pop(client, None)

    def close(self, fd: int) -> None:
        for client in [each for each, on in self.clients.items() if on == fd]:
            self.free(client, client)

    def call(self, fd: int, escape: int, block: bytes) -> None:
        def word(at: int) -> int:
            return int(struct.unpack_from("<I", block, at)[0])

        if escape == _ALLOC:
            if len(block) not in _STATUS_OF_ALLOC:
                self.found.odd += 1
            elif word(_STATUS_OF_ALLOC[len(block)]) == 0:
                if word(12) in _ROOTS:
                    self.clients[word(8)] = fd
                    self.born((word(8), word(8), word(12), 0))
                else:
                    self.born((word(0), word(8), word(12), word(4)))
        elif escape == _ALLOC_MEMORY:
            if word(40) == 0:
                self.born((word(0), word(8), word(12), word(4)))
        elif escape == _ALLOC_OBJECT:
            if word(16) == 0:
                self.born((word(0), word(8), word(12), word(4)))
        elif escape == _DUP:
            if word(24) == 0:
                source = self.alive.get((word(12), word(16)))
                self.born((word(0), word(8), source[2] if source else 0, word(4)))
        elif escape == _FREE:
            if word(12) == 0:
                self.free(word(0), word(8))
        elif escape == _VID_HEAP:
            self.found.odd += 1

    def end(self) -> Recorded:
        self.found.ended.update(self.alive.values())
        self.alive.clear()
        return self.found


def replay(lines: Iterable[dict[str, Any]]) -> Recorded:
    """What a program's calls made of its objects."""
    tree = _Tree()
    for line in lines:
        if line["path"] == "/dev/nvidia-uvm":
            continue
        if "close" in line:
            tree.close(int(line["fd"]))
        elif "nr" in line and line["ret"] >= 0:
            tree.found.calls += 1
            tree.call(int(line["fd"]), int(line["nr"]), bytes.fromhex(line["out"]))
    return tree.end()


def read(path: Path) -> list[dict[str, Any]]:
    """A file of the recorder; a last line that was cut off is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except ValueError:
            break
    return found


def differences(mine: Counter[Birth], other: Counter[Birth]) -> tuple[list[Birth], list[Birth]]:
    """What only the first has, and what only the second has, each as often as that."""
    return sorted((mine - other).elements()), sorted((other - mine).elements())
