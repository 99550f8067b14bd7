# SPDX-License-Identifier: Apache-2.0
"""A program that plays tricks against what was ordered for it and against its neighbour, on the real driver.

Each trick is one program's calls through files of its own. What the driver says is told, what the module counted as
denied, and what became of both programs' kernels. All programs of a guest are one process to the host's driver, which
is therefore readier to share than it is on a machine.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from claims.box import PID, Box, Program, plain, rows, tell

GROUP, DEVICE, SUBDEVICE, SHARE, DOOR = 0xA06C, 0x80, 0x2080, 0x9067, 0xC661
CHANNELS = {0xC36F, 0xC46F, 0xC56F, 0xC86F, 0xC96F, 0xCA6F}
MEMORY = 0x40
NEW = 0xD0500000
WATCH_S, ANSWER_S, LATE_S = 0.3, 8.0, 3.0
MOST = 64
"""channels that one call names"""
Answer = dict[str, Any]


def words(*values: int) -> str:
    return struct.pack(f"<{len(values)}I", *values).hex()


def channels_off(client: int, channels: list[int], *, off: bool) -> str:
    """NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS."""
    some = channels[:MOST]
    clients = [client] * len(some) + [0] * (MOST - len(some))
    return words(int(off), len(some), 0, 0, 0, 0, *clients, *some, *[0] * (MOST - len(some)))


class Player:
    """A program with its objects' names. Its kernels are counted by themselves."""

    def __init__(self, box: Box, program: Program) -> None:
        self.box, self.program = box, program
        told = program.ask("objects", "objects")
        self.objects: list[list[int]] = told["objects"]
        self.tokens: list[list[int]] = told["tokens"]
        compute = [row for row in rows(box.link.tsg_get(program.pid)) if row.get("compute")]
        if not compute:
            raise RuntimeError(f"the module knows no compute group of {program.pid}")
        self.client, self.group = compute[0]["client"], compute[0]["handle"]
        self.channels = [
            made for client, parent, made, kind in self.objects
            if client == self.client and parent == self.group and kind in CHANNELS
        ]  # fmt: skip
        self.device, self.subdevice = self.of(DEVICE), self.of(SUBDEVICE)
        if not self.channels or not self.device or not self.subdevice:
            raise RuntimeError(f"libcuda's objects were not seen: {self.objects}")

    def of(self, kind: int) -> int:
        """Its first object of this class."""
        return next((made for client, _, made, each in self.objects if client == self.client and each == kind), 0)

    def control(self, client: int, thing: int, command: int, params: str) -> Answer:
        return self.program.ask(f"control {client} {thing} {command} {params}", "control", ANSWER_S)

    def own(self, thing: int, command: int, params: str) -> Answer:
        return self.control(self.client, thing, command, params)

    def ran(self) -> int:
        return int(self.program.ask("count", "count", ANSWER_S)["ran"])

    def slice_us(self) -> Any:
        return next((row.get("slice_us") for row in rows(self.box.link.tsg_get(self.program.pid))
                     if row["handle"] == self.group), None)  # fmt: skip


Act = Callable[[Player, Player], list[Answer]]


@dataclass(frozen=True)
class Trick:
    name: str
    goal: str
    """order: undo what was ordered; neighbour: hurt it; share: have what it has; tell: learn of it; run: run while
    paused; door: the same while gated"""
    play: Act
    undo: Act | None = None
    waits: str = ""
    """the answer that may only come when the program is no longer held"""


def _dup(kind: str) -> Act:
    def play(me: Player, other: Player) -> list[Answer]:
        thing = {"group": other.group, "channel": other.channels[0], "memory": other.of(MEMORY),
                 "door": other.of(DOOR), "share": other.of(SHARE)}[kind]  # fmt: skip
        if not thing:
            raise LookupError(f"the neighbour has no {kind}")
        parent = me.subdevice if kind == "door" else me.group if kind in ("channel", "share") else me.device
        return [me.program.ask(f"dup {me.client} {parent} {NEW} {other.client} {thing}", "dup", ANSWER_S)]

    return play


def _undup(me: Player, _: Player) -> list[Answer]:
    return [me.program.ask(f"free {me.client} {me.device} {NEW}", "free", ANSWER_S)]


def _off(me: Player, other: Player) -> list[Answer]:
    return [me.own(me.subdevice, 0x2080110B, channels_off(other.client, other.channels, off=True))]


def _on(me: Player, other: Player) -> list[Answer]:
    return [me.own(me.subdevice, 0x2080110B, channels_off(other.client, other.channels, off=False))]


def _resume(me: Player, _: Player) -> list[Answer]:
    """Several times: pauses nest."""
    return [me.own(me.subdevice, 0x2080110B, channels_off(me.client, me.channels, off=False)) for _ in range(3)]


def _reschedule(me: Player, _: Player) -> list[Answer]:
    me.program.say(f"aside control {me.client} {me.group} {0xA06C0101} 010000")
    return []


def _doors(me: Player, _: Player) -> list[Answer]:
    """A mapping for each channel of the group; a store that is held says no more."""
    tokens = [token for client, channel, token in me.tokens if client == me.client and channel in me.channels]
    return [me.program.ask(f"door {token}", "door", ANSWER_S) for token in tokens[:8]]


TRICKS = (
    Trick("own-slice", "order", lambda me, _: [me.own(me.group, 0xA06C0103, struct.pack("<Q", 50_000).hex())]),
    Trick("own-level", "order", lambda me, _: [me.own(me.group, 0xA06C0107, words(2))]),
    Trick("realtime", "order", lambda me, _: [me.own(me.group, 0xA06C0110, "01")]),
    Trick("preempt", "order", lambda me, _: [me.own(me.group, 0xA06C0105, words(0, 0))]),
    Trick("slice-property", "order",
          lambda me, _: [me.own(me.device, 0x0080170F, words(me.channels[0], 0, 50_000, 0))]),
    Trick("no-slice", "order", lambda me, _: [me.own(me.device, 0x0080170F, words(me.channels[0], 2, 1, 0))]),
    Trick("policy", "order", lambda me, _: [me.own(me.subdevice, 0x20801115, words(0, 0))]),
    Trick("restart-runlist", "order", lambda me, _: [me.own(me.channels[0], 0xA06F0111, "0100")]),
    Trick("wfi", "order", lambda me, _: [me.own(me.subdevice, 0x20801210, words(1, me.group, 0, 0, 0, 0, 0, 0))]),
    Trick("other-off", "neighbour", _off, _on),
    Trick("other-slice", "neighbour",
          lambda me, other: [me.control(other.client, other.group, 0xA06C0103, struct.pack("<Q", 100).hex())]),
    Trick("other-schedule", "neighbour",
          lambda me, other: [me.control(other.client, other.group, 0xA06C0101, "000000")],
          lambda me, other: [me.control(other.client, other.group, 0xA06C0101, "010000")]),
    Trick("other-idle", "neighbour",
          lambda me, other: [me.program.ask(
              f"idle {me.client} {me.device} {other.client} {other.channels[0]} 1000", "idle", ANSWER_S)]),
    Trick("other-numbers", "tell",
          lambda me, other: [me.own(me.subdevice, 0x20801123, words(other.client, other.group, *[0] * 386))]),
    Trick("other-channel-numbers", "tell",
          lambda me, other: [me.own(me.subdevice, 0x20801124, words(
              other.client, *[0] * 127, other.channels[0], *[0] * 127, 1, *[0] * 128))]),
    Trick("dup-group", "share", _dup("group"), _undup),
    Trick("dup-channel", "share", _dup("channel"), _undup),
    Trick("dup-share", "share", _dup("share"), _undup),
    Trick("dup-door", "share", _dup("door"), _undup),
    Trick("dup-memory", "share", _dup("memory"), _undup),
    Trick("reschedule", "run", _reschedule, waits="control"),
    Trick("resume", "run", _resume),
    Trick("second-door", "door", _doors),
    Trick("other-wfi", "neighbour", lambda me, other: [me.own(
        me.subdevice, 0x20801211, words(1, other.client, other.group, 0, *[0] * 18, 0, 0, 0, 0, 0, 0))]),
)  # fmt: skip


def denials(box: Box, pid: int) -> int:
    return sum(row.get("count", 0) for row in rows(box.link.denied_get(pid)))


def play(box: Box, trick: Trick, me: Player, other: Player, step: str) -> None:
    account = {"kind": PID, "pid": me.program.pid}
    held = trick.goal in ("run", "door")
    if held:
        answer = plain(box.link.hold_set(trick.goal == "door", trick.goal == "run", lease_ms=20_000, **account))
        time.sleep(0.1)
    else:
        answer = plain(box.link.sched_set(me.program.pid, slice_us=1000, level=1))
    slice_us, denied = me.slice_us(), denials(box, me.program.pid)
    mine, theirs, begun = me.ran(), other.ran(), time.monotonic()
    said = len(me.program.lines)
    answers = trick.play(me, other)
    time.sleep(WATCH_S)
    end = time.monotonic()
    seen = {"ran": me.ran() - mine, "neighbour_ran": other.ran() - theirs, "seconds": end - begun,
            "slice_us": [slice_us, me.slice_us()], "denied": denials(box, me.program.pid) - denied}  # fmt: skip
    undone = []
    if trick.undo is not None and any(not each["errno"] and not each["status"] for each in answers):
        undone = trick.undo(me, other)
    if held:
        box.link.hold_del(**account)
    else:
        box.link.sched_del(me.program.pid)
    if trick.waits:
        answers = [me.program.wait(trick.waits, said, LATE_S)]
    later = other.ran(), me.ran()
    time.sleep(WATCH_S)
    tell(step, trick=trick.name, goal=trick.goal, ordered=answer, answers=answers, undone=undone, **seen,
         neighbour_after=other.ran() - later[0], own_after=me.ran() - later[1])  # fmt: skip


def lost(player: Player) -> Answer:
    player.program.say("stop")
    time.sleep(0.5)
    return player.program.ask("count", "count", ANSWER_S)


def hostile(box: Box, *, filtered: bool) -> None:
    step = "hostile" if filtered else "hostile-unfiltered"
    box.load(filtered=filtered)
    tell(step, status=plain(box.link.status_get()))

    def begin() -> list[Player]:
        me, other = (Player(box, each) for each in box.start("tricks", 2))
        for each in (other, me):
            each.program.ask("run 500 5", "runs")
        # what belongs to somebody of whom nothing is ordered is as open as the driver leaves it
        box.link.sched_set(other.program.pid, slice_us=2048, level=1)
        return [me, other]

    me, other = begin()
    for trick in TRICKS:
        try:
            play(box, trick, me, other, step)
            if other.program.process.poll() is None and me.program.process.poll() is None and not _stuck(me, other):
                continue
            tell(step, trick=trick.name, stuck=[each.program.process.poll() for each in (me, other)])
        except Exception as error:  # noqa: BLE001  the next trick is another
            tell(step, trick=trick.name, broke=f"{type(error).__name__}: {error}",
                 ends=[each.program.process.poll() for each in (me, other)])  # fmt: skip
        Program.end_all()
        me, other = begin()
    tell(step, neighbour=lost(other), own=lost(me))


def _stuck(*players: Player) -> bool:
    before = [each.ran() for each in players]
    time.sleep(0.1)
    return any(each.ran() == ran for each, ran in zip(players, before, strict=True))
