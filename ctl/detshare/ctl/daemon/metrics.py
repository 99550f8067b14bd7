# SPDX-License-Identifier: Apache-2.0
"""/metrics: the last look, the policy and the daemon's own counters, as Prometheus text or as OpenMetrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition
from prometheus_client.registry import Collector

from detshare.ctl.core.gputime import Mode
from detshare.ctl.core.snapshot import Account, Program, Snapshot, State
from detshare.ctl.core.work import Times, times
from detshare.ctl.daemon.metric_names import NAMES, Family
from detshare.ctl.daemon.requests import Table
from detshare.ctl.daemon.threads import cpu_seconds

__all__ = ["MOST_ACCOUNTS", "MOST_PROGRAMS", "MOST_TSGS", "Counters", "registry", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

MOST_PROGRAMS: Final = 256
"""with series of their own, the longest-living first, so that series do not come and go; the others are counted"""
MOST_TSGS: Final = 8
"""of a program, with a slice each"""
MOST_ACCOUNTS: Final = 256
MOST_FLOORS: Final = 256
_COMMAND: Final = 64
"""characters of a command line"""

Policy = Mapping[str, Any]


@dataclass
class Counters:
    """What the daemon counts over its life."""

    looks: int = 0
    failed_looks: int = 0
    events: int = 0
    verbs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(verb, "changed" | "unchanged" | "refused" | "failed") -> requests"""


class _Page:
    """Families under way: all of NAMES, given in their order, without those that got no sample."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {each.name: each.family() for each in NAMES}

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Nothing for None: what is not known is no 0."""
        if value is not None:
            self._families[name].add_metric(labels, value)  # type: ignore[arg-type]  # infos come by info()

    def info(self, name: str, /, **values: str) -> None:
        self._families[name].add_metric((), values)  # type: ignore[arg-type]  # only infos are asked for

    def families(self) -> Iterable[Metric]:
        return [family for family in self._families.values() if family.samples]


class _Machine(Collector):
    """Read at each scrape, so that a program that ended leaves no series behind."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        counters: Counters,
        policy: Callable[[], Policy | None],
        requests: Table | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._counters = counters
        self._policy = policy
        self._requests = requests

    def collect(self) -> Iterable[Metric]:
        page = _Page()
        page.add("detshare_looks", self._counters.looks)
        page.add("detshare_looks_failed", self._counters.failed_looks)
        page.add("detshare_daemon_cpu_seconds", time.process_time())
        for thread, seconds in cpu_seconds().items():
            page.add("detshare_daemon_thread_cpu_seconds", seconds, thread)
        for labels, count in sorted(self._counters.verbs.items()):
            page.add("detshare_verbs", count, *labels)
        if self._requests is not None:
            for result in ("taken", "refused", "dropped"):
                page.add("detshare_requests_reported", getattr(self._requests, result), result)
        policy = self._policy()
        if policy is not None:
            _about_policy(page, policy, "")
            for each in policy.get("gpus", ()):
                _about_policy(page, each, str(each["uuid"]))
        snapshot = self._snapshot()
        if snapshot is not None:
            _about_machine(page, snapshot)
        return page.families()


def _about_policy(page: _Page, policy: Policy, gpu: str) -> None:
    """`gpu`: the UUID of the one that it decides for; empty: all that have none of their own."""
    page.info("detshare_policy", name=_text(str(policy["name"])), gpu=gpu)
    page.add("detshare_policy_failed", float(bool(policy["failed"])), gpu)
    counts = policy["counts"]
    page.add("detshare_policy_calls", counts["calls"], gpu)
    for result, count in (("done", "actions"), ("refused", "refused"), ("undone", "undone")):
        page.add("detshare_policy_actions", counts[count], result, gpu)
    page.add("detshare_policy_standing", policy["standing"], gpu)
    for percentile in ("50", "99"):
        taken = policy[f"latency_p{percentile}_ms"]
        page.add("detshare_policy_latency_seconds", None if taken is None else taken / 1000, percentile, gpu)


def _about_machine(page: _Page, snapshot: Snapshot) -> None:
    page.info("detshare_backend", name=snapshot.backend, proof=snapshot.proof, driver=snapshot.driver)
    for cause in snapshot.lapses:
        page.add("detshare_lapse", 1, _text(cause, 256))
    page.add("detshare_lapse_refused", snapshot.closed)
    page.add("detshare_look_seconds", snapshot.seconds)
    page.add("detshare_sensor_cpu_seconds", snapshot.sensor_cpu_s)
    page.add("detshare_programs", len(snapshot.programs))
    for klass, count in sorted(Counter(program.klass or "" for program in snapshot.programs).items()):
        page.add("detshare_class_programs", count, klass)
    eldest = sorted(snapshot.programs, key=lambda program: (program.id.start, program.id.pid))
    page.add("detshare_programs_left_out", max(0, len(eldest) - MOST_PROGRAMS))
    for program in eldest[:MOST_PROGRAMS]:
        _about_program(page, program)
    for floor in snapshot.floors[:MOST_FLOORS]:
        page.add("detshare_class_floor", floor.floor, floor.name, floor.uuid or "each")
    for schedule in snapshot.schedules:
        for mode in Mode:
            page.add("detshare_schedule_mode", float(mode is schedule.mode), schedule.gpu, mode.value)
        if schedule.holder:
            page.add("detshare_schedule_holder", 1, schedule.gpu, _text(schedule.holder))
        page.add("detshare_schedule_slice_seconds", schedule.slice_us / 1e6 or None, schedule.gpu)
    shared = [account for account in snapshot.accounts if account.kind.value != "pid"]
    for account in shared[:MOST_ACCOUNTS]:
        _about_account(page, account)


def _about_account(page: _Page, account: Account) -> None:
    labels = (account.kind.value, _text(account.name, 256), "" if account.gpu is None else str(account.gpu))
    page.add("detshare_account_memory_bytes", account.used, *labels)
    page.add("detshare_account_limit_bytes", account.limit, *labels)
    page.add("detshare_account_refused", account.refused, *labels)


def _about_program(page: _Page, program: Program) -> None:
    labels = (
        str(program.id.pid),
        _text(program.command, _COMMAND),
        _text(program.user),
        _text(program.container, 12),
    )

    def add(name: str, value: float | None, *more: str) -> None:
        page.add(f"detshare_program_{name}", value, *labels, *more)

    add("memory_bytes", program.memory_bytes)
    add("memory_limit_bytes", program.memory_limit)
    add("memory_refused", program.refused if program.limits or program.refused else None)
    add("gpu_share", program.share)
    add("weight", program.weight)
    if program.klass is not None:
        add("class", 1, program.klass)
    for state in State:
        add("state", float(state is program.state), state.value)
    for tsg in program.compute[:MOST_TSGS]:
        level = tsg.level.name.lower() if tsg.level is not None else ""
        # client and handle: a handle alone is unique within one client only
        add("slice_seconds", tsg.slice_us / 1e6, tsg.gpu, f"{tsg.client:#x}/{tsg.handle:#x}", level)
    for each in program.gpu_time:
        add("gpu_time_share", each.share, each.gpu)
        add("gpu_time_useful", each.useful, each.gpu)
        add("gpu_switches_per_second", each.switches_s, each.gpu)
        add("stalled_seconds", each.stalled_s, each.gpu)
    add("floor", program.floor)
    for gpu, floor in program.floors.items():
        add("gpu_floor", floor, gpu)
    if (spatial := program.spatial) is not None:
        add("sms", spatial.idle_sms)
        add("launches", spatial.launches, "kernel")
        add("launches", spatial.graph_launches, "graph")
        add("in_flight", spatial.in_flight)
        add("held_seconds", spatial.held_ms / 1e3)
        for kind, runs in (("kernel", spatial.kernels), ("graph", spatial.graphs)):
            for percentile, value in _percentiles(runs):
                add("run_seconds", value, kind, percentile)
        for percentile, value in _percentiles(times(spatial.delays)):
            add("queue_seconds", value, percentile)
    if (parking := program.parking) is not None:
        add("parkable_bytes", parking.parkable_bytes)
        add("parked_bytes", parking.parked_bytes)
        add("parks", parking.parks)
        add("kept_bytes", parking.kept_bytes)
        add("copied_bytes", parking.copied_bytes)
    if (activity := program.activity) is not None:
        add("bursts", activity.kicks)
        add("gpu_seconds", activity.used_us / 1e6)
        add("waits", activity.waits)
        add("wait_seconds", activity.wait_ms / 1e3)
        add("denied", activity.denied)
    if (requests := program.requests) is not None:
        add("requests", requests.total, requests.source)
        add("request_seconds", requests.p50_s, requests.source, "50")
        add("request_seconds", requests.p99_s, requests.source, "99")
    if (observed := program.observed) is not None:
        add("observed_launches", observed.launches, "kernel")
        add("observed_launches", observed.graph_launches, "graph")
        add("observed_copies", observed.copies)
        add("observed_copied_bytes", observed.copied_bytes)
        add("observed_waits", observed.waits)
        add("observed_wait_seconds", observed.wait_ms / 1e3)
        add("observed_partial", float(bool(observed.partial)))


def _percentiles(times: Times | None) -> Iterable[tuple[str, float]]:
    if times is None:
        return ()
    return (("50", times.p50_us / 1e6), ("90", times.p90_us / 1e6), ("99", times.p99_us / 1e6))


def _text(text: str, most: int = 64) -> str:
    """What may be a label: short, and without halves of characters, which no UTF-8 has."""
    return text[:most].encode(errors="replace").decode()


def registry(
    snapshot: Callable[[], Snapshot | None],
    counters: Counters,
    policy: Callable[[], Policy | None] = lambda: None,
    requests: Table | None = None,
) -> CollectorRegistry:
    """A registry of our own: nothing of another library in this process shows up in it."""
    made = CollectorRegistry()
    made.register(_Machine(snapshot, counters, policy, requests))
    return made


def render(made: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """The page and its Content-Type: OpenMetrics where `accept` (the request's header) prefers it, else plain text."""
    if _openly(accept):
        return exposition.generate_latest(made), OPEN_TYPE  # type: ignore[no-untyped-call]  # it has no types
    return generate_latest(made), CONTENT_TYPE


def _openly(accept: str) -> bool:
    """Whether OpenMetrics, of a version that this is, is named and no kind of plain text is wanted more (RFC 9110)."""
    openly, plainly = 0.0, 0.0
    for part in accept.split(","):
        kind, *params = (each.strip().lower() for each in part.split(";"))
        given = {name.strip(): value.strip(' "') for name, _, value in (param.partition("=") for param in params)}
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            continue
        if kind == "application/openmetrics-text" and given.get("version", "1.0.0") in ("0.0.1", "1.0.0"):
            openly = max(openly, quality)
        elif kind == "text/plain" and given.get("version", "0.0.4") == "0.0.4":
            plainly = max(plainly, quality)
    return openly > 0 and openly >= plainly
