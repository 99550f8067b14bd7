# SPDX-License-Identifier: Apache-2.0
"""Readings of the context-switch log by ``ps`` while a cell runs."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any

from detshare.tools.bench.mix.figures import Reading, integrate, readings
from detshare.tools.bench.steer import SteerError

__all__ = ["Watch"]

EVERY = 0.5
"""seconds; `ps` gives the last look, which the daemon makes in any case"""


class Watch:
    """Use as a context: a thread asks `ps`. Where no daemon answers, there are no readings and no error."""

    def __init__(self, ps: Callable[[], dict[str, Any]], gpu: str | None = None) -> None:
        self._ps, self._gpu = ps, gpu
        self._stop = threading.Event()
        self._found: defaultdict[int, list[Reading]] = defaultdict(list)
        self.problem = ""
        """why there is no reading"""
        self.schedules: list[Any] = []
        """what `ps` said of the rotation, a value for each look"""
        self.warnings: dict[str, None] = {}
        """of the daemon, such as why there is no log; in the order in which they came"""
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _look(self) -> None:
        before: object = None
        while True:
            try:
                answer = self._ps()
            except SteerError as error:
                self.problem = str(error)
            else:
                self.schedules.append(answer.get("schedules") or [])
                self.warnings |= dict.fromkeys(answer.get("warnings") or ())
                log = [(program["pid"], program.get("gpu_time")) for program in answer.get("programs", ())]
                # what does not differ from the look before in anything was not read anew: nobody asked for the log
                if before is not None and log != before:
                    for pid, reading in readings(answer, self._gpu).items():
                        self._found[pid].append(reading)
                before = log
            if self._stop.wait(EVERY):
                return

    def of(self, pid: int, begin: float, end: float) -> Reading | None:
        """What a program had of the GPU in that interval; None where the log does not say."""
        return integrate(self._found.get(pid, []), begin, end)

    @property
    def modes(self) -> list[str]:
        """Every mode, pattern and slice of a rotation that was seen, in words."""
        seen = {
            f"{one.get('mode')}, {one.get('pattern')}, slice {one.get('slice_us')} us"
            for some in self.schedules
            for one in some
        }
        return sorted(seen)
