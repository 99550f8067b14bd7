# SPDX-License-Identifier: Apache-2.0
"""Who waits for whom at the lock of a run directory."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from detshare.ctl.core import rundir


def test_a_daemon_waits_for_a_command_which_ends(tmp_path: Path) -> None:
    """In a slow guest a listing held the lock for longer than a second, and the daemon that was started gave up."""
    command, daemon = rundir.Lock(tmp_path / "lock", "detshare-ctl list"), rundir.Lock(tmp_path / "lock", "detshared")
    command.acquire("list programs")
    done, told = threading.Event(), list[str]()

    def wait() -> None:
        daemon.acquire("start detshared", 0.0, 600.0, told.append)
        done.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not done.wait(0.2)
    command.release()
    assert done.wait(60)
    waiter.join()
    assert told == [f"{os.getpid()} detshare-ctl list"]
    assert "detshared" in (tmp_path / "lock").read_text()
    daemon.release()


@pytest.mark.parametrize("name", ["detshared", "bench"])
def test_nobody_waits_for_who_stays(tmp_path: Path, name: str) -> None:
    first, second = rundir.Lock(tmp_path / "lock", name), rundir.Lock(tmp_path / "lock", "detshared")
    first.acquire("stay")
    with pytest.raises(rundir.Held, match=name):
        second.acquire("start detshared", 0.0, 600.0)
    first.release()


def test_a_command_that_stays_is_named_in_the_end(tmp_path: Path) -> None:
    first, second = rundir.Lock(tmp_path / "lock", "detshare-ctl pause"), rundir.Lock(tmp_path / "lock", "detshared")
    first.acquire("pause")
    with pytest.raises(rundir.Held, match="detshare-ctl pause"):
        second.acquire("start detshared", 0.0, 0.1)
    first.release()


def test_a_full_disk_takes_no_name_and_the_lock_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    first, second = rundir.Lock(tmp_path / "lock", "detshared"), rundir.Lock(tmp_path / "lock", "detshared")
    with monkeypatch.context() as now:
        now.setattr(os, "pwrite", full)
        first.acquire("start detshared")
    with pytest.raises(rundir.Held, match="another process holds"):
        second.acquire("start detshared")
    first.release()
    second.acquire("start detshared")
    second.release()
