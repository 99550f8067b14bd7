# SPDX-License-Identifier: Apache-2.0
"""What programs write, asked of a daemon: where it watches, where it does not, and where it cannot."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner

from detshare.ctl.cli.main import main
from detshare.ctl.client import ClientError
from detshare.ctl.core.config import Config
from detshare.ctl.core.config import Daemon as DaemonConfig
from detshare.ctl.daemon import dirty
from detshare.ebpf.epochs import Allocation, Epoch
from detshare.ebpf.errors import EbpfError

WATCHING = Config(daemon=DaemonConfig(dirty=True))
LARGE, SMALL = Allocation(1 << 20, 3 << 20), Allocation(8 << 20, 1 << 20)
ONE = Epoch(os.getpid(), 4, (LARGE, SMALL), (SMALL,))
ALL = Epoch(os.getpid(), 5, ONE.allocations, ONE.allocations, ("kernel k: it calls f",), ("a word",))


class FakeWatch:
    """Has two epochs of this process."""

    interval = 1.0

    def __init__(self, **named: object) -> None:
        self.closed = False

    def epochs(self, pid: int, after: int = -1) -> list[Epoch]:
        return [each for each in (ONE, ALL) if each.pid == pid and each.number > after]

    def notes(self) -> list[str]:
        return ["2 event(s) lost: the ring was full"]

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def watched(start, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dirty, "DirtyWatch", FakeWatch)
    return start(config=WATCHING)


def ctl(running, *words: str):
    return CliRunner().invoke(main, ["--run-dir", str(running.run_dir), "dirty", *words])


def test_the_daemon_tells_the_epochs_that_it_kept(watched):
    found = watched.client.dirty(os.getpid())
    assert [each["epoch"] for each in found["epochs"]] == [4, 5]
    assert found["epochs"][0]["share"] == 0.25
    assert found["partial"] == ["2 event(s) lost: the ring was full"]
    assert [each["epoch"] for each in watched.client.dirty(os.getpid(), after=4)["epochs"]] == [5]
    assert watched.client.dirty(1)["epochs"] == []


def test_the_command_shows_the_last_epochs_of_the_daemon(watched):
    done = ctl(watched, str(os.getpid()), "--epochs", "1")
    assert done.exit_code == 0
    row = "     5    4.0M    4.0M  100%    2/2    kernel k: it calls f; partial: a word"
    assert done.stdout.split("\n")[1] == row
    assert "partial: 2 event(s) lost" in done.stderr
    document = json.loads(ctl(watched, str(os.getpid()), "--epochs", "9", "--json").stdout)
    assert (document["by"], document["interval"]) == ("daemon", 1.0)
    assert [each["dirty_bytes"] for each in document["epochs"]] == [1 << 20, 4 << 20]


def test_a_program_that_never_called_cuda_is_said_to_be_one(watched):
    done = ctl(watched, "1")
    assert done.exit_code == 1
    assert "no call" in done.stderr


@pytest.mark.parametrize("words", ["0", "x", "99999999", "1?after=x", "1?after=-2", "1?after=1-"])
def test_what_is_no_number_is_refused(watched, words: str):
    with pytest.raises(ClientError) as refused:
        watched.client._json("GET", f"/v1/dirty/{words}", "try")
    assert refused.value.status == 400


def test_a_daemon_that_does_not_watch_says_so(start):
    running = start()
    assert running.client.dirty(os.getpid()) == {"watching": False, "why": "daemon.dirty is not set"}


def test_where_it_cannot_watch_the_daemon_goes_on_and_doctor_tells(start, monkeypatch: pytest.MonkeyPatch):
    def refuse(**named: object) -> None:
        raise EbpfError("load dirty.bpf.c", "no CAP_BPF", "run it as root")

    monkeypatch.setattr(dirty, "DirtyWatch", refuse)
    running = start(config=WATCHING)
    assert running.client.dirty(os.getpid()) == {"watching": False, "why": "no CAP_BPF"}
    (check,) = [each for each in running.client.doctor()["checks"] if each["name"] == "dirty"]
    assert (check["ok"], check["advice"]) == (False, "run it as root")


def test_a_process_that_is_not_there_and_words_that_are_no_pid(run_dir):
    for word, code in (("4194303", 1), ("pid", 2), ("0", 2)):
        done = CliRunner().invoke(main, ["--run-dir", str(run_dir), "dirty", word])
        assert done.exit_code == code, done.output
