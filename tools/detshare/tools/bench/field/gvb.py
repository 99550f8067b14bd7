# SPDX-License-Identifier: Apache-2.0
"""GPU-Virt-Bench's ids (Bud Ecosystem, commit 3e896b5): which of our rows measures each, corrected how, or why none.

Names are from its README and metrics.h, what its code does from src/metrics. ``python -m
detshare.tools.bench.field.gvb`` prints the table of docs/use/gpu-virt-bench.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["METRICS", "Metric", "Verdict", "markdown"]


class Verdict(StrEnum):
    """What we do about a metric."""

    MEASURED = "measured"
    CORRECTED = "corrected"
    ELSEWHERE = "elsewhere"
    NONE = "meaningless"


@dataclass(frozen=True)
class Metric:
    """One id, or several that share a fate. `by`: the probe of field-gvb, or the other result of ours."""

    first: str
    what: str
    verdict: Verdict
    by: str
    how: str
    last: int = 0
    """number of the last id; 0: `first` is the only one"""

    @property
    def ids(self) -> list[str]:
        """All of them."""
        group, _, number = self.first.partition("-")
        return [f"{group}-{each:03d}" for each in range(int(number), max(int(number), self.last) + 1)]

    @property
    def label(self) -> str:
        """As a table names them."""
        return f"{self.first} to {self.ids[-1][-3:]}" if self.last else self.first


M, C, E, N = Verdict.MEASURED, Verdict.CORRECTED, Verdict.ELSEWHERE, Verdict.NONE
PROCESSES = "theirs is streams of one process; ours are processes"
METRICS = (
    Metric("OH-001", "kernel launch", M, "calls", "a launch and its wait, median"),
    Metric("OH-002", "allocation", C, "calls", "theirs is a median over mixed sizes; ours is one figure a size"),
    Metric("OH-003", "free", C, "calls", "one figure a size"),
    Metric(
        "OH-004", "context", C, "contexts", "theirs resets one process 20 times, which a layer may swallow; fresh ones"
    ),
    Metric("OH-005", "intercepted call", M, "calls", "cuDeviceGetCount; a layer without hooks adds nothing"),
    Metric("OH-006", "lock contention", M, "calls", "8 threads that allocate 1 MiB, p95; also the driver's own locks"),
    Metric(
        "OH-007", "memory tracking", N, "", "a difference whose negative values are set to 0; it is 0 in all its runs"
    ),
    Metric("OH-008", "rate limiter", C, "calls", "the launch call alone, one shape; under load: `bench launch-path`"),
    Metric(
        "OH-009", "NVML polling", E, "field-tally", "theirs polls and measures itself; ours: `daemon_cpu` of each cell"
    ),
    Metric(
        "OH-010",
        "throughput lost alone",
        C,
        "neighbour",
        "theirs is the constant 0; ours: a program with nobody beside",
    ),
    Metric("IS-001", "memory limit kept", C, "memory limit", "theirs ends at 16 GiB in steps of 64 MiB; ours in 2 MiB"),
    Metric(
        "IS-002", "time to refuse", C, "memory limit", "beside the driver's own time, which is the same for no limit"
    ),
    Metric(
        "IS-003",
        "SM share kept",
        E,
        "isolation",
        "theirs is NVML's busy time, not divided by the limit; ours counts SMs",
    ),
    Metric("IS-004", "SM limit response", E, "live-change", "theirs changes no limit; ours times a change"),
    Metric("IS-005", "memory isolation", N, "", "an address of another process is an address of one's own there"),
    Metric("IS-006", "rate kept", M, "neighbour", "beside a process that fills the GPU"),
    Metric("IS-007", "evenness", C, "neighbour", "theirs is without contention; ours beside a neighbour"),
    Metric(
        "IS-008", "fairness (Jain)", C, "equals", "theirs runs 4 streams one after another; ours 4 processes at once"
    ),
    Metric("IS-009", "noisy neighbour", C, "neighbour", "negative losses are not set to 0"),
    Metric("IS-010", "fault isolation", C, "fault", "theirs allocates 1 TB; ours writes where no memory is, and kills"),
    Metric("LLM-001", "attention", N, "", "2408 TFLOPS on an RTX 3080 in its own results: its timing does not wait"),
    Metric("LLM-002", "KV cache allocation", M, "calls", "the time of an allocation of 1 KiB"),
    Metric("LLM-003", "batch scaling", N, "", "a property of the model and the GPU, not of who shares it"),
    Metric(
        "LLM-004", "token latency", E, "field-serving", "theirs is synthetic; ours is a serving engine under a trace"
    ),
    Metric("LLM-005", "memory pool", N, "", "a property of the program's allocator"),
    Metric("LLM-006", "streams at once", N, "", "a property of one program and the GPU"),
    Metric("LLM-007", "large allocation", M, "calls", "256 MiB"),
    Metric("LLM-008", "mixed precision", N, "", "0.97 in its results: it does not reach the tensor cores"),
    Metric("LLM-009", "batching variance", E, "field-serving", "TTFT and TPOT of each request"),
    Metric("LLM-010", "several GPUs", N, "", "1.0 on one GPU by construction"),
    Metric("BW-001", "bandwidth kept", C, "traffic", f"{PROCESSES}, beside one that copies; of its own rate alone"),
    Metric("BW-002", "bandwidth fairness (Jain)", C, "traffic", f"{PROCESSES}, two at once"),
    Metric("BW-003", "saturation", N, "", "how many streams of one program fill the bus: a property of the GPU"),
    Metric("BW-004", "bandwidth lost", C, "traffic", "the same figure from 100 %; negative losses are not set to 0"),
    Metric("CACHE-001", "L2 hits, evictions", N, "", "derived from times; that takes counters of the GPU", 2),
    Metric("CACHE-003", "working sets collide", C, "traffic", "copies within L2 beside a process that sweeps memory"),
    Metric("CACHE-004", "L2 contention", C, "traffic", "the same figure: rate lost is time added"),
    Metric("PCIE-001", "to the GPU", M, "calls", "64 MiB, pinned"),
    Metric("PCIE-002", "from the GPU", M, "calls", "64 MiB, pinned"),
    Metric("PCIE-003", "copies under contention", C, "traffic", f"{PROCESSES}, to the GPU from pinned memory"),
    Metric("PCIE-004", "pinned over not pinned", M, "calls", "both rates; their quotient is the reader's"),
    Metric("NCCL-001", "collectives", N, "", "copy kernels on one GPU, not NCCL", 4),
    Metric(
        "SCHED-001",
        "context switch",
        E,
        "field-tally",
        "theirs is two streams of one context; ours: p99 beside a program",
    ),
    Metric("SCHED-002", "launch overhead", M, "calls", "the launch call alone"),
    Metric("SCHED-003", "streams at once", N, "", "a property of one program and the GPU"),
    Metric("SCHED-004", "preemption", E, "field-tally", "theirs is priorities in one process; ours: p99 over alone"),
    Metric("FRAG-001", "fragmentation", N, "", "of the driver's heap in one process; no way of ours places memory", 3),
    Metric("ERR-001", "error detection", C, "fault", "theirs is a refused 1 TB; ours is a fault of the GPU's MMU"),
    Metric(
        "ERR-002", "recovery", C, "kill", "until a killed program's memory is back, and whether the next one starts"
    ),
    Metric("ERR-003", "degradation", N, "", "five calls after a refused 1 TB in one process"),
    Metric("PAPER-001", "launch model of a paper", N, "", "says how well a model fits, not how a GPU is shared", 6),
    Metric("FCSP-001", "its product's features", N, "", "links a library that is not public", 12),
    Metric("UVM-001", "page faults", C, "managed memory", "time to touch 96 MiB from the GPU, its pages on the CPU"),
    Metric("UVM-002", "prefetch hits, overlap, CPU memory", N, "", "of its product's own prefetcher", 4),
    Metric("UVM-005", "eviction", C, "managed memory", "prefetched back: more memory than fits can hang a GPU"),
    Metric("UVM-006", "prefetch", C, "managed memory", "beside a process that fills the GPU"),
    Metric("UVM-007", "OOM prevented", N, "", "of its product's own eviction; more than fits is not tried here"),
    Metric("UVM-008", "prefetch bandwidth", C, "managed memory", "GB/s, not of a bus speed that it assumes"),
    Metric("UVM-009", "thrashing, pressure", N, "", "of its product's own eviction", 10),
)


def markdown() -> list[str]:
    """The lines of the table."""
    head = ["| id | what | | measured by | how, or why not |", "| --- | --- | --- | --- | --- |"]
    return [*head, *(f"| {m.label} | {m.what} | {m.verdict} | {m.by} | {m.how} |" for m in METRICS)]


if __name__ == "__main__":
    print("\n".join(markdown()))
    counts = Counter(metric.verdict for metric in METRICS for _ in metric.ids)
    print("\n" + ", ".join(f"{verdict} {count}" for verdict, count in counts.items()))
