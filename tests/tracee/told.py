# SPDX-License-Identifier: Apache-2.0
"""A random program of the tracee, epoch by epoch: what it may have written, and what an observer says of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.epochs import Epoch
from tests.tracee.programs import Step
from tests.tracee.tracee import Tracee


@dataclass(frozen=True)
class Told:
    """One epoch. Sets of addresses; `written`: of living allocations, with what nobody has waited for yet."""

    steps: list[Step]
    written: set[int]
    living: set[int]
    found: Epoch

    @property
    def missed(self) -> set[int]:
        """Written and not reported: must be empty."""
        return self.written - {each.address for each in self.found.dirty}

    @property
    def written_bytes(self) -> int:
        sizes = {each.address: each.size for each in self.found.allocations}
        return sum(sizes.get(address, 0) for address in self.written)


def epochs(tracer: DirtyTracer, tracee: Tracee, program: Iterable[list[Step]]) -> Iterator[Told]:
    """Lets the tracee do what a program says, an epoch at a time, and asks what was seen of it."""
    pending: set[int] = set()
    dead: set[int] = set()
    for steps in program:
        expected = set(pending)
        for step in steps:
            tracee.say(step.command)
            tracer.poll()
            expected |= step.writes
            pending = set() if step.waits else pending | step.writes
            if step.command.startswith("free"):
                dead.add(int(step.command.split()[1]))
        found = tracer.end_epoch(tracee.pid)
        living = {address for number, address in enumerate(tracee.addresses) if number not in dead}
        yield Told(steps, {tracee.addresses[number] for number in expected - dead}, living, found)
