# SPDX-License-Identifier: Apache-2.0
"""The whole library on the stand-in libcuda: a held program stops between kernels, and nothing makes it hang."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builds import FAKECUDA, LIBRARY, ROOT, made
from gatekit import HOLD, Daemon

from detshare.runtime import board_layout as layout
from detshare.runtime.board import Attach, monotonic_ns
from tests.patience import LONG_S, ended, run, until, words

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent


class Client:
    def __init__(self, daemon: Daemon, **more: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DETSHARE_")}
        environment |= {
            "DETSHARE_SOCKET": str(daemon.path),
            "LD_PRELOAD": str(LIBRARY),
            "LD_LIBRARY_PATH": str(FAKECUDA),
            "FAKECUDA_CLOCK": "real",
            **more,
        }
        program = [sys.executable, str(HERE / "held_client.py")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(program, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self.answer() == "ready"

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return self.process.stdout.readline().strip() or self.process.stderr.read()

    def ask(self, line: str) -> float:
        self.say(line)
        return float(self.answer())


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Callable[..., Client]]:
    for part in ("fakecuda", "runtime"):
        made(part)
    started: list[Client] = []
    good = daemon.good

    def answer(attach: Attach, tenant: object) -> object:
        daemon.activity.put_raw("gpu_uuid", attach.gpu_uuid)
        return good(attach, tenant)  # type: ignore[arg-type]

    daemon.answer = answer  # type: ignore[assignment]

    def start(**more: str) -> Client:
        started.append(Client(daemon, **more))
        return started[-1]

    yield start
    for one in started:
        assert one.process.stdin is not None
        one.process.stdin.close()
        assert ended(one.process) == 0, one.process.stderr and one.process.stderr.read()
        for stream in (one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()


def warm(one: Client, daemon: Daemon) -> None:
    """The word is registered, and the kernel's time is known."""
    counters = daemon.tenants[-1].counters

    def known() -> bool:
        one.ask("go 20")
        one.ask("sync")
        return counters.get("gate_source") == 1 and counters.get("samples") > 2

    until(known)


@pytest.fixture
def rck(daemon: Daemon, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `detshare rck` on the stand-in, which gets the kernel as a plugin."""
    made("fakecuda")
    plugin = tmp_path / "rck_kernel.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'tests' / 'fakecuda'}"]
    driver = [f"-L{FAKECUDA}", "-lcuda"]
    run(["gcc", *flags, str(HERE / "rck_kernel.c"), "-o", str(plugin), *driver], check=True)
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(FAKECUDA),
            "FAKECUDA_PLUGINS": str(plugin),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-m", "detshare.tools.main", "rck", "--board", str(daemon.folder / "gpu.activity")]
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for one in started:
        one.terminate()
        _, said = words(one)
        assert (one.returncode, said) == (0, "")


def test_gates_wait_in_the_gpus_memory_while_the_helper_runs(
    daemon: Daemon, client: Callable[..., Client], rck: Callable[[], subprocess.Popen[str]]
) -> None:
    tenant = daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400}))
    one = client(DETSHARE_GATE="rck")
    warm(one, daemon)

    def source(wanted: int) -> bool:
        one.ask("go 4")
        one.ask("sync")
        return tenant.counters.get("gate_source") == wanted

    helper = rck()
    until(lambda: source(2))
    tenant.slot.hold(True)
    begun = one.ask("go 20")
    time.sleep(0.2)
    assert one.ask("done") < begun
    tenant.slot.hold(False)
    one.ask("sync")
    assert one.ask("done") == begun
    # a helper that ends lets go what waits at its words, and the host's serve again
    tenant.slot.hold(True)
    one.ask("go 4")
    helper.terminate()
    assert helper.wait(LONG_S) == 0
    tenant.slot.hold(False)
    one.ask("sync")
    until(lambda: source(1))


def test_a_hold_stops_queued_work_and_a_release_loses_none(daemon: Daemon, client: Callable[[], Client]) -> None:
    tenant = daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400}))
    one = client()
    warm(one, daemon)
    queued = 0.0

    def held_in_mid_work() -> bool:
        """False where the machine was so slow that all work had ended before the hold."""
        nonlocal queued
        queued = one.ask("go 1000")
        tenant.slot.hold(True)
        begun = one.ask("done")
        if begun == queued:
            tenant.slot.hold(False)
            return False
        time.sleep(0.15)
        stopped = one.ask("done")
        # a gate each two kernels of 200 us, and one kernel that runs
        assert stopped - begun <= 4
        time.sleep(0.1)
        assert one.ask("done") == stopped < queued
        return True

    until(held_in_mid_work)
    tenant.slot.hold(False)
    one.ask("sync")
    assert one.ask("done") == queued


@pytest.mark.parametrize("what", ["free", "sync"])
def test_a_call_that_waits_for_held_work_ends_with_the_lease_of_a_dead_daemon(
    daemon: Daemon, client: Callable[[], Client], what: str
) -> None:
    tenant = daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400}))
    one = client()
    warm(one, daemon)
    tenant.slot.hold(True)
    one.ask("go 20")
    one.say(what)
    # as long as the daemon lives it waits
    assert select.select([one.process.stdout], [], [], 0.3)[0] == []
    tenant.policy.lease(monotonic_ns() + 300_000_000)
    assert 0.3 < float(one.answer()) < 5
    assert not tenant.slot.held


def test_a_program_that_is_held_by_a_stopped_class_goes_on(daemon: Daemon, client: Callable[[], Client]) -> None:
    daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400, "depth": 4}))
    one = client()
    warm(one, daemon)
    slot = daemon.activity.slots[9]
    slot.assign(1, 1, layout.CLASS_HIGH)
    slot.put("beat", monotonic_ns() + 300_000_000)
    slot.put("active", 1)
    until(lambda: daemon.tenants[0].slot.get("word") == 1 << 9)
    began = time.monotonic()
    one.ask("go 200")  # answers once it has gone on
    assert time.monotonic() - began > 0.1


def test_a_held_program_ends(daemon: Daemon, client: Callable[[], Client]) -> None:
    tenant = daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400}))
    one = client()
    warm(one, daemon)
    tenant.slot.hold(True)
    one.ask("go 20")
    # the fixture waits for its end and wants status 0
    assert one.process.poll() is None


def test_a_killed_held_program_leaves_nothing_that_holds_others(daemon: Daemon, client: Callable[[], Client]) -> None:
    low = daemon.tenant(layout.CLASS_LOW, **(HOLD | {"gate_us": 400}))
    first = client()
    warm(first, daemon)
    high = daemon.tenant(layout.CLASS_HIGH)
    second = client()
    second.ask("go 2000")
    until(lambda: low.slot.get("word") == 1 << 1)
    second.process.kill()
    second.process.wait()
    until(lambda: low.slot.get("word") == 0)
    assert high.slot.get("active") == 1
    second.process.returncode = 0
