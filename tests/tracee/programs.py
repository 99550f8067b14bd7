# SPDX-License-Identifier: Apache-2.0
"""Random programs for the tracee whose writes are known: commands, and for each the allocations that it writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

SIZES = (4096, 65536, 2 << 20)
HOWS = ("plain", "plain", "async", "pitch", "mapped")


@dataclass(frozen=True, slots=True)
class Step:
    """One command; `writes`: allocations by number; `waits`: everything submitted before has been written after it."""

    command: str
    writes: frozenset[int] = frozenset()
    waits: bool = False


@dataclass(slots=True)
class Maker:
    """Makes steps that are valid one after the other. `held` numbers live allocations, `sizes` has those of all."""

    random: random.Random
    held: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    hows: list[str] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    """what a graph writes may not be freed"""
    graph: frozenset[int] | None = None
    chases: bool = True
    """whether kernels may store through pointers that they find in memory"""

    def alloc(self) -> Step:
        size, how = self.random.choice(SIZES), self.random.choice(HOWS)
        self.held.append(len(self.sizes))
        self.sizes.append(size)
        self.hows.append(how)
        return Step(f"alloc {how} {size}")

    def free(self) -> list[Step]:
        free = [each for each in self.held if each not in self.pinned]
        if len(free) < 2:
            return [self.alloc()]
        chosen = self.random.choice(free)
        self.held.remove(chosen)
        return [Step("sync", waits=True), Step(f"free {chosen}")]

    def one(self) -> tuple[int, int]:
        """An allocation and an offset with room for 1 KiB behind it."""
        chosen = self.random.choice(self.held)
        return chosen, 4 * self.random.randrange((self.sizes[chosen] - 2048) // 4)

    def kernel(self) -> Step:
        way = self.random.choice(("plain", "ex", "extra", "coop"))
        a, at = self.one()
        b, bt = self.one()
        n, value = self.random.randrange(1, 200), self.random.randrange(1 << 31)
        kernels: list[Callable[[], tuple[str, set[int]]]] = [
            lambda: (f"fill @{a}+{at} w:{n} w:{value}", {a}),
            lambda: (f"transfer @{a}+{at} @{b}+{bt} w:{n}", {a}),
            lambda: (f"scatter s:@{b}+{bt},@{a}+{at},w:{n},w:{value}", {a}),
            lambda: (f"packed s:w:{value},@{a}+{at},w:{value}", {a}),
            lambda: (f"ignoring @{b}+{bt} @{a}+{at} w:{value}", {a}),
            lambda: (f"shifted @{a} q:{at} w:{value}", {a}),
            lambda: (f"bump @{a}+{at}", {a}),
            lambda: (f"look @{a}+{at} w:{n}", set()),
        ]
        if a == b:
            kernels.pop(1)  # source and target of one launch may not overlap
        words, writes = self.random.choice(kernels)()
        return Step(f"kernel {way} {words}", frozenset(writes))

    def chase(self) -> list[Step]:
        """A store through a pointer in memory; what is put there is host zeros, so a first kernel puts it there."""
        a, _ = self.one()
        b, _ = self.one()
        return [
            Step("sync", waits=True),
            Step(f"kernel plain point @{a} @{b}", frozenset({a})),
            Step(f"kernel plain chase @{a} w:7", frozenset({b})),
        ]

    def copy(self) -> Step:
        a, at = self.one()
        b, bt = self.one()
        size = 4 * self.random.randrange(1, 256)
        ways: list[tuple[str, set[int]]] = [
            (f"htod {a} {at} {size}", {a}),
            (f"dtoh {a} {at} {size}", set()),
            (f"any {a} {at} {size}", {a}),
            (f"set {a} {at} {size}", {a}),
            (f"set2d {a} 0 64 4 512", {a}),
            (f"word {a} {at}", {a}),
        ]
        if a != b:
            ways += [(f"dtod {a} {at} {b} {bt} {size}", {a}), (f"copy2d {a} 0 {b} 0 64 4 512", {a})]
        command, writes = self.random.choice(ways)
        return Step(command, frozenset(writes))

    def wait(self) -> Step:
        return Step("sync", waits=True)

    def graph_steps(self) -> list[Step]:
        if self.graph is None or self.random.random() < 0.3:
            inside = [self.kernel() for _ in range(self.random.randrange(1, 4))]
            self.graph = frozenset().union(*(each.writes for each in inside))
            self.pinned = set(self.held)  # nodes read too
            captured = [Step(each.command) for each in inside]
            return [Step("sync", waits=True), Step("capture"), *captured, Step("captured")]
        return [Step("sync", waits=True), Step("graph 2", self.graph), Step("sync", waits=True)]

    def step(self) -> list[Step]:
        """The next one or few."""
        chance = self.random.random()
        if len(self.held) < 3 or chance < 0.08:
            return [self.alloc()]
        if chance < 0.14:
            return self.free()
        if chance < 0.55:
            return [self.kernel()]
        if chance < 0.85:
            return [Step("sync", waits=True), self.copy(), Step("sync", waits=True)]
        if chance < 0.88 and self.chases:
            return self.chase()
        return self.graph_steps() if chance < 0.94 else [self.wait()]


def program(seed: int, epochs: int, chases: bool = True) -> list[list[Step]]:
    """Steps of so many epochs."""
    maker = Maker(random.Random(seed), chases=chases)
    found: list[list[Step]] = []
    for _ in range(epochs):
        steps: list[Step] = []
        for _ in range(maker.random.randrange(1, 12)):
            steps += maker.step()
        if maker.random.random() < 0.7:
            steps.append(maker.wait())
        found.append(steps)
    return found
