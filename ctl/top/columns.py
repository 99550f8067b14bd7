# SPDX-License-Identifier: Apache-2.0
"""Which columns a screen has: by its width, and by what the programs of this machine have at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.top.rows import Row

WIDE: Final = 130
"""cells from which a screen is wide"""
MEDIUM: Final = 72


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `width` in cells of the screen, of a bar too."""

    name: str
    width: int
    right: bool = False


BARS: Final = frozenset({"BAR", "SM BAR", "MEM BAR"})

_MINIMAL = (Column("PID", 7, True), Column("CLASS", 6), Column("SHARE", 5, True), Column("STATE", 10))
_NARROW = (
    Column("PID", 7, True), Column("GPU", 3, True), Column("CLASS", 6), Column("SLICE", 6, True),
    Column("LEVEL", 6), Column("MEM", 5, True), Column("SHARE", 5, True), Column("STATE", 10),
)  # fmt: skip
_WIDE = (
    Column("PID", 7, True), Column("USER", 8), Column("CONTAINER", 12), Column("GPU", 5, True),
    Column("CLASS", 7), Column("TSGS", 4, True), Column("SLICE", 7, True), Column("LEVEL", 6),
    Column("MEM", 6, True), Column("SHARE", 5, True), Column("BAR", 16), Column("STATE", 14),
)  # fmt: skip
_COUNTED_NARROW = (
    Column("PID", 7, True), Column("CLASS", 6), Column("LANE", 4), Column("PCTX", 5, True), Column("SM BAR", 5),
    Column("USE", 9, True), Column("L/S", 5, True), Column("Q99", 6, True), Column("HELD", 4, True),
    Column("STATE", 7),
)  # fmt: skip
_COUNTED_WIDE = (
    Column("PID", 7, True), Column("USER", 8), Column("GPU", 3, True), Column("CLASS", 7), Column("LANE", 8),
    Column("PCTX", 8, True), Column("SM BAR", 10), Column("MEM", 6, True), Column("LIMIT", 6, True),
    Column("MEM BAR", 8), Column("L/S", 5, True), Column("Q99", 6, True), Column("HELD", 4, True),
    Column("SHARE", 5, True), Column("STATE", 10),
)  # fmt: skip


def counted(found: Iterable[Row]) -> bool:
    """Whether launches, lanes and pCtxs of somebody are known: from detshare.ko, a board, or the pool."""
    return any(row.launches is not None or row.sms is not None or _placed(row) for row in found)


def _placed(row: Row) -> bool:
    """Bound to a pCtx that is not the whole GPU, where everybody is who was not bound."""
    return row.raw.get("pctx") not in (None, "", "100%")


def columns(width: int, limits: bool = False, counts: bool = False) -> list[Column]:
    """The columns for a screen of `width` cells; COMMAND takes what is left.

    `limits`: somebody may hold a memory limit. `counts`: as counted() says; then what the lanes tell takes the
    place of slices and levels, which the details show.
    """
    if counts and width >= MEDIUM:
        chosen = list(_COUNTED_WIDE if width >= WIDE else _COUNTED_NARROW)
    else:
        chosen = list(_WIDE if width >= WIDE else _NARROW if width >= MEDIUM else _MINIMAL)
        for number, column in enumerate(chosen):
            if limits and column.name == "MEM":
                chosen.insert(number + 1, Column("LIMIT", column.width, True))
                break
    used = 1 + sum(column.width + 1 for column in chosen)
    return [*chosen, Column("COMMAND", max(width - used, 0))]
