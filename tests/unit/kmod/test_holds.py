# SPDX-License-Identifier: Apache-2.0
"""Leases, orders and rows, against a kernel that only remembers what it was asked."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.desired import Desired
from detshare.ctl.backends.module import census, messages, orders
from detshare.ctl.backends.module.holds import LEASE_S, Holds
from detshare.ctl.core import classes
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import AccountKind, Level
from detshare.ctl.core.verbs import request
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.records import ClassRow, HoldRow, SchedRow

ONE = Target(AccountKind.PID, "42", ProcessId(42, 7))
CREW = Target(AccountKind.CGROUP, "/crew", cgroup=60)


class Kernel:
    """What Link does of holds and classes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self.gone: set[Target] = set()
        self.rows: list[ClassRow] = []

    def hold(self, target: Target, *, gate: bool, pause: bool, lease_ms: int | None = None) -> HoldRow:
        if target in self.gone:
            raise KernelRefused("hold", errno.ESRCH, "no such process")
        self.asked.append((target.name, lease_ms))
        return HoldRow(0, gate=gate, pause=pause, lease_ms=lease_ms or 0)

    def let_go(self, target: Target) -> HoldRow:
        self.asked.append((target.name, None))
        if target in self.gone:
            raise KernelRefused("let go", errno.ENOENT, "nobody ordered it")
        return HoldRow(0)

    def classes(self) -> list[ClassRow]:
        return self.rows

    def set_class(self, row: ClassRow) -> ClassRow:
        self.rows = [each for each in self.rows if (each.name, each.gpu) != (row.name, row.gpu)] + [row]
        return row

    def del_class(self, name: str, gpu: int | None = None) -> None:
        self.rows = [each for each in self.rows if (each.name, each.gpu) != (name, gpu)]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_a_lease_is_renewed_before_it_ends(kernel: Kernel) -> None:
    now = [100.0]
    holds = Holds(kernel, lambda: now[0])  # type: ignore[arg-type]
    holds.hold(ONE, gate=True, pause=True)
    assert kernel.asked == [("42", LEASE_S * 1000)]
    for _ in range(12):
        now[0] += LEASE_S / 4
        assert holds.keep() == []
    times = len(kernel.asked)
    assert 30 / LEASE_S < times <= 13
    holds.hold(CREW, gate=True, pause=False, lease_s=60)
    assert kernel.asked[-1] == ("/crew", 60_000)
    now[0] += 50
    holds.keep()
    assert kernel.asked[-1] == ("42", LEASE_S * 1000)  # a hold with a lease of its own is not renewed
    assert holds.renewed == {ONE}


def test_who_has_ended_is_renewed_no_more(kernel: Kernel) -> None:
    now = [0.0]
    holds = Holds(kernel, lambda: now[0])  # type: ignore[arg-type]
    holds.hold(ONE, gate=True, pause=False)
    kernel.gone.add(ONE)
    now[0] += LEASE_S
    assert holds.keep() == [(ONE, "no such process")]
    assert holds.keep() == []
    assert holds.close() == []


def test_only_short_leases_are_taken_up(kernel: Kernel) -> None:
    holds = Holds(kernel)  # type: ignore[arg-type]
    short, long = HoldRow(0, gate=True, pause=True, lease_ms=4000), HoldRow(1, gate=True, lease_ms=50_000)
    assert holds.adopt([(ONE, short), (CREW, long)]) == [ONE]
    holds.keep()
    assert kernel.asked == [("42", LEASE_S * 1000)]
    assert holds.close() == []
    assert kernel.asked[-1] == ("42", None)


def test_a_ceiling_stays_beside_class_and_weight() -> None:
    desired = orders.merged(Desired(klass="low"), Desired(ceiling=40))
    assert desired == Desired(klass="low", ceiling=40)
    desired = orders.merged(desired, Desired(weight=3))
    assert desired == Desired(weight=3, ceiling=40)
    assert orders.order_of(desired).text == "weight 3, ceiling 40 %"
    assert orders.merged(desired, Desired(ceiling=100)) == Desired(weight=3)
    assert not orders.merged(Desired(ceiling=40), Desired(ceiling=100)).steers
    assert orders.order_of(Desired(slice_us=5)).level == Level.MEDIUM


def test_our_rows_are_written_once(kernel: Kernel) -> None:
    assert orders.write_missing(kernel, []) == list(classes.CLASSES)  # type: ignore[arg-type]
    assert [row.turn_rank for row in kernel.rows] == [4, 3, 2, 1]
    assert all(row.floor_permille for row in kernel.rows if row.turn_us)  # no class starves
    kernel.rows[2] = replace(kernel.rows[2], turn_us=5000)
    assert orders.write_missing(kernel, kernel.rows) == []  # type: ignore[arg-type]


def test_rows_are_changed_in_part_and_set_back(kernel: Kernel) -> None:
    link = kernel  # what set_class() needs of one
    orders.write_missing(link, [])  # type: ignore[arg-type]
    made = orders.set_class(link, "low", {"weight": 7})  # type: ignore[arg-type]
    assert made is not None
    assert (made.weight, made.slice_us, made.turn_us) == (7, None, classes.TURN_US)
    one = orders.set_class(link, "low", {"slice_us": 90, "gpu": 1})  # type: ignore[arg-type]
    assert one is not None
    assert (one.gpu, one.slice_us, one.weight) == (1, 90, None)
    assert len(kernel.rows) == 5
    back = orders.set_class(link, "low", {"gpu": 1})  # type: ignore[arg-type]
    assert back is not None
    assert (back.gpu, back.weight) == (None, 7), "as on the others"
    assert len(kernel.rows) == 4
    with pytest.raises(BadRequest, match="there is no class nosuch"):
        orders.set_class(link, "nosuch", {"gpu": 1})  # type: ignore[arg-type]
    orders.set_class(link, "low", None)  # type: ignore[arg-type]
    assert {row.name: row for row in kernel.rows} == {name: orders.row_of(name) for name in classes.CLASSES}
    too_much = {"weight": 0}, {"floor_permille": 1001}, {"turn_us": 4999}, {"weight": 1, "slice_us": 1}
    for bad in too_much:
        with pytest.raises(BadRequest):
            request("set-class", "low", **bad)
    mine = orders.set_class(link, "mine", {"weight": 1})  # type: ignore[arg-type]
    assert mine == ClassRow("mine", weight=1, turn_rank=classes.CLASSES["low"].turn_rank)


def test_what_the_driver_refused_is_said() -> None:
    abi = for_version("580.159.04")
    assert orders.refused(abi, "x", SchedRow(1, tsgs_set=2)) is None
    error = orders.refused(abi, "x", SchedRow(1, tsgs_set=1, tsgs_failed=2, status=0x1B))
    assert error is not None
    assert "refused it for 2 of 3 channel group(s) (NV_ERR_INSUFFICIENT_PERMISSIONS)" in str(error)
    error = orders.refused(None, "x", SchedRow(1, tpc_status=0x56))
    assert error is not None
    assert "no TPC ceiling here (0x56)" in str(error)


def test_what_came_of_a_hold_in_words() -> None:
    row = HoldRow(0, gate=True, pause=True, vctxs=2, gated=2, paused=1, failed=1, gate_ns=4000, pause_ns=10**7)
    row = replace(row, why="it shares")
    assert messages.held(ONE, row, None) == (
        "launches of 2 of 2 context(s) wait, after 4 us; 1 off the GPU, after 10 ms; 1 could not be paused: it shares"
    )
    assert messages.held(CREW, HoldRow(1), 5).startswith("cgroup /crew: no GPU context yet")
    assert messages.let_go(CREW, HoldRow(1)) == "cgroup /crew"
    assert "held for another reason" in messages.let_go(ONE, HoldRow(0, vctxs=1, gated=1))


def test_a_row_belongs_to_its_account() -> None:
    rows = [SchedRow(42), SchedRow(kind=genl.DETSHARE_KIND_CGROUP, cgroup_id=60), SchedRow(kind=2, tenant="red")]
    targets = [ONE, CREW, Target(AccountKind.TENANT, "red")]
    assert [[census.is_of(row, target) for target in targets] for row in rows] == [
        [True, False, False], [False, True, False], [False, False, True],
    ]  # fmt: skip
