# SPDX-License-Identifier: Apache-2.0
"""One GPU as the driver's scheduler sees it: channel groups on runlists, their slices, levels and pauses."""

from __future__ import annotations

from collections.abc import Iterable

from detshare.ctl.backends.model.timeline import Timeline
from detshare.ctl.backends.model.workload import Workload
from detshare.ctl.core.driver import Gpu

DEFAULT_SLICE_US = {"compute": 2048, "copy": 1024}
"""what the stock driver gives a new channel group (measured, driver 580)"""
DEFAULT_LEVEL = 1


class Channel:
    """A hardware channel. A disabled one fetches no work until it is enabled."""

    def __init__(self, tsg: ModelTsg, number: int) -> None:
        self.tsg = tsg
        self.number = number
        self.disabled = 0
        """how often it was switched off without being switched on: the firmware counts (seen on an H100)"""

    @property
    def enabled(self) -> bool:
        return self.disabled == 0


class ModelTsg:
    """A channel group. Several RM handles may name it (duplicates); it lives until the last is freed."""

    def __init__(self, gpu: GpuModel, runlist: int, number: int, engine: int, slice_us: int, pid: int = 0) -> None:
        self.gpu = gpu
        self.pid = pid
        """of the process that made it"""
        self.logged_pid = pid
        """in the context-switch log: an MPS client's, of which the server's group then is (docs/results/NOTES.md)"""
        self.runlist = runlist
        self.number = number
        """the hardware's tsgID: unique on its runlist, reused after death"""
        self.engine = engine
        self.slice_us = slice_us
        self.level = DEFAULT_LEVEL
        self.channels: list[Channel] = []
        self.works: list[Workload] = []
        """what submits to it"""
        self.references = 1
        self.preempts = 0
        self.hung = False
        """set when some of an MPS server's clients were disabled while others had channels: those hang"""

    @property
    def paused(self) -> bool:
        """No enabled channel, so no work of it is ever run."""
        for channel in self.channels:  # noqa: SIM110 - asked at each event of the model, where `all` is slow
            if not channel.disabled:
                return False
        return True

_PIECE = 2 << 20
"""bytes; memory of a GPU lies on such pages (an H200, tests/data/ranks-h200.json.gz)"""


class GpuModel:
    """A GPU. `gr_engines` share runlist 0 with the compute engine, as the H100's first two copy engines do."""

    def __init__(self, info: Gpu, *, gr_engines: Iterable[int] = (1, 9, 10), switch_us: float = 250.0) -> None:
        self.info = info
        self.gr_engines = frozenset(gr_engines)
        self.tsgs: list[ModelTsg] = []
        self.timeline = Timeline(switch_us=switch_us)
        self._channels: set[int] = set()
        self._place = 0

    def place(self) -> int:
        """An address for one more piece of memory. None is used twice."""
        self._place += _PIECE
        return self._place

    def runlist_of(self, engine: int) -> int:
        """Runlist 0 for graphics and its copy engines, one of its own for any other engine."""
        return 0 if engine in self.gr_engines else engine

    def new_tsg(self, engine: int, pid: int = 0) -> ModelTsg:
        """A channel group with the lowest free number on the engine's runlist."""
        runlist = self.runlist_of(engine)
        used = {tsg.number for tsg in self.tsgs if tsg.runlist == runlist}
        number = next(n for n in range(len(used) + 1) if n not in used)
        kind = "compute" if runlist == 0 else "copy"
        tsg = ModelTsg(self, runlist, number, engine, DEFAULT_SLICE_US[kind], pid)
        self.tsgs.append(tsg)
        if runlist == 0:
            self.timeline.add(tsg)
        return tsg

    def release_tsg(self, tsg: ModelTsg) -> None:
        """Drop one reference; the last one takes the group, and the work on it, off the GPU."""
        tsg.references -= 1
        if tsg.references == 0:
            self.tsgs.remove(tsg)
            self.timeline.remove(tsg)

    def new_channel(self, tsg: ModelTsg) -> Channel:
        number = next(n for n in range(len(self._channels) + 1) if n not in self._channels)
        self._channels.add(number)
        channel = Channel(tsg, number)
        tsg.channels.append(channel)
        self.timeline.changed(tsg)
        return channel

    def free_channel(self, channel: Channel) -> None:
        self._channels.discard(channel.number)
        channel.tsg.channels.remove(channel)
        self.timeline.changed(channel.tsg)

    def set_slice(self, tsg: ModelTsg, slice_us: int) -> None:
        tsg.slice_us = slice_us
        self.timeline.changed(tsg)

    def set_level(self, tsg: ModelTsg, level: int) -> None:
        tsg.level = level
        self.timeline.rebuild()

    def preempt(self, tsg: ModelTsg) -> None:
        tsg.preempts += 1
        self.timeline.preempt(tsg)

    def switch_channels(self, channels: list[Channel], enable: bool, only_scheduling: bool = False) -> None:
        """Enable or disable channels; a disabled group leaves the GPU at once unless `only_scheduling`."""
        for channel in channels:
            channel.disabled = max(0, channel.disabled - 1) if enable else channel.disabled + 1
        for tsg in {id(c.tsg): c.tsg for c in channels}.values():
            if tsg.paused and not only_scheduling:
                self.timeline.preempt(tsg)
            self.timeline.changed(tsg)
