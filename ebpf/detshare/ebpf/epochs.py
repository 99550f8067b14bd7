# SPDX-License-Identifier: Apache-2.0
"""What `dirty` tells of: allocations of a program, and what of them may have been written in an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

KEPT: Final = 64
"""epochs of each program that a watch keeps"""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory of a program's GPU. `how`: plain, managed, mapped. `physical`: what a mapped one shows, else 0."""

    address: int
    size: int
    how: str = "plain"
    physical: int = 0
    serial: int = 0
    """tells two allocations at one address apart"""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a program may have written in one epoch. `reasons`: why all of it had to be called dirty, if so."""

    pid: int
    number: int
    allocations: tuple[Allocation, ...]
    dirty: tuple[Allocation, ...]
    reasons: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes that are allocated."""
        return sum(each.size for each in self.allocations)

    @property
    def bytes(self) -> int:
        """Bytes of dirty allocations."""
        return sum(each.size for each in self.dirty)

    @property
    def share(self) -> float:
        """Of what is allocated; 0 where that is nothing."""
        return self.bytes / self.total if self.total else 0.0

    def to_json(self) -> dict[str, Any]:
        """As every tool prints it."""
        return {
            "pid": self.pid,
            "epoch": self.number,
            "total_bytes": self.total,
            "dirty_bytes": self.bytes,
            "share": round(self.share, 4),
            "allocations": len(self.allocations),
            "dirty": len(self.dirty),
            "reasons": list(self.reasons),
            "partial": list(self.partial),
        }
