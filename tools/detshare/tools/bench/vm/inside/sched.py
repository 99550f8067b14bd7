# SPDX-License-Identifier: Apache-2.0
"""The module as a scheduler, on the simulated GPU: what the experiment `sched` measures, part by part."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable

from detshare.ctl.netlink import genl
from detshare.tools.bench.stats import percentile
from detshare.tools.bench.vm.inside import guest, mix
from detshare.tools.bench.vm.inside.workers import Spell, Worker, attributes, family, held, reading, run_of, workers

LC = ("nvlatency", "--us", 500, "--period-ms", 10, "--quiet", "--each")
ENDLESS = ("nvbackground", "--endless", "--quiet")
BUSY = ("nvbackground", "--us", 2000, "--depth", 64, "--quiet")
SELDOM = ("nvbackground", "--us", 50_000, "--depth", 1, "--quiet")
SLICE_LOW, SLICE_HIGH = 50, 20_000
SLICE_EVEN = 1000
TURN_US = 100_000
SHORT_TURN_US = 20_000  # where many are to be seen
SETTLE = 1.0
SCHEMES = ("alone", "no module", "slices", "turns")
ROUNDS = 4  # of all schemes, by turns
SETTLE_ROUND = 0.5  # only what begins later counts
PAUSES = 40  # in each round
HELD, LET_GO = 0.01, 0.03  # seconds, where holds are to be seen
BURST, REST_MS = 100, 6
EVENTS = ("kick", "quiet", "gated", "opened", "paused", "resumed")
KICKS = "/sys/kernel/debug/nvsim/gpu0/kicks"


def _classes(link: genl.DetShare, floor: int | None = None, turn: int = TURN_US) -> None:
    link.class_set("high", slice_us=SLICE_HIGH, level=genl.DETSHARE_LEVEL_HIGH)
    low = genl.DETSHARE_LEVEL_LOW
    link.class_set("low", slice_us=SLICE_LOW, level=low, floor_permille=floor, turn_us=turn)


def latency(seconds: float) -> None:
    """A high-class program alone, and beside a low-class one with endless kernels: by turns, so that a slow moment of
    the host is nobody's in particular."""
    for turn in range(ROUNDS):
        for scheme in (*SCHEMES[turn:], *SCHEMES[:turn]):
            guest.unload() if scheme == "no module" else guest.load()
            commands = (LC,) if scheme == "alone" else (LC, ENDLESS)
            with workers(*commands) as members, contextlib.ExitStack() as orders:
                if scheme in ("slices", "turns"):
                    _steer(orders.enter_context(family()), members, scheme)
                time.sleep(SETTLE_ROUND)
                spell = held(seconds / ROUNDS, *members)
                members[0].summary()
                _say_latency(scheme, turn, spell, members[0])
        guest.load()
        _pauses()
    _switches()


def _say_latency(scheme: str, turn: int, spell: Spell, high: Worker) -> None:
    """What it launched in that time."""
    (each,) = (line["each"] for line in high.lines if line["event"] == "each")
    mine = [(seen, gpu) for at, seen, gpu in each if spell.begin <= at < spell.end]
    if not mine:
        raise guest.GuestError(f"latency, {scheme}: the program launched nothing in {spell.span:.1f} s")
    seen = [us for us, _ in mine]
    guest.say(
        event="latency",
        scheme=scheme,
        round=turn,
        span=round(spell.span, 6),
        used_us=spell.used_us,
        p50_us=percentile(seen, 50),
        p99_us=percentile(seen, 99),
        gpu_us=sorted(round(us) for _, us in mine),
        slice_low_us=SLICE_LOW,
    )


def _pauses() -> None:
    with workers(ENDLESS) as (low,), family() as link:
        took: dict[str, list[int | None]] = {"pause_ns": [], "gate_ns": []}
        for _ in range(PAUSES):
            answer = attributes(link.hold_set(True, True, 5000, **low.subject))
            for name, values in took.items():
                values.append(answer.get(name))
            link.hold_del(**low.subject)
            time.sleep(0.005)
        guest.say(event="pauses", **took)


def _switches() -> None:
    """Two endless programs in equal slices: what neither of them gets is spent on switches."""
    with workers(ENDLESS, ENDLESS) as members, family() as link:
        for member in members:
            link.sched_set(member.pid, slice_us=SLICE_EVEN)
        time.sleep(SETTLE_ROUND)
        spell = held(1.0, *members)
        guest.say(event="switches", slice_us=SLICE_EVEN, span=round(spell.span, 6), used_us=spell.used_us)


def _steer(link: genl.DetShare, members: list[Worker], scheme: str) -> None:
    high, low = members
    if scheme == "slices":
        link.sched_set(high.pid, slice_us=SLICE_HIGH, level=genl.DETSHARE_LEVEL_HIGH)
        link.sched_set(low.pid, slice_us=SLICE_LOW, level=genl.DETSHARE_LEVEL_LOW)
    else:
        _classes(link)
        link.sched_set(high.pid, "high")
        link.sched_set(low.pid, "low")


def shares(seconds: float) -> None:
    """Weights, with equal and unequal numbers of channel groups; and without the module. Endless kernels want the GPU
    whether or not the guest's CPUs are busy."""
    for groups in ((1, 1), (4, 1)):
        guest.unload()
        commands = [(*ENDLESS, "--tsgs", count) for count in groups]
        with workers(*commands) as members:
            time.sleep(SETTLE)
            _say_shares(None, groups, held(seconds / 2, *members))
    guest.load()
    for weights in ((1, 3), (1, 16)):
        for groups in ((1, 1), (4, 1), (1, 4)):
            commands = [(*ENDLESS, "--tsgs", count) for count in groups]
            with workers(*commands) as members, family() as link:
                for member, weight in zip(members, weights, strict=True):
                    link.sched_set(member.pid, weight=weight)
                time.sleep(SETTLE)
                _say_shares(weights, groups, held(seconds, *members))


def _say_shares(weights: tuple[int, int] | None, groups: tuple[int, int], spell: Spell) -> None:
    span = round(spell.span, 6)
    guest.say(event="shares", weights=weights, groups=groups, used_us=spell.used_us, span=span)


def buckets(seconds: float) -> None:
    """GPU time for a second of time, of programs that launch often, after a rest, and only once.

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
    at, (used,) = reading(member)
    return at, used


def idle(seconds: float) -> None:
    """Page faults of a doorbell: rung without rest, by a program without class, then with one; and in bursts."""
    guest.load()
    with workers(("nvbackground", "--us", 5000, "--depth", 4, "--quiet")) as (low,), family() as link:
        for what in ("unmanaged", "managed", "bursts"):
            if what == "managed":
                _classes(link)
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
    """How late a launch after a rest, a turn that passes, and a hold by order are told to a program that listens."""
    guest.load()
    seconds = max(3.0, seconds)
    high = ("nvlatency", "--us", 500, "--period-ms", 100, "--quiet")
    with workers(high, BUSY, BUSY, BUSY) as members, family() as link:  # the last one has no class
        _classes(link, turn=SHORT_TURN_US)
        for member, name in zip(members, ("high", "low", "low"), strict=False):
            link.sched_set(member.pid, name)
        heard = [guest.start("nvlisten", "--group", group, "--seconds", seconds) for group in ("activity", "events")]
        while any(listener.poll() is None for listener in heard):
            link.hold_set(True, False, 5000, **members[-1].subject)
            time.sleep(HELD)
            link.hold_del(**members[-1].subject)
            time.sleep(LET_GO)
        late: dict[str, list[int]] = {}
        for listener in heard:
            out, _ = listener.communicate()
            if listener.returncode:
                raise guest.GuestError(f"nvlisten ended with {listener.returncode}")
            for told in map(json.loads, out.splitlines()):
                if "received" in told:
                    late.setdefault(told["event"], []).append(round((told["received"] - told["time"]) / 1e3))
        guest.say(event="events", expected=EVENTS, late_us=late)


def floors(seconds: float) -> None:
    """Beside a higher class that never rests."""
    guest.load()
    for floor in (None, 100, 300):
        with workers(BUSY, ENDLESS) as (high, low), family() as link:
            _classes(link, floor)
            link.sched_set(high.pid, "high")
            link.sched_set(low.pid, "low")
            time.sleep(SETTLE)
            first = now = moved = reading(high, low)
            longest = 0.0
            while now.at - first.at < seconds:
                time.sleep(0.002)
                now = reading(high, low)
                longest = max(longest, now.at - moved.at)
                if now.used_us[1] != moved.used_us[1]:
                    moved = now
            used = [last - was for last, was in zip(now.used_us, first.used_us, strict=True)]
            guest.say(event="floor", permille=floor, used_us=used, span=now.at - first.at, longest_s=longest)


def _body() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: sched --seconds 10 --parts shares,buckets")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one measurement")
    parser.add_argument("--parts", default="latency,shares,buckets,idle,gates,events,floors,mixes")
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
        "mixes": lambda: mix.measure(seconds / 2),
    }
    for name in asked.parts.split(","):
        guest.say(event="part", name=name)
        parts[name]()
    guest.say(event="left", used=guest.used(), **guest.settled(5.0))


if __name__ == "__main__":
    guest.main(_body)
