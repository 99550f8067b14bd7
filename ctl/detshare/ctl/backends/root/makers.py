# SPDX-License-Identifier: Apache-2.0
"""Whose an RM client is: of the process that made it, whoever else holds duplicates of its descriptor.

The driver keeps the maker of each client and names the makers of all objects of a class (GPU_GET_PIDS), by process and
not by client. So: of those who reach a client, its maker is the one that is named; where several are, the one that has
another client which the driver says is of the same process, or that has no such objects in a client of its own, for
which it would be named. A client whose maker has ended belongs to a child that it left and that still holds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.root.adopt import Adoption
from detshare.ctl.core.driver import Driver, DriverError, Opener, ProcessId
from detshare.ctl.core.snapshot import Kind, Tsg
from detshare.ctl.rm.client import RmClient, RmError

_MOST_PARENTS = 65536


@dataclass(frozen=True, slots=True)
class _Case:
    """A client and the processes that reach it, eldest first."""

    client: int
    reach: tuple[Opener, ...]
    tsgs: tuple[tuple[ProcessId, Tsg], ...]
    """its TSGs, each with a process through which it is reached"""


class Makers:
    """What was found of living clients; each is asked about once, and again when others reach it."""

    def __init__(self, driver: Driver, abi: Abi) -> None:
        self._driver = driver
        self._abi = abi
        self._known: dict[int, tuple[tuple[ProcessId, ...], ProcessId]] = {}
        """client -> who reached it when it was decided whose it is"""
        self._parents: dict[ProcessId, int] = {}
        """as they were first seen: who loses its parent gets another"""
        self._classes: dict[str, int] = {}
        """GPU UUID -> class of its compute objects"""

    def owners(
        self, openers: Sequence[Opener], adoptions: Mapping[ProcessId, Adoption], born: Mapping[int, int]
    ) -> dict[int, ProcessId]:
        """Client -> the process it belongs to; without those of which that cannot be said yet.

        `born`: client -> PID of who was seen making it.
        """
        self._remember_parents(openers)
        cases = _cases(openers, adoptions)
        found: dict[int, ProcessId] = {}
        asked: dict[tuple[str, int], frozenset[int]] = {}
        for case in cases.values():
            reach = tuple(opener.id for opener in case.reach)
            known = self._known.get(case.client)
            if known is not None and known[0] == reach:
                found[case.client] = known[1]
                continue
            owner, sure = self._decide(case, cases, adoptions, born.get(case.client), asked)
            if owner is not None:
                found[case.client] = owner
                before = self._known.get(case.client)
                if sure:
                    self._known[case.client] = (reach, owner)
                elif before is not None and before[1] in reach:
                    found[case.client] = before[1]
        for gone in self._known.keys() - cases.keys():
            del self._known[gone]
        return found

    def _remember_parents(self, openers: Sequence[Opener]) -> None:
        if len(self._parents) > _MOST_PARENTS:
            self._parents.clear()
        for opener in openers:
            self._parents.setdefault(opener.id, opener.parent)

    def _decide(
        self,
        case: _Case,
        cases: Mapping[int, _Case],
        adoptions: Mapping[ProcessId, Adoption],
        born: int | None,
        asked: dict[tuple[str, int], frozenset[int]],
    ) -> tuple[ProcessId | None, bool]:
        """Its owner (None: cannot be said yet), and whether that is sure."""
        eldest = case.reach[0].id
        for opener in case.reach:
            if opener.id.pid == born:
                return opener.id, True
        if not case.tsgs:
            return eldest, False  # nothing of it can be steered
        pids = self._pids(case, asked)
        if pids is None:
            return eldest, False
        named = [opener.id for opener in case.reach if opener.id.pid in pids]
        if len(named) > 1:
            kin = [one for one in named if self._related(one, case.client, cases, adoptions)]
            named = kin if len(kin) == 1 else [one for one in named if not _explained(one, case.client, cases)] or named
        if named:
            return named[0], len(named) == 1
        late = [process for process, adoption in adoptions.items() if process.pid in pids and not adoption.understood]
        if any(process not in {opener.id for opener in case.reach} for process in late):
            return None, False  # perhaps of one whose clients are not all found yet
        return self._heir(case), True

    def _related(
        self, process: ProcessId, client: int, cases: Mapping[int, _Case], adoptions: Mapping[ProcessId, Adoption]
    ) -> bool:
        """Whether the driver says that a client which only this process reaches has the same maker."""
        for fd, other in adoptions[process].clients:
            if len(cases[other].reach) > 1:
                continue
            try:
                with self._driver.borrow(process, fd) as descriptor:
                    if RmClient(descriptor, self._abi, other).same_maker(client):
                        return True
            except (RmError, DriverError, OSError):
                continue
        return False

    def _heir(self, case: _Case) -> ProcessId:
        """The maker has ended: the eldest of its children, if it was known, else of all who reach the client."""
        known = self._known.get(case.client)
        if known is not None:
            for opener in case.reach:
                if opener.id == known[1] or self._parents.get(opener.id) == known[1].pid:
                    return opener.id
        return case.reach[0].id

    def _pids(self, case: _Case, asked: dict[tuple[str, int], frozenset[int]]) -> frozenset[int] | None:
        """Who made compute objects on the GPU of one of its TSGs, or any object where it has no compute TSG.

        None: it could not be asked; empty: it does not say, or nobody did.
        """
        process, tsg = min(case.tsgs, key=lambda each: each[1].kind is not Kind.COMPUTE)
        plain = [self._abi.klass("NV20_SUBDEVICE_0")]
        compute = sorted((n for name, n in self._abi.classes.items() if "_COMPUTE_" in name), reverse=True)
        wanted = plain
        if tsg.kind is Kind.COMPUTE:
            wanted = [self._classes[tsg.gpu]] if tsg.gpu in self._classes else [*compute, *plain]
        try:
            with self._driver.borrow(process, tsg.fd) as descriptor:
                client = RmClient(descriptor, self._abi, tsg.client)
                for klass in wanted:
                    key = (tsg.gpu, klass)
                    if key not in asked:
                        asked[key] = client.pids(tsg.subdevice, klass)
                    if asked[key]:
                        if klass not in plain:
                            self._classes[tsg.gpu] = klass
                        return asked[key]
        except RmError:
            pass
        except (DriverError, OSError):
            return None
        return frozenset()


def _cases(openers: Sequence[Opener], adoptions: Mapping[ProcessId, Adoption]) -> dict[int, _Case]:
    reach: dict[int, list[Opener]] = defaultdict(list)
    tsgs: dict[int, list[tuple[ProcessId, Tsg]]] = defaultdict(list)
    for opener in sorted(openers, key=lambda h: (h.id.start, h.id.pid)):
        if (adoption := adoptions.get(opener.id)) is None:
            continue
        for client in dict.fromkeys(client for _, client in adoption.clients):
            reach[client].append(opener)
        for tsg in adoption.tsgs:
            tsgs[tsg.client].append((opener.id, tsg))
    return {client: _Case(client, tuple(who), tuple(tsgs[client])) for client, who in reach.items()}


def _explained(process: ProcessId, client: int, cases: Mapping[int, _Case]) -> bool:
    """Whether a process has a compute TSG in another client that nobody else reaches: for that it would be named."""
    return any(
        case.client != client
        and [opener.id for opener in case.reach] == [process]
        and any(tsg.kind is Kind.COMPUTE for _, tsg in case.tsgs)
        for case in cases.values()
    )
