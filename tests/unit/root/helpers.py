# SPDX-License-Identifier: Apache-2.0
"""Looking at the model behind the backend's back: what the driver would really do."""

from __future__ import annotations

from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.objects import Kind
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core.snapshot import Program


def program(backend: RootBackend, process: ModelProcess) -> Program:
    """The program of a process at the next look."""
    return next(p for p in backend.look().programs if p.id == process.id)


def truth(driver: ModelDriver, process: ModelProcess) -> list[tuple[int, int, bool]]:
    """(slice, level, all channels off) of each TSG of a process, from the model's own objects."""
    found = []
    for file in process.fds.values():
        if file.is_control:
            for client in driver.rm.clients_of(file):
                for _, node in sorted(client.objects.items()):
                    if node.kind is Kind.TSG and node.tsg is not None:
                        found.append((node.tsg.slice_us, int(node.tsg.level), node.tsg.paused))
    return found


def take_all(taker: ModelProcess, giver: ModelProcess) -> None:
    """The control files of one process, of which another takes duplicates."""
    for fd, file in sorted(giver.fds.items()):
        if file.is_control:
            taker.take(giver, fd)
