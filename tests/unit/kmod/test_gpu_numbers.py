# SPDX-License-Identifier: Apache-2.0
"""GPUs by the numbers of their nodes, where the driver's own device instances are others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from detshare.ctl.backends.module import lasting
from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.backends.module.census import Census
from detshare.ctl.backends.module.limits import Limits
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Gpu, ProcessId
from detshare.ctl.core.snapshot import AccountKind
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.records import ClassRow, GpuRow, LimitRow

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
GPUS = (Gpu(A, 0, "H100", "0000:06:00.0"), Gpu(B, 1, "H100", "0000:07:00.0"))
CROSSED = (GpuRow(0, B), GpuRow(1, A))
"""the driver counts B first, whose node is /dev/nvidia1"""
ONE = Target(AccountKind.PID, "42", ProcessId(42, 7))


class Link:
    """What the kernel has of classes and limits, by its own numbers."""

    def __init__(self) -> None:
        self.rows = [ClassRow("low", floor_permille=20, turn_us=100_000, turn_rank=2)]
        self.limits: dict[int | None, int] = {}

    def classes(self) -> list[ClassRow]:
        return self.rows

    def set_class(self, row: ClassRow) -> ClassRow:
        self.rows = [each for each in self.rows if (each.name, each.gpu) != (row.name, row.gpu)] + [row]
        return row

    def del_class(self, name: str, gpu: int | None = None) -> None:
        self.rows = [each for each in self.rows if (each.name, each.gpu) != (name, gpu)]

    def set_limit(self, target: Target, limit: int, gpu: int | None) -> LimitRow:
        self.limits[gpu] = limit
        return self.row(gpu)

    def del_limit(self, target: Target, gpu: int | None) -> None:
        del self.limits[gpu]

    def row(self, gpu: int | None) -> LimitRow:
        return LimitRow(genl.DETSHARE_KIND_PID, pid=42, start_time=7, gpu=gpu, limit=self.limits[gpu])

    def seen(self, gpu_rows: tuple[GpuRow, ...] = CROSSED) -> Census:
        limits = [self.row(gpu) for gpu in self.limits]
        return Census(limits=limits, gpu_rows=gpu_rows, gpus=GPUS, classes=self.rows)


def set_class(link: Link, change: dict[str, object] | None, gpu_rows: tuple[GpuRow, ...] = CROSSED) -> str:
    """What the backend's verb says."""
    watch = SimpleNamespace(refresh=lambda fresh: None, census=link.seen(gpu_rows))
    backend = SimpleNamespace(_clock=lambda: 0.0, _link=link, _watch=watch, _say=lambda *_: None)
    (done,) = KmodBackend.set_class(cast(Any, backend), "low", change).changed
    return done.note


def set_memory(link: Link, limit: int | None, gpu: int) -> Any:
    watch = SimpleNamespace(targets=lambda who: [ONE], census=link.seen())
    outcome = Limits(cast(Any, link), cast(Any, watch)).set("42", limit, gpu)
    return (*outcome.changed, *outcome.skipped)[0]


def test_a_class_has_its_row_on_the_gpu_that_ps_counts_so() -> None:
    link = Link()
    assert set_class(link, {"gpu": 1, "floor_permille": 50}).startswith("class low on GPU 1: at least 5 %")
    assert [(row.gpu, row.floor_permille) for row in link.rows] == [(None, 20), (0, 50)]
    assert [(row.gpu, row.floor_permille) for row in lasting.of(link.seen(), ())["classes"]] == [(None, 20), (1, 50)]
    assert set_class(link, {"gpu": 0}).startswith("class low on GPU 0: at least 2 %")  # the other one has none
    assert len(link.rows) == 2
    assert set_class(link, {"gpu": 1}).startswith("class low on GPU 1: at least 2 %")
    assert [(row.gpu, row.floor_permille) for row in link.rows] == [(None, 20)]


def test_a_limit_is_on_the_gpu_that_ps_counts_so() -> None:
    link = Link()
    change = set_memory(link, 1 << 30, 1)
    assert link.limits == {0: 1 << 30}
    assert (change.limit.gpu, change.limit.before) == (1, None)
    assert [account.gpu for account in link.seen().accounts()] == [1]
    assert set_memory(link, 2 << 30, 1).limit.before == 1 << 30
    assert set_memory(link, None, 0).reason == "pid 42 has no memory limit on GPU 0"
    assert set_memory(link, None, 1).limit.before == 2 << 30
    assert link.limits == {}


def test_a_gpu_that_is_not_there_or_not_known_yet_is_refused() -> None:
    link = Link()
    with pytest.raises(BadRequest, match="there is no GPU 2: there are 0, 1"):
        set_class(link, {"gpu": 2, "floor_permille": 50})
    with pytest.raises(BadRequest, match="GPU 0 has another number in the driver"):
        set_class(link, {"gpu": 0, "floor_permille": 50}, CROSSED[:1])
    assert len(link.rows) == 1
    set_class(link, {"gpu": 0, "floor_permille": 50}, ())  # nobody opened any: as the driver counts when it attaches
    assert link.rows[-1].gpu == 0


def test_the_modules_own_word_on_the_node_counts_where_it_has_no_uuid() -> None:
    seen = Census(gpu_rows=[GpuRow(0, minor=1), GpuRow(1, minor=0)], gpus=GPUS)
    assert [seen.instance(minor) for minor in (0, 1)] == [1, 0]
    assert [seen.minor(gpu) for gpu in (0, 1, 5)] == [1, 0, 5]
