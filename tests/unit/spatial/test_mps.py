# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from detshare.ctl.core import procfs
from detshare.runtime import mps as module
from detshare.runtime.mps import Mps, MpsError, NoAnswer, State
from tests.patience import Slept, until

pytestmark = pytest.mark.e2e


def nobody() -> list[int]:
    return []


def test_it_starts_answers_and_ends(mps: Mps) -> None:
    assert mps.state is State.STOPPED
    mps.start()
    assert mps.state is State.RUNNING
    (server,) = mps.servers
    assert mps.client_list(server) == []
    control = mps.control
    mps.start()
    assert mps.control == control
    mps.stop()
    assert mps.state is State.STOPPED
    until(lambda: procfs.start_time(server) is None)


def test_a_later_daemon_finds_it(mps: Mps, folder: Path, control: Path) -> None:
    mps.start()
    later = Mps(folder / "mps", str(control))
    assert later.adopt()
    assert (later.control, later.servers) == (mps.control, mps.servers)


def test_another_ones_server_is_neither_found_nor_ended(mps: Mps, folder: Path, control: Path) -> None:
    other = Mps(folder / "other", str(control))
    other.start()
    try:
        mps.pipe.mkdir(parents=True)
        # even where its PID stands in our directory
        (mps.pipe / "nvidia-cuda-mps-control.pid").write_text(f"{other.control}\n")
        assert not mps.adopt()
        mps.start()
        assert mps.control != other.control
        mps.stop()
        assert other.state is State.RUNNING
        assert other.server_list() == list(other.servers)
    finally:
        other.stop()


def test_without_a_binary_it_says_what_to_install(folder: Path) -> None:
    mps = Mps(folder / "mps", str(folder / "nowhere" / "nvidia-cuda-mps-control"))
    assert mps.state is State.NO_BINARY
    with pytest.raises(MpsError, match="compute utilities"):
        mps.start()


def test_a_control_daemon_that_does_not_start_is_quoted(mps: Mps, folder: Path) -> None:
    (folder / "mps").mkdir()
    (folder / "mps" / "fail").write_text("cannot bind: no space")
    with pytest.raises(MpsError, match="cannot bind: no space"):
        mps.start()
    assert mps.state is State.STOPPED


def test_one_that_does_not_answer_is_not_waited_for(mps: Mps, folder: Path) -> None:
    mps.start()
    (folder / "mps" / "mute").write_text("yes")
    with pytest.raises(MpsError, match="no answer within"):
        mps.ask("get_server_list", 0.3)


def test_a_dead_server_is_seen_with_those_it_took_along(mps: Mps, folder: Path) -> None:
    mps.start()
    (folder / "mps" / "clients").write_text(f"{os.getpid()}")
    mps.refresh()
    assert mps.look() is None
    assert not mps.suspect
    os.kill(mps.servers[0], signal.SIGKILL)
    until(lambda: mps.look() is not None)
    (fall,) = mps.falls
    assert fall.clients == (os.getpid(),)
    assert "server" in fall.why
    assert mps.suspect
    assert mps.look() is None  # told once


def test_a_dead_control_daemon_takes_nobody_along_while_its_server_lives(mps: Mps, folder: Path) -> None:
    mps.start()
    (folder / "mps" / "clients").write_text(f"{os.getpid()}")
    mps.refresh()
    (server,) = mps.servers
    assert mps.control is not None
    os.kill(mps.control, signal.SIGKILL)
    until(lambda: mps.look() is not None)
    assert mps.falls[0].clients == ()
    assert mps.orphaned
    # its client still works: a newcomer has to stay out
    assert "still serves" in mps.make_ready(os.geteuid(), os.getegid(), lambda: [os.getpid()])
    assert procfs.start_time(server) is not None
    # nobody does: it is ended, and a new one serves
    assert mps.make_ready(os.geteuid(), os.getegid(), nobody) == ""
    assert mps.state is State.RUNNING
    assert procfs.start_time(server) is None
    assert mps.falls[-1].clients == (os.getpid(),)


def test_a_newcomer_waits_while_it_is_refused_and_then_starts(mps: Mps, folder: Path) -> None:
    mps.start()
    mps.doubt()
    (folder / "refuse").touch()
    threading.Timer(1.0, (folder / "refuse").unlink).start()
    begun = time.monotonic()
    with Slept() as slept:
        assert mps.make_ready(os.geteuid(), os.getegid(), nobody) == ""
    assert time.monotonic() - begun > 0.9
    assert slept.seconds < 5
    assert not mps.suspect
    assert not mps.falls


def test_a_server_that_goes_on_refusing_is_restarted_where_nobody_works(mps: Mps, folder: Path) -> None:
    mps.start()
    before = mps.control
    (folder / "mps" / "clients").write_text(f"{os.getpid()}")
    mps.refresh()
    mps.doubt()
    (folder / "refuse").touch()

    def until_restarted() -> None:
        until(lambda: mps.control not in (before, None))
        (folder / "refuse").unlink()

    watcher = threading.Thread(target=until_restarted)
    watcher.start()
    with Slept() as slept:
        assert mps.make_ready(os.geteuid(), os.getegid(), nobody) == ""
        watcher.join()
    assert slept.seconds < 5.5
    assert mps.falls[0].clients == (os.getpid(),)
    assert "807" in mps.falls[0].why


def test_it_is_never_restarted_under_a_client_that_works(mps: Mps, folder: Path) -> None:
    mps.start()
    before = mps.control
    mps.doubt()
    (folder / "refuse").touch()
    assert "807" in mps.make_ready(os.geteuid(), os.getegid(), lambda: [1], 1.0)
    assert mps.control == before
    assert not mps.falls


def test_what_an_older_one_left_in_its_directories_does_not_stop_it(mps: Mps) -> None:
    mps.start()
    assert mps.control is not None
    os.kill(mps.control, signal.SIGKILL)
    os.kill(mps.servers[0], signal.SIGKILL)
    until(lambda: mps.look() is not None)
    assert (mps.pipe / "control").exists()
    mps.start()
    assert mps.state is State.RUNNING


def test_a_client_is_not_taken_for_a_server(mps: Mps) -> None:
    """It has the same environment, and must not be ended with the server."""
    mps.start()
    client = subprocess.Popen(["sleep", "60"], env={**os.environ, **mps.environment})
    try:
        mps.stop()
        assert client.poll() is None
    finally:
        client.kill()
        client.wait()


def test_a_control_daemon_that_answers_nothing_lets_no_newcomer_wait_in_it(
    mps: Mps, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid, gid = os.geteuid(), os.getegid()
    assert mps.make_ready(uid, gid, nobody) == ""
    true_ask = mps.ask

    def silent(command: str, seconds: float = 0.0) -> list[str]:
        raise NoAnswer(command, "no answer", "see the log")

    monkeypatch.setattr(mps, "ask", silent)
    assert mps.make_ready(uid, gid, nobody) == ""  # it answered a moment ago
    monkeypatch.setattr(module, "ANSWERED_S", 0.0)
    (folder / "refuse").touch()
    assert mps.make_ready(uid, gid, lambda: [1], seconds=0.5)
    assert mps.suspect
    monkeypatch.setattr(mps, "ask", true_ask)
    (folder / "refuse").unlink()
    assert mps.make_ready(uid, gid, nobody) == ""
    assert not mps.suspect
