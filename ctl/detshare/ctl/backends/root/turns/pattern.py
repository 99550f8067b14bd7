# SPDX-License-Identifier: Apache-2.0
"""How the foreground comes, read off the context-switch log: what its gaps are good for.

A switch is 85 us in which no context runs and a restore of more than 100 us (docs/use/scheduling.md). Gaps of the
foreground that are not longer than a few of those, with next to nothing left of them to work in, serve nobody: the
foreground pays two switches for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core.classes import BURST_US, STREAM_US
from detshare.ctl.core.gputime import Pattern, Run
from detshare.ctl.gputime.meter import RESTORE_NS

SWITCH_NS: Final = 85_000
SHORT_GAP_NS: Final = 3 * (SWITCH_NS + RESTORE_NS)
"""a gap that is not longer than three switches is no use to the background"""
FULL_SHARE: Final = 0.5
"""a foreground that leaves only such gaps and has this share of the time or more keeps the GPU"""
FEW_USEFUL: Final = 0.1
"""unless it comes in bursts, and short gaps leave so much of the time to work in: a burst waits for one switch"""
STREAM_PER_S: Final = 150
"""so many pieces a second are a stream"""
STREAM_SHARE: Final = 0.25
"""if they and the gaps that they cut have this share of the time: in less of it a holder may as well get nowhere"""
ALIKE: Final = 0.02
"""pieces whose middle half is no wider than this part of one are requests: each had the GPU until it was done. Those of
a graph are alike to 0.01 on an H200. In little that a stream did behind each restore the restore is most of a piece, so
a wider part would call it requests, which nothing corrects; requests that are called a stream are told by trying it"""
FEW_PIECES: Final = 12
"""nothing is said of how alike fewer are"""
SHORT_PIECE_NS: Final = 1_000_000
LONG_PIECE_NS: Final = 5_000_000
"""a few of those fill a look: it takes more looks to say that there are no gaps"""
WAITED_NS: Final = SWITCH_NS + RESTORE_NS + 100_000
"""a gap that is no longer than the holder's slice and this ended with it: 0.27 to 0.33 ms above it on an H200"""
CUT_NS: Final = 1000 * STREAM_US + SHORT_GAP_NS
"""a longer one did not end with any holder's slice"""
KEEPS: Final = 0.5
"""a stream does more than this part of the work a second where it waits 2 ms in place of 50 us; who waits for each
answer, or each few, does less"""
LEAST_WORK: Final = 0.02
"""and in so much of the time by which it waits longer: what little a piece holds cannot be told from a restore"""
MOST_WORK: Final = 1.5
"""whatever of its pieces was restore, a stream does not do so many times what it had the GPU for beside 50 us"""
LONGER_NS: Final = 500_000
"""nothing is said where it did not wait longer by so much: the holder has little to do"""
QUIET_PER_S: Final = 1.0
QUIET_SHARE: Final = 0.005


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a time in which the background was let in."""

    seconds: float
    share: float
    """of that time that the foreground had"""
    pieces_s: float
    """times a second that it had the GPU"""
    piece_ns: float
    """median length of one"""
    gap_ns: float
    """median of what the background had between two"""
    useful: float
    """share of that time in which the background could work"""
    alike: bool = False
    """whether its pieces are whole requests, one like the other: a stream of small kernels is cut where it rests"""
    long_gap_ns: float = 0.0
    """of twenty gaps one is longer"""
    dense: float = 0.0
    """share of the time without gaps that no slice ended"""
    middle_ns: float = 0.0
    """mean length of the middle half of its pieces: some that begin or end a burst are shorter"""

    def left(self, floor: float) -> float:
        """The same, without what windows of a floor gave, at least as if all gaps were as most are."""
        return max(self.useful - floor, (self.gap_ns - RESTORE_NS) * self.pieces_s / 1e9)

    def keeps_up(self, before: Sight) -> bool | None:
        """Whether it did as much as `before`, when it waited for shorter slices; None: it waits no longer now, or does
        more than it had to do then, so that it comes otherwise.

        What a piece has more, by what the time from one to the next has more, is the part of the time that it works
        in, whatever a restore takes.
        """
        longer_ns = self.gap_ns - before.gap_ns
        if longer_ns < LONGER_NS:
            return None
        more_ns = self.middle_ns - before.middle_ns
        period_ns = before.middle_ns + before.gap_ns + 2 * SWITCH_NS
        if more_ns > MOST_WORK * before.middle_ns / period_ns * (longer_ns + max(0.0, more_ns)):
            return None
        did = max(0.0, before.middle_ns - RESTORE_NS) / period_ns
        return more_ns >= max(KEEPS * did, LEAST_WORK) * (longer_ns + max(0.0, more_ns))

    def streams(self, slice_us: int) -> bool:
        """Whether it comes as often as a stream of small kernels does, and waits for the holder each time."""
        often = STREAM_PER_S if slice_us < STREAM_US else STREAM_PER_S / 2  # it has more to do at a time then
        dense = self.pieces_s >= often and self.dense >= STREAM_SHARE
        return dense and self.gap_ns < 1000 * slice_us + SHORT_GAP_NS

    def waits(self, slice_us: int) -> bool:
        """Whether it finds the GPU taken each time, though for the shortest time there is."""
        enough = self.pieces_s * self.seconds >= FEW_PIECES
        return enough and slice_us < STREAM_US and self.long_gap_ns < 1000 * slice_us + WAITED_NS

    def overdue(self, slice_us: int) -> bool:
        """Whether requests always wait: they fall behind."""
        return self.alike and self.waits(slice_us)


def see(runs: Iterable[Run], background: Collection[int], begin_ns: int, end_ns: int) -> Sight:
    """Sum up `runs` of that time, oldest first. Runs of one side in a row are one piece, or one gap."""
    pieces: list[int] = []
    gaps: list[int] = []
    useful, side, length = 0, None, 0
    for pid, start_ns, stop_ns in runs:  # each run is seen several times: no calls, no names
        mine = gaps if pid in background else pieces
        took = stop_ns - start_ns
        if mine is gaps and took > RESTORE_NS:
            useful += took - RESTORE_NS
        if mine is side:
            length += took
            continue
        if side is not None:
            side.append(length)
        side, length = mine, took
    if side is not None:
        side.append(length)
    span = max(1, end_ns - begin_ns)
    dense = 1.0 - sum([gap for gap in gaps if gap > CUT_NS]) / span
    pieces.sort()
    gaps.sort()
    return Sight(
        seconds=span / 1e9,
        share=sum(pieces) / span,
        pieces_s=len(pieces) * 1e9 / span,
        piece_ns=_part(pieces, 1, 2),
        gap_ns=_part(gaps, 1, 2),
        useful=useful / span,
        alike=_alike(pieces),
        long_gap_ns=_part(gaps, 19, 20) if len(gaps) > 1 else 0.0,
        dense=dense,
        middle_ns=_middle(pieces),
    )


def _part(ordered: Sequence[int], part: int, of: int) -> float:
    """As statistics.quantiles has it; of one value that value, of none 0."""
    if len(ordered) < 2:
        return ordered[0] if ordered else 0.0
    index = min(max(part * (len(ordered) + 1) // of, 1), len(ordered) - 1)
    beyond = part * (len(ordered) + 1) - index * of
    return (ordered[index - 1] * (of - beyond) + ordered[index] * beyond) / of


def _middle(pieces: Sequence[int]) -> float:
    """Of ordered ones."""
    some = pieces[len(pieces) // 4 : len(pieces) - len(pieces) // 4]
    return sum(some) / max(1, len(some))


def _alike(pieces: Sequence[int]) -> bool:
    """Of ordered ones."""
    if len(pieces) < FEW_PIECES:
        return False
    low, middle, high = (_part(pieces, quarter, 4) for quarter in (1, 2, 3))
    return high - low <= ALIKE * middle


def judge(sight: Sight, floor: float = 0.0, slice_us: int = BURST_US, answered: bool = False) -> tuple[Pattern, str]:
    """The pattern, and the measurement that says so in words.

    `floor`: what the background has in windows. `slice_us`: that of its holder in this time. A gap that ends with it
    says that the foreground waited: a stream of small kernels always does, and requests that come faster than the
    switches let them. `answered`: it is known to launch little before the answer to the last. A stream that does not
    catches up behind a gap, so that what it leaves may be had in longer ones.
    """
    said = (
        f"the foreground had the GPU {sight.share:.0%} of the time, {sight.pieces_s:.0f} times a second for "
        f"{sight.piece_ns / 1e6:.2f} ms, and left gaps of {sight.gap_ns / 1e6:.2f} ms"
    )
    if sight.share < QUIET_SHARE or sight.pieces_s < QUIET_PER_S:
        return Pattern.NONE, f"the foreground had the GPU {sight.share:.1%} of the time"
    if sight.overdue(slice_us):
        return Pattern.FULL, f"{said}, behind each of which a request waited"
    small = sight.piece_ns < SHORT_PIECE_NS and not sight.alike
    useless = answered if small else sight.left(floor) < FEW_USEFUL
    if sight.share >= FULL_SHARE and sight.gap_ns < SHORT_GAP_NS and useless:
        return Pattern.FULL, said
    return (Pattern.STREAM if small and sight.streams(slice_us) else Pattern.BURSTS), said
