# SPDX-License-Identifier: Apache-2.0
"""Memory made of what lies at an address, while another thread moves a doorbell there."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import Counter
from pathlib import Path

from detshare.ctl.netlink import genl
from tests.vm.guest.kmod_tools import PID
from tests.vm.guest.nvsim_rm import Rm, status
from tests.vm.guest.nvsim_sidedoors import os_descriptor
from tests.vm.guest.nvsim_work import DOORBELL_SIZE, Doorbell
from tests.vm.guest.sched_tools import family

__all__ = ["family"]  # fixture

RACE = Path("/sys/module/nvidia/parameters/race_us")
RACE_US = 20_000
TRIES = 60
AWAY = 0x2_0000_0000  # where no kernel maps by itself
MAYMOVE, FIXED = 1, 2
ME = {"kind": PID, "pid": os.getpid()}


class Mover(threading.Thread):
    """Moves a mapping to and fro until it is told to stop, and leaves it where it was."""

    def __init__(self, home: int, away: int) -> None:
        super().__init__()
        self.places = (home, away)
        self.over = False
        lib = ctypes.CDLL(None, use_errno=True)
        lib.mremap.restype = ctypes.c_void_p
        lib.mremap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p]
        self.mremap = lib.mremap

    def move(self, at: int, to: int) -> None:
        assert self.mremap(at, DOORBELL_SIZE, DOORBELL_SIZE, MAYMOVE | FIXED, to) == to
        ctypes.c_uint32.from_address(to).value  # noqa: B018 its page is there
        time.sleep(RACE_US / 1e6)

    def run(self) -> None:
        home, away = self.places
        while not self.over:
            self.move(home, away)
            self.move(away, home)


def test_a_doorbell_that_comes_meanwhile_is_not_found(family: genl.DetShare) -> None:
    rm = Rm.start()
    bell = Doorbell(rm)
    family.sched_set(ME["pid"], None, 700)
    mover = Mover(ctypes.addressof(ctypes.c_char.from_buffer(bell.at)), AWAY)
    RACE.write_text(str(RACE_US))
    mover.start()
    try:
        answers = Counter(os_descriptor(rm, AWAY, DOORBELL_SIZE)[0] for _ in range(TRIES))
    finally:
        mover.over = True
        mover.join()
        RACE.write_text("0")
        family.sched_del(**ME)
        rm.close()
    assert set(answers) == {status("NV_ERR_INVALID_ADDRESS"), status("NV_ERR_INSUFFICIENT_PERMISSIONS")}, answers
