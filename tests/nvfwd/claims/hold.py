# SPDX-License-Identifier: Apache-2.0
"""Gate and pause of a program that launches, and orders for its channel groups."""

from __future__ import annotations

import time

from claims.box import PID, Box, plain, rows, tell


def hold(box: Box, *, gate: bool) -> None:
    box.load()
    name = "gate" if gate else "pause"
    one = box.program("spin")
    one.ask("rate", "rate")
    one.say("run 500 5")
    time.sleep(1.5)
    asked = time.monotonic()
    answer = plain(box.link.hold_set(gate, not gate, lease_ms=20_000, kind=PID, pid=one.pid))
    held = time.monotonic()
    time.sleep(1.5)
    lines = [line["t"] for line in one.lines if line["event"] == "request"]
    tell(name, answer=answer, call_ms=1000 * (held - asked), run=rows(box.link.entity_get(one.pid)),
         before=sum(t < asked for t in lines), during=sum(asked <= t <= held for t in lines),
         after=sum(t > held + 0.01 for t in lines))  # fmt: skip
    let = time.monotonic()
    tell(name, released=plain(box.link.hold_del(kind=PID, pid=one.pid)), call_ms=1000 * (time.monotonic() - let))
    time.sleep(1.0)
    first = [line["t"] + line["us"] / 1e6 for line in one.lines if line["event"] == "request" and line["t"] > let]
    late = [line for line in one.lines if line["event"] == "request" and line["us"] > 1_000_000]
    tell(name, again=len(first), waited=late[:3], rest=one.ask("rest", "rest"), run=rows(box.link.entity_get(one.pid)))


def steer(box: Box) -> None:
    box.load()
    one = box.program("spin")
    one.ask("rate", "rate")
    one.say("run 500 0")
    time.sleep(1.0)
    tell("steer", tsgs=rows(box.link.tsg_get(one.pid)))
    for slice_us, level in ((1000, 2), (5000, 0), (2048, 1)):
        answer = plain(box.link.sched_set(one.pid, slice_us=slice_us, level=level))
        tell("steer", wanted=[slice_us, level], answer=answer)
    tell("steer", preempt=plain(box.link.preempt(kind=PID, pid=one.pid)), kernels=one.kernels())
    time.sleep(0.5)
    tell("steer", forgotten=plain(box.link.sched_del(one.pid)), tsgs=rows(box.link.tsg_get(one.pid)))
    tell("steer", rest=one.ask("rest", "rest"))
