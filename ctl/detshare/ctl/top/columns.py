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


_TURN: Final = Column("TURN", 8)
_LATELY: Final = Column("LATELY", 17, True)
_LATELY_NARROW: Final = Column("LATELY", 10, True)
_LATELY_FROM: Final = 92
"""columns of a terminal on which the command keeps the room that it has without a history"""
_LEAST: Final = ("CONTAINER", "TSGS", "USER", "MEM BAR", "SM BAR", "PCTX", "HELD", "Q99")
_COMMAND: Final = 12


def _with_turns(chosen: list[Column], width: int) -> list[Column]:
    """The place in the rotation stands before the state."""
    if width < WIDE:
        chosen = [column for column in chosen if column.name not in ("SLICE", "LEVEL", "LANE")]
    at = next(number for number, column in enumerate(chosen) if column.name == "STATE")
    return [*chosen[:at], _TURN, *chosen[at:]]


def _with_lately(chosen: list[Column], width: int) -> list[Column]:
    """The history stands behind the share, in the place of its bar; on a screen that has room for it."""
    if width < MEDIUM or (width < _LATELY_FROM and _TURN not in chosen):
        return chosen
    wanted = _LATELY if width >= WIDE else _LATELY_NARROW
    chosen = [wanted if column.name == "BAR" else column for column in chosen]
    if wanted not in chosen and (share := [n for n, column in enumerate(chosen) if column.name == "SHARE"]):
        chosen.insert(share[0] + 1, wanted)
    return chosen


def _fitting(chosen: list[Column], width: int) -> list[Column]:
    """Without what matters least, until there is room for a command."""
    for name in _LEAST:
        if 1 + sum(column.width + 1 for column in chosen) + _COMMAND <= width:
            break
        chosen = [column for column in chosen if column.name != name]
    return chosen


def counted(found: Iterable[Row]) -> bool:
    """Whether launches, lanes and pCtxs of somebody are known: from detshare.ko, a board, or the pool."""
    return any(row.launches is not None or row.sms is not None or _placed(row) for row in found)


def _placed(row: Row) -> bool:
    """Bound to a pCtx that is not the whole GPU, where everybody is who was not bound."""
    return row.raw.get("pctx") not in (None, "", "100%")


def columns(
    width: int,
    limits: bool = False,
    counts: bool = False,
    turns: bool = False,
    lately: bool = False,
    gpus: bool = False,
) -> list[Column]:
    """The columns for a screen of `width` cells; COMMAND takes what is left.

    `limits`: somebody may hold a memory limit. `counts`: as counted() says; then what the lanes tell takes the
    place of slices and levels, which the details show. `turns`: somebody has a place in a rotation, which takes the
    place of slices and levels on a narrow screen. `lately`: histories of shares are known. `gpus`: they are on several.
    """
    if counts and width >= MEDIUM:
        chosen = list(_COUNTED_WIDE if width >= WIDE else _COUNTED_NARROW)
    else:
        chosen = list(_WIDE if width >= WIDE else _NARROW if width >= MEDIUM else _MINIMAL)
        for number, column in enumerate(chosen):
            if limits and column.name == "MEM":
                chosen.insert(number + 1, Column("LIMIT", column.width, True))
                break
    if turns:
        chosen = _with_turns(chosen, width)
    if lately:
        chosen = _with_lately(chosen, width)
    if gpus and width >= MEDIUM and all(column.name != "GPU" for column in chosen):
        chosen.insert(1, Column("GPU", 3, True))
    if turns or lately or gpus:
        chosen = _fitting(chosen, width)
    used = 1 + sum(column.width + 1 for column in chosen)
    return [*chosen, Column("COMMAND", max(width - used, 0))]
