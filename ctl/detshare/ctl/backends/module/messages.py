# SPDX-License-Identifier: Apache-2.0
"""What came of holding, in words."""

from __future__ import annotations

from detshare.ctl.backends.module.census import Census
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.snapshot import AccountKind, Program
from detshare.ctl.netlink.records import LEVELS, BucketRow, ClassRow, HoldRow


def duration(ns: int) -> str:
    """Nanoseconds in the unit that suits."""
    return f"{ns / 1e3:.0f} us" if ns < 10_000_000 else f"{ns / 1e6:.0f} ms"


def held(target: Target, row: HoldRow, lease_s: float | None) -> str:
    """What holds now; what failed, with the reason."""
    done = []
    if not row.vctxs:
        done.append("no GPU context yet: held from its first one on")
    else:
        if row.gate:
            done.append(f"launches of {row.gated} of {row.vctxs} context(s) wait, after {duration(row.gate_ns)}")
        if row.pause:
            done.append(f"{row.paused} off the GPU, after {duration(row.pause_ns)}")
    if row.failed:
        done.append(f"{row.failed} could not be paused: {row.why or f'status {row.status:#x}'}")
    if lease_s is not None:
        done.append(f"for {lease_s:g} s")
    text = "; ".join(done)
    return text if target.kind is AccountKind.PID else f"{target.text}: {text}"


def let_go(target: Target, row: HoldRow) -> str:
    """What is left of a hold that ended."""
    done = []
    if row.gated or row.paused:
        done.append(f"{max(row.gated, row.paused)} of {row.vctxs} context(s) are held for another reason: see show")
    if row.failed:
        done.append(f"{row.failed} could not be resumed: {row.why or f'status {row.status:#x}'}")
    text = "; ".join(done)
    if target.kind is AccountKind.PID:
        return text
    return f"{target.text}: {text}" if text else target.text


def not_held(target: Target, program: Program | None, seen: Census) -> str:
    """Why there is nothing to let go."""
    doing = program.activity if program is not None else None
    if doing is None or not doing.reasons:
        return "it is not held" if target.kind is not AccountKind.PID else "it is not paused"
    if "order" in doing.reasons:
        others = [other.text for row in seen.holds if (other := seen.target(row)) is not None and other != target]
        return f"it is held with {' or '.join(others) or 'others'}: resume that"
    if "bucket" in doing.reasons:
        return "the bucket of its account is empty: see the buckets in show, or take it away: set-bucket ... off"
    return "it is another's turn, and its own comes by itself: see gpus in show, and set-class for turns and floors"


def bucket(row: BucketRow) -> str:
    """A bucket's amounts."""
    return f"{row.rate_us / 10_000:.4g} % of GPU time, {row.burst_us / 1000:g} ms at once"


def row(made: ClassRow) -> str:
    """A class's row."""
    parts = [f"weight {made.weight}"] if made.weight is not None else []
    parts += [f"slice {made.slice_us} us"] if made.slice_us else []
    parts += [f"level {LEVELS.get(made.level, str(made.level))}"] if made.level is not None else []
    parts.append(f"at least {made.floor_permille / 10:g} % of the time")
    parts += [f"turns of {made.turn_us / 1000:g} ms"] if made.turn_us else []
    return ", ".join(parts)
