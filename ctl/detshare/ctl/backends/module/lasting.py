# SPDX-License-Identifier: Apache-2.0
"""What stands in the kernel beside programs: orders of cgroups and tenants, rows of classes, buckets, holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from detshare.ctl.backends.module import orders
from detshare.ctl.backends.module.census import Census
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.snapshot import AccountKind, Bucket, ClassInfo, Hold, StandingOrder
from detshare.ctl.netlink.records import LEVELS, BucketRow, ClassRow, HoldRow, SchedRow


def of(seen: Census, renewed: Collection[Target]) -> dict[str, Any]:
    """The fields of a Snapshot. `renewed`: targets whose leases are renewed here."""
    return {
        "orders": tuple(order for row in seen.orders if (order := _order(seen, row)) is not None),
        "classes": tuple(_row(seen, row) for row in seen.classes),
        "buckets": tuple(bucket for row in seen.buckets if (bucket := _bucket(seen, row)) is not None),
        "holds": tuple(hold for row in seen.holds if (hold := _hold(seen, row, renewed)) is not None),
    }


def _order(seen: Census, row: SchedRow) -> StandingOrder | None:
    target = seen.target(row)
    if target is None or target.kind is AccountKind.PID:
        return None
    return StandingOrder(target.kind, target.name, orders.desired_of(row).text)


def _row(seen: Census, row: ClassRow) -> ClassInfo:
    level = LEVELS.get(row.level) if row.level is not None else None
    return ClassInfo(
        row.name,
        None if row.gpu is None else seen.minor(row.gpu),
        row.weight,
        row.slice_us,
        level,
        row.floor_permille,
        row.entities,
        row.turn_us,
    )


def _bucket(seen: Census, row: BucketRow) -> Bucket | None:
    target = seen.target(row)
    if target is None:
        return None
    rest = (row.rate_us, row.burst_us, row.level_us, row.used_us, row.emptied, row.empty)
    return Bucket(target.kind, target.name, *rest)


def _hold(seen: Census, row: HoldRow, renewed: Collection[Target]) -> Hold | None:
    target = seen.target(row)
    if target is None:
        return None
    return Hold(target.kind, target.name, row.gate, row.pause, row.lease_ms, target in renewed)
