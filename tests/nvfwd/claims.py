# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko says that it does, tried by CUDA programs in a forwarding guest: claims.py SPIN MODULE_KO SECONDS.

A JSON line for each thing that was seen; a step that fails is told and ends none of the others. `detshare bench
forwarded` judges the lines.
Times are CLOCK_MONOTONIC seconds of the guest, in whose emulated processor a launch takes some 0.1 ms.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from detshare.ctl.netlink.genl import DetShare

PID = 0
MIB = 1 << 20
BACKGROUNDS, KERNEL_US = 3, 2000
REQUEST_US, PERIOD_MS = 1500, 30
CLASSES = {
    "high": {"slice_us": 20_000, "level": 2, "turn_rank": 4},
    "low": {"slice_us": 50, "level": 0, "floor_permille": 20, "turn_us": 100_000, "turn_rank": 2},
}
"""as a daemon writes them"""


def tell(step: str, **what: Any) -> None:
    print(json.dumps({"step": step, "t": round(time.monotonic(), 4), **what}, default=str), flush=True)


class Spin:
    """A program that does as it is told; its lines are kept as they come."""

    living: ClassVar[list[Spin]] = []

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.living.append(self)
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, event: str, since: int = 0, seconds: float = 30.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for line in self.lines[since:]:
                if line["event"] in (event, "failed"):
                    return line
            time.sleep(0.005)
        raise TimeoutError(f"{self.pid} did not say {event} within {seconds:g} s")

    def ask(self, line: str, event: str) -> dict[str, Any]:
        since = len(self.lines)
        self.say(line)
        return self.wait(event, since)

    def kernels(self) -> int:
        return max((line["kernels"] for line in self.lines if line["event"] == "done"), default=0)

    def requests(self, begin: float, end: float) -> list[float]:
        return [line["us"] for line in self.lines if line["event"] == "request" and begin <= line["t"] <= end]

    def end(self) -> int:
        self.living.remove(self)
        self.process.kill()
        return self.process.wait()


def plain(message: Any) -> dict[str, Any]:
    """Attributes by short name."""
    return {name.split("_A_", 1)[1].split("_", 1)[1].lower(): value for name, value in message["attrs"]}


def rows(messages: Any) -> list[dict[str, Any]]:
    return [plain(message) for message in messages]


def step(name: str, do: Callable[[], None]) -> None:
    begun = time.monotonic()
    try:
        do()
    except Exception as error:  # noqa: BLE001  the next step is about something else
        tell(name, failed=f"{type(error).__name__}: {error}")
    for left in tuple(Spin.living):
        left.end()
    tell(name, took=round(time.monotonic() - begun, 3))


def memory(link: DetShare, spin: str) -> None:
    one = Spin(spin)
    tell("memory", before=rows(link.vctx_get(one.pid)), status=plain(link.status_get()))
    tell("memory", answer=one.ask("alloc 256", "alloc"), after=rows(link.vctx_get(one.pid)))
    time.sleep(2.5)  # the host's own figures are taken meanwhile
    used = sum(each.get("memory_used", 0) for each in rows(link.vctx_get(one.pid)))
    tell("limit", used=used, limited=plain(link.limit_set(used + 100 * MIB, kind=PID, pid=one.pid)))
    for mib in (256, 64, 64):
        tell("limit", mib=mib, answer=one.ask(f"alloc {mib}", "alloc"))
    tell("limit", rows=rows(link.limit_get()), vctx=rows(link.vctx_get(one.pid)))
    link.limit_del(kind=PID, pid=one.pid)
    tell("limit", after="taken away", answer=one.ask("alloc 256", "alloc"))
    one.end()
    time.sleep(0.5)
    tell("memory", gone=rows(link.vctx_get(one.pid)))


def hold(link: DetShare, spin: str, what: dict[str, bool]) -> None:
    name = "gate" if what["gate"] else "pause"
    one = Spin(spin)
    one.say("run 500 5")
    time.sleep(1.5)
    asked = time.monotonic()
    answer = plain(link.hold_set(**what, lease_ms=20_000, kind=PID, pid=one.pid))
    held = time.monotonic()
    time.sleep(1.5)
    lines = [line["t"] for line in one.lines if line["event"] == "request"]
    tell(name, answer=answer, call_ms=1000 * (held - asked), run=rows(link.entity_get(one.pid)),
         before=sum(t < asked for t in lines), during=sum(asked <= t <= held for t in lines),
         after=sum(t > held + 0.01 for t in lines))  # fmt: skip
    let = time.monotonic()
    tell(name, released=plain(link.hold_del(kind=PID, pid=one.pid)), call_ms=1000 * (time.monotonic() - let))
    time.sleep(1.0)
    first = [line["t"] + line["us"] / 1e6 for line in one.lines if line["event"] == "request" and line["t"] > let]
    late = [line for line in one.lines if line["event"] == "request" and line["us"] > 1_000_000]
    tell(name, again=len(first), waited=late[:3], rest=one.ask("rest", "rest"), run=rows(link.entity_get(one.pid)))
    one.end()


def steer(link: DetShare, spin: str) -> None:
    one = Spin(spin)
    one.say("run 500 0")
    time.sleep(1.0)
    tell("steer", tsgs=rows(link.tsg_get(one.pid)))
    for slice_us, level in ((1000, 2), (5000, 0), (2048, 1)):
        tell("steer", wanted=[slice_us, level], answer=plain(link.sched_set(one.pid, slice_us=slice_us, level=level)))
    tell("steer", preempt=plain(link.preempt(kind=PID, pid=one.pid)), kernels=one.kernels())
    time.sleep(0.5)
    tell("steer", forgotten=plain(link.sched_del(one.pid)), tsgs=rows(link.tsg_get(one.pid)), kernels=one.kernels())
    tell("steer", rest=one.ask("rest", "rest"))
    one.end()


def mix(link: DetShare, spin: str, seconds: float) -> None:
    server, *backs = (Spin(spin) for _ in range(1 + BACKGROUNDS))
    server.say(f"run {REQUEST_US} {PERIOD_MS}")

    def phase(name: str) -> None:
        time.sleep(2.0)
        begin, before = time.monotonic(), [each.kernels() for each in backs]
        time.sleep(seconds)
        end, after = time.monotonic(), [each.kernels() for each in backs]
        some = sorted(server.requests(begin, end))
        done = [b - a for a, b in zip(before, after, strict=True)]
        tell("mix", scheme=name, seconds=end - begin, requests=len(some), p50=some[len(some) // 2],
             p99=some[int(len(some) * 0.99)], most=some[-1], kernels=done, useful=sum(done) * KERNEL_US / 1e6,
             latencies=some, runs=rows(link.entity_get()))  # fmt: skip

    phase("alone")
    for each in backs:
        each.say(f"run {KERNEL_US} 0")
    phase("default slicing, module loaded")
    for name, row in CLASSES.items():
        tell("mix", row=plain(link.class_set(name, **row)))
    tell("mix", ordered=[plain(link.sched_set(server.pid, "high"))]
         + [plain(link.sched_set(each.pid, "low")) for each in backs])  # fmt: skip
    phase("DetShare")
    for each in (server, *backs):
        link.sched_del(each.pid)
    phase("released")
    for each in (server, *backs):
        tell("mix", rest=each.ask("rest", "rest"))
        each.end()


def storm(spin: str) -> None:
    chance = random.Random(1)
    for _ in range(6):
        one = Spin(spin)
        one.say("run 500 0")
        time.sleep(chance.uniform(0, 0.3))
        tell("storm", ended=one.end())


def unload(spin: str, module: str) -> None:
    one = Spin(spin)
    one.say("run 500 5")
    time.sleep(0.5)
    for words in (["rmmod", "detshare"], ["insmod", module]):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        time.sleep(0.7)
        tell("unload", words=words[0], code=done.returncode, said=done.stderr.strip(),
             requests=sum(line["event"] == "request" for line in one.lines))  # fmt: skip
    with DetShare() as link:
        tell("unload", adopted=rows(link.vctx_get(one.pid)), status=plain(link.status_get()))
    tell("unload", rest=one.ask("rest", "rest"))
    one.end()


def main() -> None:
    spin, module, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    tell("begin", kernel=Path("/proc/version").read_text().strip())
    with DetShare() as link:
        step("memory", lambda: memory(link, spin))
        step("gate", lambda: hold(link, spin, {"gate": True, "pause": False}))
        step("pause", lambda: hold(link, spin, {"gate": False, "pause": True}))
        step("steer", lambda: steer(link, spin))
        step("storm", lambda: storm(spin))
        step("mix", lambda: mix(link, spin, seconds))
        tell("left", vctxs=rows(link.vctx_get()))
    step("unload", lambda: unload(spin, module))
    tell("end")


if __name__ == "__main__":
    main()
