# SPDX-License-Identifier: Apache-2.0
"""The daemon killed while it gives a program its boards: the program asks the next one, and gets them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from spatial_lane import GPU, Lane

from detshare.runtime import board_layout as layout
from detshare.runtime import sealed
from detshare.runtime.board import Attach, Slot
from detshare.runtime.directory import Directory


class Killed(BaseException):
    """The daemon is."""


def dies(*_: object) -> None:
    raise Killed


@pytest.mark.skipif(not sealed.possible(), reason="pages that are files are found again without the program")
@pytest.mark.parametrize("step", ["seal", "write", "open", "assign", "send"])
def test_who_got_no_boards_of_a_killed_daemon_gets_them_of_the_next(
    lane: Lane, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        asked = Attach(layout.VERSION, GPU.bytes, program.pid, 132, 8, 80 << 30, "red")
        places = {"seal": (Directory, "_make_writable"), "write": (Directory, "save"), "assign": (Slot, "assign")}
        owner, name = places.get(step, (Directory, "descriptors"))
        with monkeypatch.context() as now:
            if step != "send":
                now.setattr(owner, name, dies)
                with pytest.raises(Killed):
                    lane.service.tenants.attach(asked, program.pid, os.geteuid())
            else:
                _close(lane.service.tenants.attach(asked, program.pid, os.geteuid())[1])
        lane.again(restore=False)
        tenant, descriptors = lane.service.tenants.attach(asked, program.pid, os.geteuid())
        _close(descriptors)
        assert lane.start().slot != tenant.record.slot
        mine = [view for view in lane.service.tenants.views() if view.record.pid == program.pid]
        assert [view.record.tenant for view in mine] == ["red"]
        program.kill()


def _close(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)
