# SPDX-License-Identifier: Apache-2.0
"""Ranks whose launcher told nobody: programs that reach from GPU to GPU and hold one piece of GPU memory together.

A rank that uses a peer's memory (NCCL's buffers, by cuMem or by cuIpc) has an object of class NV50_P2P, and the memory
of its peer as an object of its own. The driver names no duplicates across clients; but it tells root where a piece of
memory lies (NV0041_CTRL_CMD_GET_SURFACE_PHYS_ATTR, of 580 and later), and what lies at one place of one GPU is one
piece. So these are ranks of one job, where one user, or one container, has both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.root.adopt import Adoption
from detshare.ctl.backends.root.tree import Piece
from detshare.ctl.core import jobs
from detshare.ctl.core.driver import Driver, DriverError, Opener, ProcessId
from detshare.ctl.core.procfs import MPS_COMM
from detshare.ctl.rm.client import RmClient, RmError

__all__ = ["Peers"]


class _Held(NamedTuple):
    opener: Opener
    piece: Piece


class Peers:
    """Jobs of the programs of this machine. Not for two threads at once."""

    def __init__(self, driver: Driver, abi: Abi) -> None:
        self._driver = driver
        self._abi = abi
        self._told: dict[ProcessId, str] = {}
        """what each program's launcher says; empty: nothing"""
        self._found: dict[ProcessId, str] = {}
        """of those that were told nothing; a rank stays one for life"""
        self._reaching: list[tuple[Opener, tuple[Piece, ...], list[ProcessId | None]]] = []
        """who reaches other GPUs, by which memory, and whose its clients are"""
        self._pairs: list[tuple[_Held, _Held]] = []
        """as follows from that: thousands of pieces are gone through when it changes"""

    def look(
        self, openers: Iterable[Opener], adoptions: Mapping[ProcessId, Adoption], owner: Mapping[int, ProcessId]
    ) -> None:
        """After a reading of the programs' objects: who is a rank of what, for `of` and for `jobs.of`."""
        openers = list(openers)
        living = {opener.id for opener in openers}
        self._told = {p: self._told[p] if p in self._told else jobs.by_launcher(p.pid) for p in living}
        self._found = {process: job for process, job in self._found.items() if process in living}
        reaching = [
            (opener, adoption.reached, [owner.get(client) for _, client in adoption.clients])
            for opener in openers
            if (adoption := adoptions[opener.id]).reached and not opener.comm.startswith(MPS_COMM)
        ]
        if reaching != self._reaching:
            held = (
                _Held(opener, piece)
                for opener, pieces, _ in reaching
                for piece in pieces
                if owner.get(piece.client) == opener.id
            )
            self._reaching, self._pairs = reaching, list(self._together(held))
        for first, second in self._pairs:
            self._join(first, second)
        jobs.learn({process.pid: job for process, job in self._found.items()})

    def of(self, process: ProcessId) -> str:
        """The job of a program, as `jobs.of`."""
        return self._told.get(process) or self._found.get(process, "")

    def _join(self, first: _Held, second: _Held) -> None:
        """Make two programs ranks of one job, unless they are, or launchers told of two."""
        ids = first.opener.id, second.opener.id
        one, other = (self.of(process) for process in ids)
        if (one and one == other) or all(self._told[process] for process in ids):
            return
        # In between the piece was not given to the other: who held it before holds it after.
        if not (self._holds(first) and self._holds(second) and self._holds(first)):
            return
        mine = f"{first.opener.user}:{first.opener.container}:{ids[0].pid}.{ids[0].start}"
        job = next((self._told[process] for process in ids if self._told[process]), "") or one or other or mine
        same = {process for process, known in self._found.items() if known in (one, other)}
        self._found |= dict.fromkeys(same | {process for process in ids if not self._told[process]}, job)

    def _together(self, held: Iterable[_Held]) -> Iterator[tuple[_Held, _Held]]:
        """Pairs of programs that hold a piece together, older ones first; each pair of neighbours once."""
        at: dict[tuple[str, str, str, int], dict[ProcessId, _Held]] = defaultdict(dict)
        for each in held:
            owner = ("", each.opener.container) if each.opener.container else (each.opener.user, "")
            at[*owner, each.piece.gpu, each.piece.address][each.opener.id] = each
        known: set[tuple[ProcessId, ProcessId]] = set()
        for holders in at.values():
            for pair in pairwise(sorted(holders.values(), key=lambda h: (h.opener.id.start, h.opener.id.pid))):
                ids = pair[0].opener.id, pair[1].opener.id
                if ids not in known:
                    known.add(ids)
                    yield pair

    def _holds(self, held: _Held) -> bool:
        """Whether a program has that piece still: what was read of it may be old."""
        piece = held.piece
        try:
            with self._driver.borrow(held.opener.id, piece.fd) as descriptor:
                return RmClient(descriptor, self._abi, piece.client).address(piece.handle) == piece.address
        except (DriverError, RmError, OSError):
            return False
