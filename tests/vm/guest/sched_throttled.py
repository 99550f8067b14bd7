# SPDX-License-Identifier: Apache-2.0
"""Tenants that the kernel stops in the midst of calls (cpu.max), or lets search for memory there (a full memory.max).

Not by the clock, for this guest is slow: a work item is stuck if it waits for a lock of the module, look after look.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import CLIENTS
from tests.vm.guest.sched_tools import Worker, family, gpu_times, of, worker

__all__ = ["family", "worker"]  # fixtures

ROOT = Path("/sys/fs/cgroup")
TRACING = Path("/sys/kernel/tracing")
QUOTA_US, PERIOD_US = 1000, 1_000_000
THREADS = 64
ROUNDS = 3000
LOOKS, LOOK_S = 300, 0.02
STUCK = 10
"""looks in a row"""
LOCKS = re.compile(r"mutex_|rwsem_|down_|osq_lock|schedule")


class Churn:
    """A tenant whose threads make and free all that the module keeps, in a cgroup of its own (not at its root)."""

    def __init__(self, folder: Path, threads: int = THREADS) -> None:
        self.folder = folder
        words = [str(CLIENTS / "nvchurn"), "--threads", str(threads)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.out, self.into = self.process.stdout, self.process.stdin
        assert self.out is not None
        assert json.loads(self.out.readline())["event"] == "ready"
        (folder / "cgroup.procs").write_text(str(self.process.pid))

    def rounds(self) -> int:
        assert self.out is not None
        assert self.into is not None
        self.into.write("\n")
        self.into.flush()
        return int(json.loads(self.out.readline())["rounds"])

    def counts(self, file: str) -> dict[str, int]:
        return {name: int(count) for name, count in (x.split() for x in (self.folder / file).read_text().splitlines())}

    def stop(self) -> list[int]:
        """Its tasks, each of which has left its call."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = sorted(int(entry.name) for entry in Path(f"/proc/{self.process.pid}/task").iterdir())
        until(lambda: all(map(is_stopped, tasks)))
        return tasks

    def end(self) -> None:
        if self.folder != ROOT:
            (self.folder / "cpu.max").write_text("max")
            (self.folder / "memory.max").write_text("max")
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def tenant() -> Iterator[Churn]:
    (ROOT / "cgroup.subtree_control").write_text("+cpu +memory")
    folder = ROOT / f"throttled-{os.getpid()}"
    folder.mkdir()
    made = Churn(folder)
    # threads that are stopped in the driver's own locks stop each other there for long, as they do without the module
    hung = Path("/proc/sys/kernel/hung_task_timeout_secs")
    hung.write_text("0")
    yield made
    made.end()
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def workers() -> list[Path]:
    """Kernel threads that carry out work items."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().startswith("kworker"):
                found.append(entry)
    return found


def waiting(threads: list[Path]) -> Iterator[tuple[str, str]]:
    """Those that wait for a lock of the module, with the function that waits."""
    for entry in threads:
        with suppress(OSError):
            text = (entry / "stack").read_text()
            if "[detshare]" not in text:
                continue
            frames = [line.split("] ", 1)[-1] for line in text.splitlines()]
            beyond = next((at for at, frame in enumerate(frames) if not LOCKS.search(frame.split("+")[0])), 0)
            if beyond and "[detshare]" in frames[beyond]:
                yield entry.name, frames[beyond].split("+")[0]


def test_run_queues_do_not_wait_for_who_has_no_processor_time(
    family: genl.DetShare, worker: Callable[..., Worker], tenant: Churn
) -> None:
    one = worker("nvbackground", "--us", 200)
    # its bucket is looked after some times a second
    family.bucket_set(500_000, 50_000, **of(one))
    before = gpu_times(one)[0]
    (tenant.folder / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
    row: Counter[str] = Counter()
    threads: list[Path] = []
    longest: Counter[str] = Counter()
    for look in range(LOOKS):
        threads = threads if look % 50 else workers()
        now = dict(waiting(threads))
        row = Counter({thread: row[thread] + 1 for thread in now})
        for thread, function in now.items():
            longest[function] = max(longest[function], row[thread])
        time.sleep(LOOK_S)
    assert tenant.counts("cpu.stat")["nr_throttled"] > LOOKS * LOOK_S * 1e6 / PERIOD_US / 2
    assert not {function: looks for function, looks in longest.items() if looks >= STUCK}
    assert gpu_times(one)[0] > before


@pytest.fixture
def neighbour() -> Iterator[Churn]:
    made = Churn(ROOT, threads=1)
    yield made
    made.end()


def policies(tasks: list[int]) -> list[tuple[int, int]]:
    """Policy and niceness of each."""
    return [(os.sched_getscheduler(task), os.getpriority(os.PRIO_PROCESS, task)) for task in tasks]


def is_stopped(task: int) -> bool:
    return Path(f"/proc/{task}/stat").read_text().rpartition(") ")[2][0] == "T"


@pytest.fixture
def boosts() -> Iterator[Callable[[], int]]:
    """How often a task was made a real-time task of the lowest priority, by the kernel's trace: it is for moments."""
    (TRACING / "set_ftrace_filter").write_text("sched_set_fifo_low")
    (TRACING / "current_tracer").write_text("function")
    (TRACING / "trace").write_text("")
    yield lambda: (TRACING / "trace").read_text().count(": sched_set_fifo_low <-")
    (TRACING / "current_tracer").write_text("nop")
    (TRACING / "set_ftrace_filter").write_text("")


def test_a_neighbours_calls_go_on_beside_who_has_no_processor_time(
    tenant: Churn, neighbour: Churn, boosts: Callable[[], int]
) -> None:
    """Whoever is stopped within a call is let out of it, as a real-time task, and is none afterwards."""
    # who is stopped is in no call, and waits for no processor: it is no real-time task now
    tasks = tenant.stop()
    os.sched_setscheduler(tasks[1], os.SCHED_BATCH, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, tasks[2], 5)
    os.sched_setscheduler(tasks[3], os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    before = policies(tasks)
    assert os.SCHED_FIFO not in {policy for policy, _ in before}
    tenant.process.send_signal(signal.SIGCONT)
    (tenant.folder / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
    until(lambda: tenant.counts("cpu.stat")["nr_throttled"] > 2)
    rounds, boosted = neighbour.rounds(), boosts()
    until(
        lambda: neighbour.rounds() - rounds > 100 and boosts() > boosted,
        said=lambda: f"{neighbour.rounds() - rounds} rounds, {boosts() - boosted} boosts",
    )
    (tenant.folder / "cpu.max").write_text("max")
    assert tenant.stop() == tasks
    assert policies(tasks) == before


@pytest.fixture
def searches() -> Iterator[Callable[[], list[str]]]:
    """Who has searched its cgroup for memory: a text of functions each, the innermost first."""
    event = TRACING / "events/vmscan/mm_vmscan_memcg_reclaim_begin"
    (event / "trigger").write_text("stacktrace")
    (event / "enable").write_text("1")
    (TRACING / "trace").write_text("")
    yield lambda: (TRACING / "trace").read_text().split("<stack trace>")[1:]
    (event / "enable").write_text("0")
    (event / "trigger").write_text("!stacktrace")
    (TRACING / "trace").write_text("")


def test_nobody_searches_for_memory_while_others_wait_for_its_locks(
    tenant: Churn, searches: Callable[[], list[str]]
) -> None:
    """The cgroup is full of pages of files, which any of its allocations may have to give up one by one."""
    reads = "while :; do cat /usr/bin/* /usr/lib/x86_64-linux-gnu/*.so* >/dev/null 2>&1; done"
    reader = subprocess.Popen(["sh", "-c", reads], start_new_session=True)
    (tenant.folder / "cgroup.procs").write_text(str(reader.pid))
    (tenant.folder / "memory.max").write_text(str(int((tenant.folder / "memory.current").read_text()) + (2 << 20)))
    before = tenant.rounds()
    try:
        until(lambda: tenant.rounds() > before + ROUNDS)
    finally:
        os.killpg(reader.pid, 9)
        reader.wait()
    found = [each for each in searches() if "ds_" in each]
    assert found, "the module's own allocations met no limit"
    holding = [each for each in found if re.search(r"=> (rm_tree_reserve|rm_memory_|ds_memref|hold_object)", each)]
    assert not holding, holding[0]
