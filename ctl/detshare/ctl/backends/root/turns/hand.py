# SPDX-License-Identifier: Apache-2.0
"""The mechanism of turns: compute channels of programs switched off and on, two controls a turn.

What may be off stands in the journal before it is off. A descriptor is duplicated for the length of one call only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.root.journal import Journal, Paused
from detshare.ctl.backends.root.undo import resume
from detshare.ctl.core.driver import DescriptorGone, Driver, DriverError, ProcessGone, ProcessId
from detshare.ctl.core.snapshot import Tsg
from detshare.ctl.rm.client import RmClient, RmError


class Hand:
    """Switches programs of one driver. Not for two threads at once."""

    def __init__(self, driver: Driver, abi: Abi, journal: Journal) -> None:
        self._driver, self._abi, self._journal = driver, abi, journal
        # what an earlier daemon let wait and nobody could put back
        self._off = {process: list(facts) for process, facts in journal.turned.items()}
        self.calls = 0

    def is_off(self, process: ProcessId) -> bool:
        """Whether something of a program is off because of its turn."""
        return process in self._off

    @property
    def waiting(self) -> frozenset[ProcessId]:
        """Programs of which something is off."""
        return frozenset(self._off)

    def off(self, process: ProcessId, tsgs: Iterable[Tsg]) -> None:
        """Let a program wait: each of its compute channels that is not off yet. RmError, DriverError, OSError."""
        already = {(p.client, c) for p in self._off.get(process, ()) for c in p.channels}
        groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for tsg in tsgs:
            groups[tsg.fd, tsg.client, tsg.subdevice] += [c for c in tsg.channels if (tsg.client, c) not in already]
        facts = [Paused(*process, fd, client, subdevice, tuple(channels))
                 for (fd, client, subdevice), channels in groups.items() if channels]  # fmt: skip
        self._journal.may_turn(process, facts)
        for fact in facts:
            with self._driver.borrow(process, fact.fd) as descriptor:
                self.calls += 1
                # before the call: a call that fails in its midst may have switched some of them
                self._off.setdefault(process, []).append(fact)
                RmClient(descriptor, self._abi, fact.client).switch_channels(fact.subdevice, fact.channels, run=False)

    def on(self, process: ProcessId) -> None:
        """Let a program run. What the driver refuses is tried one by one, and raised after the rest was done."""
        refused: Exception | None = None
        for fact in self._off.pop(process, []):
            try:
                self._on(fact)
            except (ProcessGone, DescriptorGone):
                with suppress(RmError, DriverError, OSError):  # a forked child may hold what it made
                    resume(self._driver, self._abi, fact)
            except (RmError, DriverError, OSError) as error:
                refused = error
                self._off.setdefault(process, []).append(fact)
        if refused is not None:
            raise refused

    def _on(self, fact: Paused) -> None:
        self.calls += 1
        try:
            with self._driver.borrow(fact.process, fact.fd) as descriptor:
                RmClient(descriptor, self._abi, fact.client).switch_channels(fact.subdevice, fact.channels, run=True)
        except RmError:  # a channel was freed meanwhile
            resume(self._driver, self._abi, fact)

    def leave(self, process: ProcessId) -> None:
        """A program takes no part any more: it runs, and the journal forgets that it may be off."""
        self.on(process)
        self._journal.never_turns(process)

    def idle(self, process: ProcessId, tsgs: Iterable[Tsg]) -> bool | None:
        """Whether nothing of these TSGs is left to run; None where the driver does not say. Takes a millisecond."""
        found: bool | None = None
        for tsg in tsgs:
            try:
                with self._driver.borrow(process, tsg.fd) as descriptor:
                    self.calls += 1
                    rests = RmClient(descriptor, self._abi, tsg.client).idle(tsg.device, tsg.channels)
            except (RmError, DriverError, OSError):
                return None
            if rests is not True:
                return rests
            found = True
        return found

    def idle_all(self, programs: Iterable[tuple[ProcessId, Iterable[Tsg]]]) -> bool | None:
        """The same of several; None of none."""
        found: bool | None = None
        for process, tsgs in programs:
            rests = self.idle(process, tsgs)
            if rests is not True:
                return rests
            found = True
        return found
