# SPDX-License-Identifier: Apache-2.0
"""/metrics: the last look and the daemon's own counters in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from detshare.ctl.snapshot import Program, Snapshot, State

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_LABELS: Final = ("pid", "command", "user", "container")


@dataclass
class Counters:
    """What the daemon counts over its life."""

    looks: int = 0
    failed_looks: int = 0
    verbs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(verb, "changed" | "unchanged" | "refused" | "failed") -> requests"""


class _Machine(Collector):
    """Read at each scrape, so that a program that ended leaves no series behind."""

    def __init__(self, snapshot: Callable[[], Snapshot | None], counters: Counters) -> None:
        self._snapshot = snapshot
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = self._counters
        looks = CounterMetricFamily("detshare_looks", "Looks at the machine")
        looks.add_metric((), counters.looks)
        failed = CounterMetricFamily("detshare_looks_failed", "Looks that failed")
        failed.add_metric((), counters.failed_looks)
        verbs = CounterMetricFamily("detshare_verbs", "Changing requests", labels=("verb", "result"))
        for labels, count in sorted(counters.verbs.items()):
            verbs.add_metric(labels, count)
        yield from (looks, failed, verbs)
        snapshot = self._snapshot()
        if snapshot is not None:
            yield from _families(snapshot)


def _families(snapshot: Snapshot) -> Iterable[Metric]:
    backend = InfoMetricFamily("detshare_backend", "Backend in force and the proof level of what it sees")
    backend.add_metric((), {"name": snapshot.backend, "proof": snapshot.proof, "driver": snapshot.driver})
    yield backend
    yield GaugeMetricFamily("detshare_look_seconds", "Length of the last look", value=snapshot.seconds)
    yield GaugeMetricFamily("detshare_programs", "Programs seen", value=len(snapshot.programs))

    memory = GaugeMetricFamily("detshare_program_memory_bytes", "GPU memory in use", labels=_LABELS)
    share = GaugeMetricFamily(
        "detshare_program_gpu_share", "Share of the last second with kernels on the SMs, 0 to 1", labels=_LABELS
    )
    weight = GaugeMetricFamily("detshare_program_weight", "Weight, where one was set", labels=_LABELS)
    klass = GaugeMetricFamily("detshare_program_class", "1 for the program's class", labels=(*_LABELS, "class"))
    state = GaugeMetricFamily(
        "detshare_program_state", "1 for the program's state, 0 for the others", labels=(*_LABELS, "state")
    )
    timeslice = GaugeMetricFamily(
        "detshare_program_slice_seconds",
        "Time slice of a compute TSG; level is empty where it was never set",
        labels=(*_LABELS, "gpu", "tsg", "level"),
    )
    for program in snapshot.programs:
        labels = _labels(program)
        if program.memory_bytes is not None:
            memory.add_metric(labels, program.memory_bytes)
        if program.gpu_share is not None:
            share.add_metric(labels, program.gpu_share)
        if program.weight is not None:
            weight.add_metric(labels, program.weight)
        if program.klass is not None:
            klass.add_metric((*labels, program.klass), 1)
        for each in State:
            state.add_metric((*labels, each.value), float(each is program.state))
        for tsg in program.compute:
            level = tsg.level.name.lower() if tsg.level is not None else ""
            # client and handle: a handle alone is unique within one client only
            name = f"{tsg.client:#x}/{tsg.handle:#x}"
            timeslice.add_metric((*labels, tsg.gpu, name, level), tsg.slice_us / 1e6)
    yield from (memory, share, weight, klass, state, timeslice)


def _labels(program: Program) -> tuple[str, str, str, str]:
    command = program.command[:64].encode(errors="replace").decode()
    return str(program.id.pid), command, program.user, program.container[:12]


def registry(snapshot: Callable[[], Snapshot | None], counters: Counters) -> CollectorRegistry:
    """A registry of our own: nothing of another library in this process shows up in it."""
    made = CollectorRegistry()
    made.register(_Machine(snapshot, counters))
    return made


def render(made: CollectorRegistry) -> bytes:
    """The text that Prometheus reads."""
    return generate_latest(made)
