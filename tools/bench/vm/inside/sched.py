# SPDX-License-Identifier: Apache-2.0
"""The module as a scheduler, on the simulated GPU: what the experiment `sched` measures, part by part."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from detshare.ctl.netlink import genl
from detshare.tools.bench.vm.inside import guest
from detshare.tools.bench.vm.inside.workers import Worker, attributes, family, held, run_of, workers

LC = ("nvlatency", "--us", 500, "--period-ms", 10, "--quiet")
ENDLESS = ("nvbackground", "--endless", "--quiet")
BUSY = ("nvbackground", "--us", 2000, "--depth", 64, "--quiet")
SELDOM = ("nvbackground", "--us", 50_000, "--depth", 1, "--quiet")
SLICE_LOW, SLICE_HIGH = 50, 20_000
DEADLINE_US = 5000  # above what the high class needs: a pause costs more than the short slices of the low class do
HASTY_US = 1000  # where pauses are to be seen
LINGER_US = 200  # who is at work is known; this is only the pause between two launches that is no rest
REST_US = 1000  # as the target of faults has it
SETTLE = 1.0
BURST, REST_MS = 100, 6
KICKS = "/sys/kernel/debug/nvsim/gpu0/kicks"


def _classes(
    link: genl.DetShare, floor: int | None = None, linger: int = LINGER_US, deadline: int = DEADLINE_US
) -> None:
    link.class_set("high", 10, slice_us=SLICE_HIGH, level=genl.DETSHARE_LEVEL_HIGH, linger_us=linger)
    link.class_set(
        "low", 1, slice_us=SLICE_LOW, level=genl.DETSHARE_LEVEL_LOW, deadline_us=deadline, floor_permille=floor
    )


def latency(seconds: float) -> None:
    """A high-class program alone, and beside a low-class one with endless kernels."""
    for scheme in ("alone", "no module", "slices", "classes"):
        guest.unload() if scheme == "no module" else guest.load()
        commands = (LC,) if scheme == "alone" else (LC, ENDLESS)
        with workers(*commands) as members:
            if scheme in ("slices", "classes"):
                with family() as link:
                    _steer(link, members, scheme)
                    _measure_latency(scheme, seconds, members)
            else:
                _measure_latency(scheme, seconds, members)
    guest.load()
    with workers(ENDLESS) as (low,), family() as link:
        for _ in range(40):
            answer = attributes(link.hold_set(True, True, 5000, **low.subject))
            guest.say(event="pause", pause_ns=answer.get("pause_ns"), gate_ns=answer.get("gate_ns"))
            link.hold_del(**low.subject)
            time.sleep(0.02)


def _steer(link: genl.DetShare, members: list[Worker], scheme: str, deadline: int = DEADLINE_US) -> None:
    high, low = members
    if scheme == "slices":
        link.sched_set(high.pid, slice_us=SLICE_HIGH, level=genl.DETSHARE_LEVEL_HIGH)
        link.sched_set(low.pid, slice_us=SLICE_LOW, level=genl.DETSHARE_LEVEL_LOW)
    else:
        _classes(link, deadline=deadline)
        link.sched_set(high.pid, "high")
        link.sched_set(low.pid, "low")


def _measure_latency(scheme: str, seconds: float, members: list[Worker]) -> None:
    time.sleep(SETTLE)
    begin = time.monotonic()
    used = held(seconds, *members)
    span = time.monotonic() - begin
    summary = members[0].summary()
    terms = {"slice_low_us": SLICE_LOW, "deadline_us": DEADLINE_US, "linger_us": LINGER_US}
    guest.say(**summary | terms | {"event": "latency", "scheme": scheme, "span": span, "used_us": used})


def shares(seconds: float) -> None:
    """Weights, with equal and unequal numbers of channel groups; and without the module. Endless kernels want the GPU
    whether or not the guest's CPUs are busy."""
    for groups in ((1, 1), (4, 1)):
        guest.unload()
        commands = [(*ENDLESS, "--tsgs", count) for count in groups]
        with workers(*commands) as members:
            time.sleep(SETTLE)
            guest.say(event="shares", weights=None, groups=groups, used_us=held(seconds / 2, *members))
    guest.load()
    for weights in ((1, 3), (1, 16)):
        for groups in ((1, 1), (4, 1), (1, 4)):
            commands = [(*ENDLESS, "--tsgs", count) for count in groups]
            with workers(*commands) as members, family() as link:
                for member, weight in zip(members, weights, strict=True):
                    link.sched_set(member.pid, weight=weight)
                time.sleep(SETTLE)
                guest.say(event="shares", weights=weights, groups=groups, used_us=held(seconds, *members))


def buckets(seconds: float) -> None:
    """GPU time for a second of time, of programs that launch often, after their linger time is over, and only once.

    From one moment at which the bucket got empty to another.
    """
    guest.load()
    for kernels, command in (("kernels of 2 ms", BUSY), ("kernels of 50 ms", SELDOM), ("endless kernels", ENDLESS)):
        for permille in (100, 300, 700):
            with workers(command) as (member,), family() as link:
                link.bucket_set(permille * 1000, 20_000, **member.subject)
                time.sleep(SETTLE)
                begin, before = _emptied(link, member)
                time.sleep(seconds)
                end, after = _emptied(link, member)
                span, used = end - begin, after - before
                guest.say(event="bucket", kernels=kernels, permille=permille, used_us=used, span=span)


def _emptied(link: genl.DetShare, member: Worker) -> tuple[float, int]:
    """Time and GPU time when its bucket gets empty next, or after two seconds in which it does not."""

    def often() -> int:
        (told,) = (attributes(message) for message in link.bucket_get())
        return int(told["emptied"])

    before, end = often(), time.monotonic() + 2
    while often() == before and time.monotonic() < end:
        time.sleep(0.001)
    return time.monotonic(), member.gpu_us()


def idle(seconds: float) -> None:
    """Page faults of a doorbell: rung without rest, by a program without class, then with one; and in bursts."""
    guest.load()
    with workers(("nvbackground", "--us", 5000, "--depth", 4, "--quiet")) as (low,), family() as link:
        for what in ("unmanaged", "managed", "bursts"):
            if what == "managed":
                _classes(link, linger=REST_US)
                link.sched_set(low.pid, "low")
            words = ("--burst", BURST, "--idle-ms", REST_MS) if what == "bursts" else ()
            with workers(("nvkick", "--seconds", 3600, *words)) as (member,):
                if what != "unmanaged":
                    link.sched_set(member.pid, "high")
                time.sleep(SETTLE)
                first, kicks = run_of(link, member), member.kicks()
                time.sleep(seconds)
                # the later count of rings, so that a fault between the two is not put down to fewer rings
                last, kicks = run_of(link, member), member.kicks() - kicks
                faults = last["faults"] - first["faults"]
                caught, terms = last["kicks"] - first["kicks"], {"burst": BURST, "rest_ms": REST_MS}
                guest.say(event="idle", what=what, kicks=kicks, faults=faults, caught=caught, **terms)


def gates(rounds: int) -> None:
    """Threads that ring without rest while their own gate is shut and opened."""
    guest.load()
    words = ("--rounds", rounds, "--threads", 2, "--shut-us", 500, "--open-us", 500, "--kicks", KICKS)
    process = guest.start("nvflap", *words)
    out, _ = process.communicate()
    if not out:
        raise guest.GuestError(f"nvflap ended with {process.returncode} and no figures")
    guest.say(**json.loads(out) | {"event": "gates"})


def events(seconds: float) -> None:
    """How late a launch after a rest, and what follows from it, is told to a program that listens."""
    guest.load()
    commands = (("nvlatency", "--us", 500, "--period-ms", 100, "--quiet"), BUSY)
    with workers(*commands) as (high, low), family() as link:
        _steer(link, [high, low], "classes", deadline=HASTY_US)
        ears = [guest.start("nvlisten", "--group", group, "--seconds", seconds) for group in ("activity", "events")]
        late: dict[str, list[float]] = {}
        for ear in ears:
            out, _ = ear.communicate()
            if ear.returncode:
                raise guest.GuestError(f"nvlisten ended with {ear.returncode}")
            for told in map(json.loads, out.splitlines()):
                if "received" in told:
                    late.setdefault(told["event"], []).append((told["received"] - told["time"]) / 1e3)
        guest.say(event="events", late_us=late)


def floors(seconds: float) -> None:
    """Beside a higher class that never rests."""
    guest.load()
    for floor in (None, 100, 300):
        with workers(BUSY, ENDLESS) as (high, low), family() as link:
            _classes(link, floor, linger=100_000, deadline=HASTY_US)
            link.sched_set(high.pid, "high")
            link.sched_set(low.pid, "low")
            time.sleep(SETTLE)
            begin = time.monotonic()
            longest, moved, last = 0.0, begin, low.gpu_us()
            first = (high.gpu_us(), last)
            while (now := time.monotonic()) - begin < seconds:
                value = low.gpu_us()
                if value != last:
                    longest, moved, last = max(longest, now - moved), now, value
                time.sleep(0.002)
            longest = max(longest, time.monotonic() - moved)
            used = [high.gpu_us() - first[0], low.gpu_us() - first[1]]
            guest.say(event="floor", permille=floor, used_us=used, span=time.monotonic() - begin, longest_s=longest)


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: sched --seconds 10 --parts shares,buckets")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one measurement")
    parser.add_argument("--parts", default="latency,shares,buckets,idle,gates,events,floors")
    asked = parser.parse_args()
    seconds = asked.seconds
    parts: dict[str, Callable[[], None]] = {
        "latency": lambda: latency(seconds),
        "shares": lambda: shares(seconds),
        "buckets": lambda: buckets(seconds),
        "idle": lambda: idle(seconds),
        "gates": lambda: gates(int(seconds * 50)),
        "events": lambda: events(seconds),
        "floors": lambda: floors(seconds / 2),
    }
    for name in asked.parts.split(","):
        guest.say(event="part", name=name)
        parts[name]()
    guest.say(event="left", used=guest.used(), **guest.settled(5.0))


if __name__ == "__main__":
    guest.main(_body)
