# SPDX-License-Identifier: Apache-2.0
"""Observers of detshare.ebpf beside programs whose calls and writes are known: what they counted, what they cost."""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detshare.ctl.abi.versions import for_version
from detshare.ctl.core import procfs
from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.launches import COPIES, Kind, LaunchTracer
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.records import Decoder, unpack
from detshare.ebpf.records import Kind as Record
from detshare.ebpf.world import World
from detshare.tools.bench.vm.inside import guest

TOP = Path(__file__).resolve().parents[6]
sys.path.insert(0, str(TOP))

LAUNCHES, COPIED, ALLOCATIONS, PROCESSES = 10007, 503, 1009, 101
STORM, STORMS = 50021, 2
"""calls that one program of the storm makes, as fast as it goes, after as many by which it warms up; and programs"""
CALLS = STORMS * (2 * STORM + 3)
"""what they ask for in all, with a client, a device and a subdevice of their own"""
FORCED = 5003
"""the same of the one program whose calls find a ring of a page"""
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
    guest.unload()  # which would look at each call, too
    before = objects.trouble().lost
    rate = sum(_storms(STORM, STORMS))
    told = [unpack(data).kind for data in objects.records()]
    lost = objects.trouble().lost - before
    guest.say(event="storm", calls=told.count(Record.CALL), events=len(told), rate=rate, lost=lost)
    small = ObjectTracer(_abi(), ring_bytes=4096)
    _storms(FORCED, 1)
    missed, kept, events = small.trouble().lost, sum(1 for _ in small.records()), sum(1 for _ in objects.records())
    told_of = any(str(missed) in note for note in small.notes())
    guest.say(event="forced", lost=missed, kept=kept, events=events, told=told_of)
    small.close()
    objects.close()


def _storms(calls: int, programs: int) -> list[float]:
    """Calls a second that each of some programs made, all of them at once, by its own clock."""
    words = ("--kind", "missing", "--batches", "1", "--calls", calls)
    started = [guest.start("nvloop", *words) for _ in range(programs)]
    return [1e9 / json.loads(each.communicate()[0])["median_ns"] for each in started]


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


_VERSION = "580.142"
"""of the records that a reader is given where no driver is loaded"""


def _reader(pairs: int) -> float:
    """Records, of clients that are made and freed, that a reader of `objects` takes in in a second of its CPU time."""
    abi = for_version(procfs.driver_version() or _VERSION)
    head, world = struct.Struct("<QQIIIiHHHH"), World(Decoder(abi))
    made, freed = abi.layout("NVOS64_PARAMETERS"), abi.layout("NVOS00_PARAMETERS")
    records = []
    for number in range(pairs):
        handle = abi.constant("RS_CLIENT_HANDLE_BASE") + number
        for escape, block in (
            ("NV_ESC_RM_ALLOC", made.pack(hObjectNew=handle, hClass=abi.klass("NV01_ROOT_CLIENT"))),
            ("NV_ESC_RM_FREE", freed.pack(hRoot=handle, hObjectOld=handle)),
        ):
            told = (number, 1, 4711, 3, len(block), 0, Record.CALL, 255, abi.constant(escape), len(block))
            records.append(head.pack(*told) + bytes(block))
    begin = time.process_time()
    found = sum(len(world.take(unpack(data))) for data in records)
    took = time.process_time() - begin
    if found < 2 * pairs:
        raise guest.GuestError(f"a reader saw {found} births and deaths in {2 * pairs} records")
    return 2 * pairs / took


def overhead(rounds: int) -> None:
    """A launch and an allocation, alone and watched, in turns; and how fast a reader reads."""
    from tests.tracee.tracee import LIBCUDA

    guest.say(event="reader", rates=[_reader(20_000) for _ in range(3)])
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


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: observers counts")
    parser.add_argument("what", choices=("counts", "overhead"))
    parser.add_argument("--amount", type=int, default=1)
    asked = parser.parse_args()
    os.environ.setdefault("DETSHARE_EBPF", "libbpf")
    if asked.what == "counts":
        counts()
    else:
        overhead(asked.amount)


if __name__ == "__main__":
    guest.main(_body)
