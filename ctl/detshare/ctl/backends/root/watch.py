# SPDX-License-Identifier: Apache-2.0
"""Looking at the machine: who holds GPU descriptors, what was adopted of them, who shares what with whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from detshare.ctl.backends.desired import DesiredState
from detshare.ctl.backends.root import programs
from detshare.ctl.backends.root.adopt import Adopter, Adoption
from detshare.ctl.backends.root.journal import Journal
from detshare.ctl.backends.root.makers import Makers
from detshare.ctl.backends.root.peers import Peers
from detshare.ctl.core.driver import Driver, Opener, ProcessId, Usage
from detshare.ctl.core.snapshot import Kind, Level, Program, State, Tsg

SWEEP_S = 0.5
"""while no client comes or goes, /proc is swept this often"""
USAGE_S = 1.0


class Watch:
    """The last look. `adopter` is None on a driver whose branch is not in the tables: then nothing is asked."""

    def __init__(self, driver: Driver, adopter: Adopter | None, problem: str, clock: Callable[[], float]) -> None:
        self._driver = driver
        self._adopter = adopter
        self._makers = Makers(driver, adopter.abi) if adopter is not None else None
        self._peers = Peers(driver, adopter.abi) if adopter is not None else None
        self._problem = problem
        self._clock = clock
        self.openers: list[Opener] = []
        self.adoptions: dict[ProcessId, Adoption] = {}
        self.owner: dict[int, ProcessId] = {}
        self.groups: dict[ProcessId, programs.MpsGroup] = {}
        self._swept = float("-inf")
        self._clients = -1
        self.swept = False
        """the last refresh saw every process, so who is not among the openers holds nothing"""
        self._usage: tuple[float, Usage] = (float("-inf"), Usage())
        self._shared: frozenset[str] | None = None
        """GPUs (UUIDs) whose shares NVML is asked for, and those of `_usage`; None: all"""

    def refresh(self, fresh: bool = False) -> None:
        """Sweep /proc where something may have changed (always if `fresh`) and adopt. DriverError, OSError."""
        if self._adopter is None or self._makers is None or self._peers is None:
            self.openers = self._driver.openers()
            self.adoptions = {h.id: Adoption(understood=False, notes=(self._problem,)) for h in self.openers}
            return
        now, counts = self._clock(), self._driver.counts()
        self.swept = fresh or counts.clients != self._clients or now - self._swept >= SWEEP_S
        if self.swept:
            openers = self._driver.openers()
            self._swept, self._clients = now, counts.clients
        else:
            openers = [h for h in self.openers if self._driver.alive(h.id)]
        self.adoptions = self._adopter.refresh(openers, counts, fresh=fresh)
        self.openers = [h for h in openers if h.id in self.adoptions]
        self.owner = self._makers.owners(self.openers, self.adoptions, self._adopter.makers)
        self.groups = programs.mps_groups(self.openers, self.adoptions, self.owner)
        self._peers.look(self.openers, self.adoptions, self.owner)

    def stirs(self) -> bool:
        """Whether somebody came or went since the last sweep, or a program is to be read."""
        if self._adopter is None:
            return True
        counts = self._driver.counts()
        return counts.clients != self._clients or not self._adopter.settled(counts)

    def took(self, process: ProcessId, slices: dict[tuple[int, int], int]) -> None:
        """Slices were set, (client, TSG) -> microseconds: the view shows them without asking again."""
        adoption = self._adopter.changed(process, slices) if self._adopter is not None else None
        if adoption is not None and process in self.adoptions:
            self.adoptions[process] = adoption

    def owned(self, process: ProcessId) -> tuple[Tsg, ...]:
        """The TSGs that a process owns; a forked child reaches its parent's and owns none of them."""
        adoption = self.adoptions.get(process)
        return tuple(t for t in adoption.tsgs if self.owner.get(t.client) == process) if adoption else ()

    def head(self, process: ProcessId) -> ProcessId:
        """Whose TSG a process runs in: its MPS server's, where that can be seen, or its own."""
        group = self.groups.get(process)
        return group.server if group is not None and group.server is not None else process

    def compute_tsgs(self, processes: list[ProcessId], gpu: str) -> int:
        """How many compute TSGs some processes own on a GPU together."""
        return sum(t.kind is Kind.COMPUTE and t.gpu == gpu for p in processes for t in self.owned(p))

    def heirs(self, dead: ProcessId, clients: set[int]) -> dict[ProcessId, dict[int, int]]:
        """Living process -> {client: descriptor} of clients of a dead one that forked children still hold."""
        found: dict[ProcessId, dict[int, int]] = {}
        for process, adoption in self.adoptions.items():
            fds = {client: fd for fd, client in adoption.clients if client in clients}
            if fds and process != dead and process == self.owner.get(next(iter(fds))):
                found[process] = fds
        return found

    def shares(self, gpus: frozenset[str]) -> Mapping[tuple[int, str], float]:
        """(PID, GPU) -> share by NVML, of these GPUs at least. It is asked for no others until the next call."""
        if self._shared is not None and (missing := gpus - self._shared):
            more = self._driver.usage(missing)
            usage = replace(self._usage[1], gpu_share={**self._usage[1].gpu_share, **more.gpu_share})
            self._usage = self._usage[0], usage
        self._shared = gpus
        return self._usage[1].gpu_share

    def describe(
        self, desired_state: DesiredState, journal: Journal, level: Callable[[ProcessId, Tsg], Level | None]
    ) -> list[Program]:
        """Every opener as a program, in the order of `openers`."""
        now = self._clock()
        if now - self._usage[0] >= USAGE_S:
            self._usage = (now, self._driver.usage(self._shared))
        uuids = {gpu.minor: gpu.uuid for gpu in self._driver.gpus()}
        found = []
        for opener in self.openers:
            program = programs.build(
                opener,
                self.adoptions[opener.id],
                job=self._peers.of(opener.id) if self._peers is not None else "",
                owner=self.owner,
                group=self.groups.get(opener.id),
                desired=desired_state.get(opener.id),
                paused=opener.id in journal.paused,
                usage=self._usage[1],
                uuids=uuids,
                level=level,
            )
            found.append(program if self._adopter is not None else replace(program, state=State.READ_ONLY))
        return found
