# SPDX-License-Identifier: Apache-2.0
"""What the cells of a mix say, with the targets: rows of a result."""

from __future__ import annotations

from collections.abc import Iterator

from detshare.tools.bench.mix.cells import ALONE, DEFAULT, OURS
from detshare.tools.bench.mix.figures import Measured
from detshare.tools.bench.mix.store import Store
from detshare.tools.bench.stats import deviation
from detshare.tools.results import Row

__all__ = ["limit_us", "rows", "steps_shares"]

SHORT_US = 1500.0
"""a request that takes less alone may take this much longer instead of 15 %"""
EXTRA_US = 300.0
STANDSTILL_S = {4: 2.0}
"""seconds within which each background gets on, by their number; 1 for fewer than four"""


def limit_us(alone_p99: float) -> float:
    """What a request may take at p99."""
    return 1.15 * alone_p99 if alone_p99 >= SHORT_US else alone_p99 + EXTRA_US


def steps_shares(cell: Measured, store: Store) -> dict[str, float]:
    """Each background's steps a second over those alone in the same run; empty where one of them is not known."""
    found = {}
    for name, mine in cell.back.items():
        alone = store.alone(name, cell.run)
        if alone is None or not alone.back[name].rate:
            return {}
        found[name] = mine.rate / alone.back[name].rate
    return found


def rows(store: Store) -> list[Row]:
    """All that the cells give, in their order."""
    return [row for cell in store.cells for row in _of(cell, store)]


def _of(cell: Measured, store: Store) -> Iterator[Row]:
    if cell.scheme == ALONE:
        runs = list(dict.fromkeys(each.run for each in store.cells))
        yield from _alone(cell, f" (run {runs.index(cell.run) + 1})" if cell.run != runs[0] else "")
        return
    if cell.server is not None:
        yield from _latency(cell, store)
    yield from _background(cell, store)
    yield from _gauge(cell, store)


def _gauge(cell: Measured, store: Store) -> Iterator[Row]:
    """Clocks, which nobody but the GPU sets, and what the daemon costs; it senses only where nothing is managed."""
    if cell.gauge is None:
        return
    alone = store.alone(cell.mix.split(" + ")[0], cell.run)
    before = None if alone is None or alone.gauge is None else alone.gauge.sm_mhz
    if cell.gauge.sm_mhz:
        yield Row(f"{cell.cell}: SM clock, median", cell.gauge.sm_mhz, "MHz", before)
        yield Row(f"{cell.cell}: SM clock, least", cell.gauge.least_sm_mhz, "MHz", before)
        yield Row(f"{cell.cell}: power, greatest", cell.gauge.power_w, "W")
    target = "<= 1" if cell.scheme == DEFAULT else None
    yield Row(f"{cell.cell}: the daemon's CPU time", 100 * cell.gauge.daemon_cpu, "% of a core", None, target)
    if cell.gauge.sensor_cpu is not None:
        yield Row(f"{cell.cell}: reading the switch log", 100 * cell.gauge.sensor_cpu, "% of a core", None, target)


def _alone(cell: Measured, run: str) -> Iterator[Row]:
    """Of each run, since every cell is held against that of its own."""
    if cell.server is not None:
        yield Row(f"{cell.cell}{run}: p50", cell.server.p50, "us")
        yield Row(f"{cell.cell}{run}: p99 of {cell.server.count} requests", cell.server.p99, "us")
    for name, one in cell.back.items():
        yield Row(f"{name}: alone{run}: steps", one.rate, "steps/s")


def _latency(cell: Measured, store: Store) -> Iterator[Row]:
    assert cell.server is not None
    lc = cell.mix.split(" + ")[0]
    alone = store.alone(lc, cell.run)
    mine = cell.server
    if alone is None or alone.server is None:
        yield Row(f"{cell.cell}: p50", mine.p50, "us")
        yield Row(f"{cell.cell}: p99 of {mine.count} requests", mine.p99, "us")
        return
    yield Row(f"{cell.cell}: p50", mine.p50, "us", alone.server.p50)
    limit, against = limit_us(alone.server.p99), ""
    if lc == "eager":
        default = store.other(cell.mix, DEFAULT, cell.run)
        if default is not None and default.server is not None and default.server.p99 < limit:
            limit, against = default.server.p99, f" (limit: default slicing{_elsewhere(default, cell)})"
    target = f"<= {limit:.6g}" if cell.scheme == OURS else None
    yield Row(f"{cell.cell}: p99 of {mine.count} requests{against}", mine.p99, "us", alone.server.p99, target)
    if mine.dropped:
        yield Row(f"{cell.cell}: requests that were dropped, a second late", mine.dropped, "requests")


def _elsewhere(other: Measured, cell: Measured) -> str:
    return "" if other.run == cell.run else " of another run"


def _background(cell: Measured, store: Store) -> Iterator[Row]:
    ours, lc = cell.scheme == OURS, cell.mix.split(" + ")[0]
    shares = steps_shares(cell, store)
    by_steps = sum(shares.values())
    useful = [one.useful for one in cell.back.values()]
    logged = cell.server is not None and cell.server.share is not None and None not in useful
    if shares:
        baseline, target = None, None
        if ours and lc == "eager":
            default = store.other(cell.mix, DEFAULT, cell.run)
            base = {} if default is None else steps_shares(default, store)
            if base:
                baseline, target = sum(base.values()), ">= 0.95 x baseline"
        yield Row(f"{cell.cell}: background together, by steps against alone", by_steps, "", baseline, target)
    if logged and cell.server is not None and cell.server.share is not None:
        left = 1.0 - cell.server.share
        got = sum(each for each in useful if each is not None)
        target = ">= 0.97" if ours and lc == "graph" else None
        yield Row(f"{cell.cell}: background's useful time over the time left, by the log", got / left, "", None, target)
        if shares:
            yield Row(f"{cell.cell}: the same by steps", by_steps / left, "")
    elif ours:
        reason = "no context-switch log"
        yield Row(f"{cell.cell}: {reason}: background together, by steps", by_steps, "")
    if ours and len(cell.back) > 1:
        yield from _weights(cell, shares, logged)
    gap = max((one.gap_s for one in cell.back.values()), default=0.0)
    worst = max(cell.back, key=lambda name: cell.back[name].gap_s, default="")
    most = STANDSTILL_S.get(len(cell.back), 1.0)
    target = f"<= {most:g}" if ours else None
    yield Row(f"{cell.cell}: longest without progress ({worst})", gap, "s", None, target)


def _weights(cell: Measured, shares: dict[str, float], logged: bool) -> Iterator[Row]:
    useful = [one.useful or 0.0 for one in cell.back.values()]
    what = f"{cell.cell}: greatest distance from a weight's share"
    if logged and sum(useful) > 0:
        yield Row(f"{what}, by the log", deviation(useful, cell.weights), "", None, "<= 0.05")
    if sum(shares.values()) > 0:
        yield Row(f"{what}, by steps", deviation(list(shares.values()), cell.weights), "")
