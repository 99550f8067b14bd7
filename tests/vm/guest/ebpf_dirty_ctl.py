# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl dirty, by itself and by a daemon that watches, beside a program whose writes are known; and what strict
means. Each makes an observer of its own, which takes a guest long: these run where the kernel is the machine's own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.client import Client
from tests.patience import ended, until
from tests.tracee.tracee import LIBCUDA, Tracee
from tests.vm.guest.dirty_tools import observing, shapes
from tests.vm.guest.ebpf_tools import tracing

__all__ = ["shapes"]  # a fixture

CTL = [sys.executable, "-m", "detshare.ctl.cli"]
DAEMON = "from detshare.ctl.daemon.detshared import main; main()"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Client]:
    """A daemon over simulated programs, which watches what the real ones write."""
    config = tmp_path / "detshare.toml"
    config.write_text('[daemon]\nbackend = "model"\ndirty = true\n', encoding="utf-8")
    config.chmod(0o600)
    words = [sys.executable, "-c", DAEMON, "--run-dir", str(tmp_path), "--config", str(config)]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        client = Client(tmp_path)
        until(lambda: client.alive() or process.poll() is not None, pause=0.05)
        assert process.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
        yield client
        process.terminate()
        assert ended(process) == 0, (tmp_path / "log").read_text(encoding="utf-8")


def test_by_itself_it_tells_of_what_is_allocated_from_then_on() -> None:
    with Tracee() as tracee:
        words = [*CTL, "dirty", str(tracee.pid), "--epochs", "2", "--libcuda", str(LIBCUDA), "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
            number = 0
            while asked.poll() is None:
                tracee.say("alloc plain 65536")
                tracee.say(f"set {number} 0 64")
                tracee.say("sync")
                number += 1
                time.sleep(0.02)
            assert asked.stdout is not None
            assert asked.stderr is not None
            out, err = asked.stdout.read(), asked.stderr.read()
    assert asked.returncode == 0, err
    found = json.loads(out)
    assert (found["pid"], found["by"], len(found["epochs"])) == (tracee.pid, "detshare-ctl", 2)
    assert any(each["dirty_bytes"] > 0 for each in found["epochs"])
    assert all("began before" in " ".join(each["partial"]) for each in found["epochs"])


def test_the_daemon_knows_a_program_from_its_begin_on(daemon: Client) -> None:
    def watched(tracee: Tracee) -> object:
        tracee.say("sync")
        return daemon.dirty(tracee.pid)["epochs"]

    with Tracee() as first:  # so that the daemon comes to know this libcuda
        until(lambda: watched(first), pause=0.05, said=daemon.doctor)
    with Tracee() as tracee:
        for _ in range(4):
            tracee.say("alloc plain 65536")
        tracee.say("set 2 0 64")
        words = [*CTL, "--run-dir", str(daemon.run_dir), "dirty", str(tracee.pid), "--json"]

        def told() -> dict[str, Any]:
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            found: dict[str, Any] = json.loads(done.stdout)
            return found if done.returncode == 0 and found["epochs"][-1]["dirty"] == 1 else {}

        found = until(told, pause=0.3)
        (epoch,) = found["epochs"]
        assert (found["by"], epoch["share"], epoch["allocations"], epoch["partial"]) == ("daemon", 0.25, 4, [])


def test_a_program_that_ends_is_told_as_one() -> None:
    with Tracee() as tracee:
        pid = tracee.pid
    done = subprocess.run([*CTL, "dirty", str(pid)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no such process" in done.stderr


def test_what_a_program_did_before_it_ended_is_told_though_no_epoch_was_over() -> None:
    with Tracee() as tracee:
        words = ("--pid", str(tracee.pid), "--interval", "600", "--json", "--libcuda", str(LIBCUDA))
        with tracing("dirty", *words, ends=False) as trace:
            tracee.say("alloc plain 65536")
            tracee.say("set 0 0 64")
            tracee.end()
    assert trace.code == 0
    (told,) = map(json.loads, trace.out.splitlines())
    assert (told["dirty_bytes"], told["allocations"]) == (65536, 1)
    assert f"PID {tracee.pid} has ended" in told["partial"]


def test_who_may_lose_nothing_takes_machine_code_to_write_anywhere(shapes: dict[str, Path]) -> None:
    with observing(strict=True) as strict, Tracee() as tracee:
        for _ in range(3):
            tracee.say("alloc plain 65536")
        tracee.say(f"module {shapes['code']}")
        tracee.say("kernel plain look @1 w:100")
        tracee.say("sync")
        found = strict.end_epoch(tracee.pid)
        assert {each.address for each in found.dirty} == set(tracee.addresses)
        assert found.partial == ()
        assert any("look" in reason and "machine code" in reason for reason in found.reasons)
        tracee.say(f"module {shapes['lz4']}")
        tracee.say("kernel plain bump @1")
        tracee.say("sync")
        strict.end_epoch(tracee.pid)
        tracee.say("kernel plain bump @1+64")
        tracee.say("sync")
        assert [each.address for each in strict.end_epoch(tracee.pid).dirty] == [tracee.addresses[1]]
