# SPDX-License-Identifier: Apache-2.0
"""Who undoes what a killed daemon left, while others hold the run directory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root import guardian
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core import rundir
from tests.unit.root.helpers import truth

DEAD = 4_000_000
PAUSED = [(2048, 1, True)] + [(1024, 1, True)] * 3
FOUND = [(2048, 1, False)] + [(1024, 1, False)] * 3


def test_a_command_that_holds_the_lock_is_waited_for(
    make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: Path
) -> None:
    process = scenario.cuda_process(driver)
    make().pause(str(process.id.pid))
    lock = rundir.Lock(tmp_path / "lock", "detshare-ctl set-priority")
    lock.acquire("test")
    timer = threading.Timer(0.4, lock.release)
    timer.start()
    begun = time.monotonic()
    assert guardian._put_back(tmp_path, driver, DEAD) == []
    timer.join()
    assert time.monotonic() - begun >= 0.3
    assert truth(driver, process) == FOUND


def test_the_dead_daemons_name_in_the_lock_is_no_new_daemon(
    make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: Path
) -> None:
    process = scenario.cuda_process(driver)
    make().pause(str(process.id.pid))
    (tmp_path / "lock").write_text(f"{DEAD} detshared\n")
    assert not guardian._succeeded(tmp_path, DEAD)
    assert guardian._put_back(tmp_path, driver, DEAD) == []
    assert truth(driver, process) == FOUND


def test_a_new_daemon_undoes_it_itself(make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: Path) -> None:
    process = scenario.cuda_process(driver)
    make().pause(str(process.id.pid))
    lock = rundir.Lock(tmp_path / "lock", "detshared")
    lock.acquire("test")
    assert guardian._put_back(tmp_path, driver, DEAD) == []
    assert truth(driver, process) == PAUSED  # left to the daemon that has the lock
    make()  # its start
    assert truth(driver, process) == FOUND
    lock.release()
