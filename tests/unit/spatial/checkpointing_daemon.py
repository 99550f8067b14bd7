# SPDX-License-Identifier: Apache-2.0
"""detshared with the driver's checkpoint beside the model backend; it lists programs of the temporal lane as well."""

from __future__ import annotations

import sys
from dataclasses import replace

from detshare.ctl.backends.spatial import lanes
from detshare.ctl.core import procfs
from detshare.ctl.core.driver import Gpu
from detshare.ctl.core.snapshot import Program, Snapshot, State
from detshare.ctl.daemon import detshared

lanes._PROCESSES = ("model",)  # type: ignore[misc]
plain = lanes.Lanes.look
GPUS = tuple(Gpu(f"GPU-fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a00{n:02x}", n, "Fake H100", f"0000:0{n}:00.0") for n in (0, 1))
"""of tests/fakecuda"""


def look(self: lanes.Lanes, *, enforce: bool = True) -> Snapshot:
    """With those that backend root would find, for they have the driver open."""
    seen = plain(self, enforce=enforce)
    found = []
    for process, parking in self._spatial.residence.all().items():
        if any(program.id == process for program in seen.programs):
            continue
        try:
            opener = procfs.describe(process.pid, process.start, [], [])
        except OSError:
            continue
        state = State.PARKED if parking.state == "parked" else State.RUNNING
        seen_as = Program(process, opener.command, opener.user, "", state, parking=parking)
        found.append(self._placed(seen_as))
        if self._mover is not None:
            found[-1] = self._mover.shown(found[-1])
    self._programs, self._gpus = (*self._programs, *found), GPUS
    return replace(seen, gpus=GPUS, programs=(*seen.programs, *found))


lanes.Lanes.look = look  # type: ignore[method-assign]
sys.exit(detshared.main())
