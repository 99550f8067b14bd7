# SPDX-License-Identifier: Apache-2.0
"""Who had the GPU when: a part of a second of its context-switch log, behind a cell's interval, and its picture."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from detshare.ctl.core.driver import Driver, DriverError
from detshare.ctl.core.errors import ControlError
from detshare.ctl.gputime import recording
from detshare.ctl.gputime.drawing import ticks
from detshare.tools.bench.mix.figures import Timeline

__all__ = ["ANOTHER", "SECONDS", "Tape", "svg"]

SECONDS = 0.25
MOST = 400
"""runs that a cell keeps; more of them cut its time short"""
PAUSE = 0.05
"""between two readings, as `detshare-trace timeline` has it"""
ANOTHER = "another process"
"""that is none of the mix: the MPS server, whose clients share its context"""


def _kernel() -> Driver:
    from detshare.ctl.rm.kernel import KernelDriver

    return KernelDriver()


class Tape:
    """Records while the programs of a cell still work. One that the driver refuses once is not asked for again."""

    def __init__(self, make: Callable[[], Driver] = _kernel, seconds: float = SECONDS) -> None:
        self._make, self._seconds = make, seconds
        self._driver: Driver | None = None
        self.problem = ""
        """why there is no time line"""

    def record(self, names: Mapping[int, str]) -> Timeline | None:
        """`names`: of the programs by PID. Takes `seconds`, or no time where there is no log."""
        if self.problem:
            return None
        try:
            self._driver = self._driver or self._make()
            made = recording.record(self._driver, self._driver.gpus(), self._pauses(), lambda _runs: None)
        except (DriverError, ControlError, OSError, LookupError) as error:
            self.problem = str(error)[:200]
            return None
        gpu = max(made.gpus, key=lambda each: sum(run.pid in names for run in each.runs), default=None)
        if gpu is None or not gpu.runs:
            return None
        runs = gpu.runs[:MOST]
        end = runs[-1].end_ns if len(gpu.runs) > MOST else gpu.end_ns
        lanes: dict[str, list[tuple[int, int]]] = {name: [] for name in names.values()}
        for run in runs:
            begin_us, end_us = ((at - gpu.begin_ns) // 1000 for at in (run.start_ns, run.end_ns))
            lanes.setdefault(names.get(run.pid, ANOTHER), []).append((begin_us, end_us - begin_us))
        return Timeline((end - gpu.begin_ns) // 1000, lanes)

    def _pauses(self) -> Iterator[None]:
        until = time.monotonic() + self._seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE))
            yield


LEFT, WIDTH, ROW, HIGH = 180, 560, 34, 20


def svg(line: Timeline, what: str, own: Sequence[str]) -> str:
    """Its picture: a lane a program, a box a run. `own`: programs in the colour of those whose latency counts."""
    height = ROW * len(line.lanes) + 30
    parts = []
    marks, divisor, unit = ticks(1000 * line.length_us, 8)
    for mark in marks:
        x = LEFT + WIDTH * mark / (1000 * line.length_us)
        parts.append(f'<line class="rule" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - 26}"/>')
        shown = f"{mark / divisor:g}" + (f" {unit}" if mark == marks[-1] else "")
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{shown}</text>')
    for number, (name, runs) in enumerate(line.lanes.items()):
        y = ROW * number + 4
        share = sum(length for _, length in runs) / line.length_us
        about = f"{name}: {len(runs)} runs, {share:.0%} of the time"
        boxes = "".join(
            f"M{LEFT + WIDTH * begin / line.length_us:.2f} {y}h{max(0.2, WIDTH * length / line.length_us):.2f}v{HIGH}"
            f"h-{max(0.2, WIDTH * length / line.length_us):.2f}z"
            for begin, length in runs
        )
        paint = "own" if name in own else "other"
        parts.append(f'<text x="0" y="{y + 14}">{html.escape(name[:24])} {share:.0%}</text>')
        parts.append(f'<path class="{paint}" d="{boxes}"><title>{html.escape(about)}</title></path>')
    view = f"0 0 {LEFT + WIDTH + 40} {height}"
    return f'<svg class="line" viewBox="{view}" role="img" aria-label="{html.escape(what)}">{"".join(parts)}</svg>'
