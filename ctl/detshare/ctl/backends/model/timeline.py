# SPDX-License-Identifier: Apache-2.0
"""Which channel group has the SMs, when: a deterministic discrete-event model of one runlist.

The runlist is a round built from the interleave levels. A group keeps the SMs for its slice or until it runs out
of work; loading another group's context costs `switch_us`: 85 us without any context, and a restore. A slice that is
not longer than the restore ends with it, before anything ran; of a longer one all is left. That is an assumption that
fits what was measured: beside a saturated neighbour slices of 50, 200, 500 and 1000 us did 0, 174, 471 and 979 us of
work. The list is work conserving; a kernel is preempted at the end of the slice and goes on later. All times inside are
integer nanoseconds, so equal inputs give equal runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from detshare.ctl.backends.model.workload import NEVER, Workload
from detshare.ctl.core.gputime import Switch

if TYPE_CHECKING:
    from detshare.ctl.backends.model.gpu import ModelTsg

_SHORTEST_SLICE_NS = 1_024
"""a slice of zero still makes progress: the hardware counts in 1024 ns"""
ASKED_NS = 700_000
"""how long the driver looks when it is asked whether channels rest (docs/how/module-scheduling.md). That one moment of
rest is enough for "yes" is an assumption; it fits two launch-bound programs on an H200, whose turns ended like that of
one at rest (docs/results/raw/probes/half-becb412)"""
_NO_CONTEXT_NS = 85_000
"""between the end of one context and the start of the next (an H200's log, docs/use/scheduling.md)"""
_MOST_RECORDS = 1 << 17
"""of the log; the oldest go first"""


class Levelled(Protocol):
    """What has a runlist level: 0 low, 1 medium, 2 high."""

    @property
    def level(self) -> int:
        """The level."""


Group = TypeVar("Group", bound=Levelled)


def build_round(tsgs: Sequence[Group]) -> list[Group]:
    """One round of the runlist: LOW once, MEDIUM once per LOW, HIGH before every MEDIUM and every LOW.

    With L LOW and M MEDIUM groups (L > 0) a HIGH one appears (M+1)*L times; a level that is empty drops out.
    """
    low = [t for t in tsgs if t.level == 0]
    medium = [t for t in tsgs if t.level == 1]
    high = [t for t in tsgs if t.level >= 2]
    mediums = [each for tsg in medium for each in (*high, tsg)] if medium else []
    if not low:
        return mediums or high
    return [each for tsg in low for each in (*mediums, *high, tsg)]


class Timeline:
    """Time on one GPU's compute engine."""

    def __init__(self, *, switch_us: float = 250.0) -> None:
        self.now = 0
        self.switch_ns = round(switch_us * 1000)
        self.switches = 0
        self.busy = 0
        """nanoseconds in which some kernel ran"""
        self.switching = 0
        """nanoseconds spent on loading contexts"""
        self._tsgs: list[ModelTsg] = []
        self._works: list[Workload] = []
        """those of all groups, in their order"""
        self._round: list[ModelTsg] = []
        self._position = -1
        self._loaded: ModelTsg | None = None
        self._switch_end: int | None = None
        self._slice_start = 0
        self._expired = True
        self._running: Workload | None = None
        self.log: deque[Switch] = deque(maxlen=_MOST_RECORDS)
        """the context-switch log"""
        self.logged = 0
        """records written so far"""

    def _note(self, tsg: ModelTsg, at_ns: int, *, starts: bool) -> None:
        self.log.append(Switch(at_ns, tsg.logged_pid, tsg.number, starts))
        self.logged += 1

    # -- what the driver does

    def add(self, tsg: ModelTsg) -> None:
        self._tsgs.append(tsg)
        self.rebuild()

    def remove(self, tsg: ModelTsg) -> None:
        """The group is freed; what it had queued is gone."""
        if tsg in self._tsgs:
            self._tsgs.remove(tsg)
            if any(workload is self._running for workload in tsg.works):
                self._running = None
            tsg.works.clear()
            if self._loaded is tsg:
                self._note(tsg, self.now, starts=False)
                self._loaded, self._switch_end, self._expired = None, None, True
            self.rebuild()

    def rebuild(self) -> None:
        """Levels or groups changed. The turn goes on from the group whose turn it was."""
        self._works = [workload for tsg in self._tsgs for workload in tsg.works]
        turn = self._round[self._position] if 0 <= self._position < len(self._round) else None
        self._round = build_round(self._tsgs)
        self._position = self._round.index(turn) if turn is not None and turn in self._round else -1

    def changed(self, tsg: ModelTsg) -> None:
        """Slice or channels of a group changed: a shorter slice than has passed ends now."""
        if self._loaded is tsg and self._running is not None and self.now >= self._slice_end():
            self._expired = True

    def preempt(self, tsg: ModelTsg) -> None:
        """Take a group's context off the SMs; its next turn loads it again."""
        if self._loaded is tsg:
            self._note(tsg, self.now, starts=False)
            self._loaded, self._switch_end, self._running, self._expired = None, None, None, True

    # -- what programs do

    def attach(self, tsg: ModelTsg, workload: Workload) -> None:
        """Let `workload` submit to a group's channels. ValueError for a group that is not on this runlist."""
        if tsg not in self._tsgs:
            raise ValueError(f"group {tsg.number} of runlist {tsg.runlist} does not run kernels")
        tsg.works.append(workload)
        self.rebuild()
        workload.start(self.now)

    def detach(self, workload: Workload) -> None:
        """The program ended: its queue is dropped."""
        for tsg in self._tsgs:
            if workload in tsg.works:
                tsg.works.remove(workload)
        self.rebuild()
        if self._running is workload:
            self._running = None

    def move(self, workload: Workload, tsg: ModelTsg) -> None:
        """It submits to another group from now on."""
        self.detach(workload)
        tsg.works.append(workload)
        self.rebuild()

    def share(self, workload: Workload) -> float:
        return workload.share(self.now)

    def idle(self, tsg: ModelTsg) -> bool:
        """What the driver answers: whether all that was submitted to a group was finished at any moment of the
        question, which takes `ASKED_NS`; so it is said of one that is off, too."""
        return tsg.paused or all(not w.queue or self.now - w.rested_at < ASKED_NS for w in tsg.works)

    @property
    def running(self) -> ModelTsg | None:
        """The group whose kernel is on the SMs at this moment."""
        return self._loaded if self._running is not None else None

    # -- time

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. ValueError for a negative time."""
        if seconds < 0:
            raise ValueError(f"advance by {seconds} s: time only goes forward")
        target = self.now + round(seconds * 1e9)
        while True:
            self._schedule()
            upcoming = self._next_event()
            if upcoming > target:
                self._elapse(target)
                return
            self._elapse(upcoming)
            self._events()

    def _next_event(self) -> int:
        upcoming = NEVER
        for workload in self._works:
            if workload.wake < upcoming:
                upcoming = workload.wake
        if self._switch_end is not None:
            upcoming = min(upcoming, self._switch_end)
        elif self._running is not None:
            upcoming = min(upcoming, self.now + self._running.queue[0].left, self._slice_end())
        return max(upcoming, self.now)

    def _elapse(self, until: int) -> None:
        if self._switch_end is not None:
            self.switching += until - self.now
        elif self._running is not None:
            self._running.queue[0].left -= until - self.now
            self._running.ran(self.now, until)
            self.busy += until - self.now
        self.now = until

    def _events(self) -> None:
        """What happens now, completions first: they may submit, as do the programs that wake."""
        if self._running is not None and self._switch_end is None and self._running.queue[0].left == 0:
            finished, self._running = self._running, None
            finished.done(self.now)
        for workload in self._works:
            if workload.wake <= self.now:
                workload.on_wake(self.now)
        if self._switch_end is not None and self._switch_end <= self.now:
            self._switch_end = None
            self._expired = self._loaded is None or not self._runnable(self._loaded)

    def _schedule(self) -> None:
        """Decide who runs from now on."""
        if self._switch_end is not None:
            return
        if self._loaded is not None and not self._expired and self.now < self._slice_end():
            self._running = self._running or self._head(self._loaded)
            if self._running is not None:
                return
        self._running = None
        following = self._pick()
        if following is None:
            self._expired = True
            return
        if following is self._loaded:
            self._slice_start = self.now
            self._running = self._head(following)
        else:
            if self._loaded is not None:
                self._note(self._loaded, self.now, starts=False)
            self._loaded = following
            self._switch_end = self.now + self.switch_ns
            restore_ns, slice_ns = self.switch_ns - min(_NO_CONTEXT_NS, self.switch_ns), following.slice_us * 1000
            self._slice_start = self._switch_end - (slice_ns if slice_ns <= restore_ns else 0)
            self._note(following, self.now + min(_NO_CONTEXT_NS, self.switch_ns), starts=True)
            self.switches += 1
        self._expired = False

    def _pick(self) -> ModelTsg | None:
        """The next group of the round, from the present turn on, that has something to do."""
        turn = self._position + 1
        for first, last in ((turn, len(self._round)), (0, turn)):
            for index in range(first, last):
                if self._runnable(self._round[index]):
                    self._position = index
                    return self._round[index]
        return None

    def _slice_end(self) -> int:
        assert self._loaded is not None
        return self._slice_start + max(_SHORTEST_SLICE_NS, self._loaded.slice_us * 1000)

    def _runnable(self, tsg: ModelTsg) -> bool:
        # most groups of a round have nothing to do, which is the cheapest to see
        return self._head(tsg) is not None and not tsg.paused and not tsg.hung

    def _head(self, tsg: ModelTsg) -> Workload | None:
        """The program of this group whose first kernel was submitted earliest."""
        works = tsg.works
        if len(works) == 1:  # nearly always, and asked at each event
            return works[0] if works[0].queue else None
        first = None
        for workload in works:
            if workload.queue and (first is None or workload.queue[0].submitted < first.queue[0].submitted):
                first = workload
        return first
