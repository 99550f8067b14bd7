# SPDX-License-Identifier: Apache-2.0
"""Observers of detshare.ebpf beside programs whose calls and writes are known: what they counted, what they cost."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detshare.ctl.rm import procfs
from detshare.ctl.rm.abi import for_version
from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.launches import COPIES, Kind, LaunchTracer
from detshare.ebpf.objects import ObjectTracer
from detshare.tools.bench.vm.inside import guest

TOP = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(TOP))

LAUNCHES, COPIED, ALLOCATIONS, PROCESSES = 10007, 503, 1009, 101
PAIRS = 50021
"""clients that are made and freed: twice as many calls, as fast as they go"""
_BIRTHS = """import os, struct, fcntl
for _ in range({count}):
    if not os.fork():
        block = bytearray(48); struct.pack_into('<I', block, 12, 0x41)
        fcntl.ioctl(os.open('/dev/nvidiactl', os.O_RDWR), 3 << 30 | 48 << 16 | ord('F') << 8 | 0x2B, block)
        os._exit(0)
    os.wait()
"""


def _abi() -> Any:
    version = procfs.driver_version()
    if version is None:
        raise guest.GuestError("no driver is loaded")
    return for_version(version)


def _drained(tracer: ObjectTracer) -> Counter[tuple[str, bool]]:
    """Births and deaths up to the end of the program that was watched."""
    found: Counter[tuple[str, bool]] = Counter()
    until = time.monotonic() + 120
    while not found["process", False] and time.monotonic() < until:
        for each in tracer.drain():
            memory = each.number in tracer.world.memory
            found["memory" if memory and each.kind == "object" else each.kind, each.born] += 1
    return found


def counts() -> None:
    """Known numbers of everything, and what the observers say."""
    from tests.tracee.tracee import LIBCUDA, Tracee

    launches = LaunchTracer(libcuda=[str(LIBCUDA)])
    with Tracee() as tracee:
        tracee.say("alloc plain 65536")
        tracee.say("alloc plain 65536")
        tracee.say(f"launch {LAUNCHES}")
        tracee.say(f"copy {COPIED}")
    mine = [each for each in launches.counts() if each.pid == tracee.pid]
    copied = [each for each in mine if each.kind in COPIES]
    guest.say(
        event="launches",
        launches=sum(each.calls for each in mine if each.kind is Kind.LAUNCH),
        shapes=[each.calls for each in launches.shapes() if each.pid == tracee.pid],
        copies=sum(each.calls for each in copied),
        copied=sum(each.bytes for each in copied),
        loader=launches.how,
    )
    launches.close()
    objects = ObjectTracer(_abi())
    hog = guest.start("nvalloc", stdin=subprocess.PIPE)
    hog.communicate("65536\n" * ALLOCATIONS)
    found = _drained(objects)
    guest.say(event="allocations", born=found["memory", True], died=found["memory", False])
    subprocess.run([sys.executable, "-c", _BIRTHS.format(count=PROCESSES)], check=True)
    time.sleep(0.5)
    found = Counter((each.kind, each.born) for each in objects.drain())
    guest.say(event="processes", born=found["process", True], died=found["process", False])
    before = objects.trouble().lost
    took = _storm(PAIRS)
    found = _drained(objects)
    guest.say(event="storm", pairs=found["client", False], seconds=took, lost=objects.trouble().lost - before)
    objects.close()
    small = ObjectTracer(_abi(), ring_bytes=4096)
    _storm(1009)
    guest.say(event="forced", lost=small.trouble().lost, told=bool(small.notes()))
    small.close()


def _storm(pairs: int) -> float:
    begin = time.monotonic()
    guest.start("nvloop", "--kind", "client", "--batches", "1", "--calls", pairs).communicate()
    return time.monotonic() - begin


def _per_launch(launches: int, settle: Callable[[], None] = lambda: None) -> float:
    """ns of a launch of the stand-in, which does nothing on a GPU: the smallest of three rounds.

    `settle`: what a reader does between two looks, so that the observer is as it is after its first moment.
    """
    from tests.tracee.tracee import Tracee

    with Tracee() as tracee:
        tracee.say("alloc plain 65536")
        tracee.say("launch 100")
        time.sleep(0.2)
        settle()
        rounds = []
        for _ in range(3):
            begin = time.perf_counter_ns()
            tracee.say(f"launch {launches}")
            rounds.append((time.perf_counter_ns() - begin) / launches)
    return min(rounds)


def overhead(rounds: int) -> None:
    """A launch and an allocation, alone and watched, in turns."""
    from tests.tracee.tracee import LIBCUDA

    for number in range(rounds):
        guest.say(event="launch", round=number, observer="none", ns=_per_launch(5000))
        watching = LaunchTracer(libcuda=[str(LIBCUDA)])
        guest.say(event="launch", round=number, observer="launches", ns=_per_launch(5000))
        watching.close()
        dirty = DirtyTracer(libcuda=[str(LIBCUDA)])
        guest.say(event="launch", round=number, observer="dirty", ns=_per_launch(5000, dirty.poll))
        dirty.close()
        if procfs.driver_version() is None:
            continue
        _storm(100)
        guest.say(event="call", round=number, observer="none", ns=_storm(5003) / 5003 / 2 * 1e9)
        objects = ObjectTracer(_abi())
        guest.say(event="call", round=number, observer="objects", ns=_storm(5003) / 5003 / 2 * 1e9)
        objects.close()


def dirty(programs: int, seed: int) -> None:
    """Random programs whose writes are known: what was reported of each epoch."""
    from tests.tracee.programs import program
    from tests.tracee.tracee import LIBCUDA, Tracee

    tracer = DirtyTracer(libcuda=[str(LIBCUDA)])
    time.sleep(0.05)
    for number in range(seed, seed + programs):
        pending: set[int] = set()
        dead: set[int] = set()
        with Tracee() as tracee:
            for steps in program(number, 5):
                expected = set(pending)
                for step in steps:
                    tracee.say(step.command)
                    tracer.poll()
                    expected |= step.writes
                    pending = set() if step.waits else pending | step.writes
                    if step.command.startswith("free"):
                        dead.add(int(step.command.split()[1]))
                found = tracer.end_epoch(tracee.pid)
                sizes = {each.address: each.size for each in found.allocations}
                live = {tracee.addresses[each] for each in expected - dead}
                guest.say(
                    event="epoch",
                    seed=number,
                    missed=len(live - {each.address for each in found.dirty}),
                    written=sum(sizes.get(address, 0) for address in live),
                    reported=found.bytes,
                    total=found.total,
                    whole=bool(found.reasons),
                )
        tracer.forget(tracee.pid)
    trouble = tracer.trouble()
    guest.say(event="lost", lost=trouble.lost + trouble.full + trouble.unread)
    tracer.close()


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: observers counts")
    parser.add_argument("what", choices=("counts", "overhead", "dirty"))
    parser.add_argument("--amount", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    if asked.what == "counts":
        counts()
    elif asked.what == "overhead":
        overhead(asked.amount)
    else:
        dirty(asked.amount, asked.seed)


if __name__ == "__main__":
    guest.main(_body)
