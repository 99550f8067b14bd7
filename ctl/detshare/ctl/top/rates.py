# SPDX-License-Identifier: Apache-2.0
"""Launches a second, delay and part held of each program, from what two looks counted."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from detshare.ctl.core.work import times
from detshare.ctl.top.values import number, whole

WINDOW_S: Final = 1.0
"""least time over which a rate is formed; the daemon may look more often than its counters move"""
DELAY_WINDOW_S: Final = 10.0
"""over which the p99 of queue delays is formed: some hundred launches a second are timed"""
DELAYS_KEPT: Final = 100
"""intervals with waits from which the delay of a program of the temporal lane is told"""


@dataclass(slots=True)
class _Known:
    samples: deque[tuple[float, int, float, int]] = field(default_factory=deque)
    """(seconds, launches or bursts, milliseconds waited, waits)"""
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=DELAYS_KEPT))
    """microseconds that a wait took on average, one for each interval with waits"""
    queued: deque[tuple[float, list[int]]] = field(default_factory=deque)
    """(seconds, histogram of queue delays so far)"""


def _counted(program: Mapping[str, Any]) -> tuple[int, float, int] | None:
    """Launches (bursts, where only the kernel module sees the program), milliseconds waited, waits; None where nobody
    counts."""
    spatial, doing, seen = (program.get(name) for name in ("spatial", "activity", "observed"))
    if isinstance(spatial, Mapping):
        launches = (whole(spatial.get("launches")) or 0) + (whole(spatial.get("graph_launches")) or 0)
        return launches, number(spatial.get("held_ms")) or 0.0, 0
    waited, waits = 0.0, 0
    if isinstance(doing, Mapping):
        waited, waits = number(doing.get("wait_ms")) or 0.0, whole(doing.get("waits")) or 0
    if isinstance(seen, Mapping):
        return (whole(seen.get("launches")) or 0) + (whole(seen.get("graph_launches")) or 0), waited, waits
    return (whole(doing.get("kicks")) or 0, waited, waits) if isinstance(doing, Mapping) else None


def _p99(values: deque[float]) -> float | None:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else None


class Rates:
    """Remembers the looks of the last second."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, object], _Known] = {}

    def add_to(self, snapshot: dict[str, Any]) -> None:
        """Give programs `rates`: launches_per_s, held (0..1), queue_p99_us, door_p99_us; None for what is not known.

        queue_p99_us, spatial lane: from a launch to its turn on its stream, of the launches that were timed in the last
        ten seconds. door_p99_us, temporal lane: of what waits at a shut door took on average, over looks with waits.
        """
        now = number(snapshot.get("taken"))
        kept: dict[tuple[object, object], _Known] = {}
        for program in snapshot.get("programs") or ():
            counted = _counted(program)
            if counted is None or now is None:
                continue
            key = (program.get("pid"), program.get("start"))
            known = kept[key] = self._known.get(key) or _Known()
            program["rates"] = {
                **_rates(known, now, counted),
                "queue_p99_us": _queued(program.get("spatial"), known.queued, now),
                "door_p99_us": _p99(known.waits),
            }
        self._known = kept


def _queued(spatial: object, samples: deque[tuple[float, list[int]]], now: float) -> float | None:
    if not isinstance(spatial, Mapping):
        return None
    counted = [whole(each) or 0 for each in spatial.get("delays") or ()]
    if samples and (now < samples[-1][0] or any(a > b for a, b in zip(samples[-1][1], counted, strict=False))):
        samples.clear()  # another daemon, or another vCtx, counts anew
    if not samples or now > samples[-1][0]:
        samples.append((now, counted))
    while len(samples) > 2 and now - samples[1][0] >= DELAY_WINDOW_S:
        samples.popleft()
    seen = times([last - first for first, last in zip(samples[0][1], counted, strict=False)])
    return None if seen is None else seen.p99_us


def _rates(known: _Known, now: float, counted: tuple[int, float, int]) -> dict[str, float | None]:
    launches, waited_ms, waits = counted
    samples = known.samples
    if samples and (now < samples[-1][0] or launches < samples[-1][1]):
        samples.clear()  # another daemon counts anew
    if not samples or now > samples[-1][0]:
        if samples and waits > samples[-1][3]:
            known.waits.append(1000 * max(0.0, waited_ms - samples[-1][2]) / (waits - samples[-1][3]))
        samples.append((now, *counted))
    while len(samples) > 2 and now - samples[1][0] >= WINDOW_S:
        samples.popleft()
    begun, first, first_waited, _ = samples[0]
    seconds = now - begun
    if seconds <= 0:
        return {"launches_per_s": None, "held": None}
    held = max(0.0, waited_ms - first_waited) / 1000 / seconds
    return {"launches_per_s": (launches - first) / seconds, "held": min(1.0, held)}
