# SPDX-License-Identifier: Apache-2.0
"""Histograms of the module's gates and pauses, beside what was done to them."""

from __future__ import annotations

import time
from functools import partial

from detshare.ctl.netlink import genl
from detshare.ebpf.latency import Histogram, Kind, LatencyTracer
from tests.patience import until
from tests.vm.guest.gate_tools import Door, Gate
from tests.vm.guest.kmod_tools import PID, family

__all__ = ["family"]  # a fixture


def test_a_shut_gate_and_a_pause_are_measured(family: genl.DetShare) -> None:
    tracer = LatencyTracer(partial(getattr, genl))
    try:
        with Door() as door:

            def of(kind: Kind) -> list[Histogram]:
                return [each for each in tracer.histograms() if (each.pid, each.kind) == (door.pid, kind)]

            door.do("kick", 0, 1)
            with Gate(door.pid):
                waiting = door.ask("kick", 0, 1)
                assert door.waits(waiting)  # for 0.3 s
            door.end(waiting)
            until(lambda: of(Kind.GATE) and of(Kind.FAULT) and of(Kind.HELD))
            (gate,), (held,) = of(Kind.GATE), of(Kind.HELD)
            assert (gate.count, held.count) == (1, 1)
            assert 0.29e9 < gate.sum <= held.sum
            assert sum(each.most for each in of(Kind.FAULT)) >= gate.sum
            family.hold_set(False, True, 60_000, kind=PID, pid=door.pid)
            time.sleep(0.1)
            family.hold_del(kind=PID, pid=door.pid)
            until(lambda: of(Kind.PAUSED))
            (paused,) = of(Kind.PAUSED)
            assert paused.count == 1
            assert paused.sum > 0.09e9
        assert tracer.notes() == []
    finally:
        tracer.close()
