# SPDX-License-Identifier: Apache-2.0
"""Names, kinds, units and labels of all that /metrics gives. docs/use/metrics.md lists the same; a test compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
INFO: Final = "info"

PROGRAM: Final = ("pid", "command", "user", "container")
"""labels of a series about one program; it ends with the program"""

Family = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily


@dataclass(frozen=True, slots=True)
class Name:
    """One metric. Counters get `_total`, infos `_info` behind the name, as OpenMetrics has it."""

    name: str
    kind: str
    unit: str
    """seconds, bytes, or empty: a number or a ratio 0 to 1"""
    labels: tuple[str, ...]
    help: str

    @property
    def sample(self) -> str:
        """The name of its samples, which a query asks for."""
        return self.name + {COUNTER: "_total", INFO: "_info"}.get(self.kind, "")

    def family(self) -> Family:
        """Empty, to be filled."""
        if self.kind == INFO:
            return InfoMetricFamily(self.name, self.help)
        kind = CounterMetricFamily if self.kind == COUNTER else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels, unit=self.unit)


def _program(name: str, kind: str, unit: str, help_: str, *labels: str) -> Name:
    return Name(f"detshare_program_{name}", kind, unit, (*PROGRAM, *labels), help_)


NAMES: Final = (
    Name("detshare_looks", COUNTER, "", (), "Looks at the machine"),
    Name("detshare_looks_failed", COUNTER, "", (), "Looks that failed"),
    Name("detshare_verbs", COUNTER, "", ("verb", "result"), "Changing requests"),
    Name("detshare_backend", INFO, "", ("name", "proof", "driver"), "Backend, and the proof level of what it sees"),
    Name("detshare_lapse", GAUGE, "", ("cause",), "1 for why the kernel module does not enforce all limits and orders"),
    Name("detshare_lapse_refused", COUNTER, "", (), "Calls of managed programs refused for that (fail_closed=1)"),
    Name("detshare_look_seconds", GAUGE, "seconds", (), "Length of the last look"),
    Name("detshare_daemon_cpu_seconds", COUNTER, "seconds", (), "CPU time of the daemon"),
    Name("detshare_daemon_thread_cpu_seconds", COUNTER, "seconds", ("thread",), "Of it, that of each living thread"),
    Name("detshare_sensor_cpu_seconds", COUNTER, "seconds", (), "CPU time of reading the GPUs' context-switch logs"),
    Name("detshare_programs", GAUGE, "", (), "Programs seen"),
    Name("detshare_programs_left_out", GAUGE, "", (), "Programs seen that have no series of their own"),
    Name("detshare_class_programs", GAUGE, "", ("class",), "Programs of a class; empty: of none"),
    Name("detshare_class_floor", GAUGE, "", ("class", "gpu"), "Without detshare.ko: share of time that a class has at"
         " least; gpu each: where that has none of its own"),
    Name("detshare_policy", INFO, "", ("name", "gpu"), "The policy that decides; gpu empty: for all that have none"),
    Name("detshare_policy_failed", GAUGE, "", ("gpu",), "1 where the policy failed and nothing new is decided"),
    Name("detshare_policy_calls", COUNTER, "", ("gpu",), "Hooks of policies that were called"),
    Name("detshare_policy_actions", COUNTER, "", ("result", "gpu"), "Actions that policies asked for"),
    Name("detshare_policy_standing", GAUGE, "", ("gpu",), "Decisions of the policy that stand now"),
    Name("detshare_policy_latency_seconds", GAUGE, "seconds", ("percentile", "gpu"), "From an event to its decision"),
    Name("detshare_account_memory_bytes", GAUGE, "bytes", ("kind", "name", "gpu"), "GPU memory charged to a limit"),
    Name("detshare_account_limit_bytes", GAUGE, "bytes", ("kind", "name", "gpu"), "The limit"),
    Name("detshare_account_refused", COUNTER, "", ("kind", "name", "gpu"), "Requests refused because of the limit"),
    Name("detshare_schedule_mode", GAUGE, "", ("gpu", "mode"), "1 for how the background of a GPU runs"),
    Name("detshare_schedule_holder", GAUGE, "", ("gpu", "tenant"), "1 for the background tenant that has its turn"),
    Name("detshare_schedule_slice_seconds", GAUGE, "seconds", ("gpu",), "Time slice of who has its turn"),
    Name("detshare_requests_reported", COUNTER, "", ("result",), "Requests whose time programs reported"),
    _program("memory_bytes", GAUGE, "bytes", "GPU memory in use"),
    _program("memory_limit_bytes", GAUGE, "bytes", "The lowest memory limit that applies"),
    _program("memory_refused", COUNTER, "", "Requests for memory that were refused"),
    _program("gpu_share", GAUGE, "", "Share of the last seconds on the GPU where it has most, 0 to 1: by the"
             " context-switch log, by NVML where that is refused"),
    _program("gpu_time_share", GAUGE, "", "Context-switch log: share of the last seconds", "gpu"),
    _program("gpu_time_useful", GAUGE, "", "Context-switch log: share of the last seconds, less the restores of"
             " its context", "gpu"),
    _program("gpu_switches_per_second", GAUGE, "", "Context-switch log: its runs a second", "gpu"),
    _program("stalled_seconds", GAUGE, "seconds", "Context-switch log: time without progress although it has work",
             "gpu"),
    _program("floor", GAUGE, "", "Share of time that it has at least while a higher class leaves nothing; of"
             " several GPUs the lowest"),
    _program("gpu_floor", GAUGE, "", "The same on a GPU, where its GPUs differ", "gpu"),
    _program("weight", GAUGE, "", "Weight, where one was set"),
    _program("class", GAUGE, "", "1 for the program's class", "class"),
    _program("state", GAUGE, "", "1 for the program's state, 0 for the others", "state"),
    _program("slice_seconds", GAUGE, "seconds", "Time slice of a compute TSG; level is empty where it was never set",
             "gpu", "tsg", "level"),
    _program("sms", GAUGE, "", "Spatial lane: SMs while no higher class is active"),
    _program("launches", COUNTER, "", "Spatial lane: launches", "kind"),
    _program("in_flight", GAUGE, "", "Spatial lane: launches that have not finished"),
    _program("held_seconds", COUNTER, "seconds", "Spatial lane: time that launching threads waited"),
    _program("run_seconds", GAUGE, "seconds", "Spatial lane: launch to finish, over the program's life", "kind",
             "percentile"),
    _program("queue_seconds", GAUGE, "seconds", "Spatial lane: launch to its turn on its stream, over its life",
             "percentile"),
    _program("parkable_bytes", GAUGE, "bytes", "GPU memory that can be parked, parked or not"),
    _program("parked_bytes", GAUGE, "bytes", "Of it, what is in host memory now"),
    _program("parks", COUNTER, "", "Times that its memory left the GPU"),
    _program("kept_bytes", GAUGE, "bytes", "Host memory with copies of what is on the GPU, for the next park"),
    _program("copied_bytes", GAUGE, "bytes", "What its last park copied"),
    _program("bursts", COUNTER, "", "Temporal lane, detshare.ko: bursts of launches that were seen"),
    _program("gpu_seconds", COUNTER, "seconds", "Temporal lane, detshare.ko: GPU time, an estimate"),
    _program("waits", COUNTER, "", "Temporal lane, detshare.ko: waits at a shut door"),
    _program("wait_seconds", COUNTER, "seconds", "Temporal lane, detshare.ko: time of these waits"),
    _program("denied", COUNTER, "", "Temporal lane, detshare.ko: calls that were not let through to the driver"),
    _program("observed_launches", COUNTER, "", "eBPF, daemon.launches: launches that were seen", "kind"),
    _program("requests", COUNTER, "", "Requests whose time is known", "source"),
    _program("request_seconds", GAUGE, "seconds", "Time of a request, over the last seconds", "source", "percentile"),
    _program("observed_copies", COUNTER, "", "eBPF, daemon.launches: copies"),
    _program("observed_copied_bytes", COUNTER, "bytes", "eBPF, daemon.launches: what they copied"),
    _program("observed_waits", COUNTER, "", "eBPF, daemon.launches: waits for a stream, an event or a context"),
    _program("observed_wait_seconds", COUNTER, "seconds", "eBPF, daemon.launches: time of these waits"),
    _program("observed_partial", GAUGE, "", "eBPF, daemon.launches: 1 where not all calls could be seen"),
)  # fmt: skip
