# SPDX-License-Identifier: Apache-2.0
"""The observer of RM objects against the simulated driver's truth and the module's own tree, counted exactly."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.rm import procfs
from detshare.ctl.rm.abi import for_version
from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import Happening
from tests.vm.guest.kmod_tools import CLIENTS, Hog, leak, truth

SCRIPT = """
import os, sys, time
sys.path.insert(0, {top!r})
from tests.vm.guest.kmod_tools import make_client, free_client
{body}
"""
TOP = str(Path(__file__).resolve().parents[3])


@pytest.fixture
def tracer() -> Iterator[ObjectTracer]:
    version = procfs.driver_version()
    assert version is not None
    made = ObjectTracer(for_version(version))
    yield made
    made.close()


def script(body: str) -> subprocess.Popen[str]:
    """A Python program that makes raw calls; it may be told by lines and tells by lines."""
    words = [sys.executable, "-c", SCRIPT.format(top=TOP, body=body)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def kinds(happened: list[Happening]) -> Counter[tuple[str, bool]]:
    return Counter((each.kind, each.born) for each in happened)


def eventually(tracer: ObjectTracer, enough: Callable[[list[Happening]], bool]) -> list[Happening]:
    found: list[Happening] = []
    until = time.monotonic() + 60
    while not enough(found):
        assert time.monotonic() < until, kinds(found)
        found += tracer.drain()
    return found + tracer.drain()


def test_1009_allocations_are_counted_exactly_and_the_module_agrees(tracer: ObjectTracer) -> None:
    hog = Hog()
    memory = tracer.world.memory
    for _ in range(1009):
        assert hog.say("65536")["status"] == 0
    happened = tracer.drain()
    born = [each for each in happened if each.born and each.number in memory]
    assert len(born) == 1009
    assert {each.pid for each in born} == {hog.pid}
    objects = sum(len(client.objects) for client in tracer.world.clients.values())
    assert objects == truth("objects")
    if Path("/sys/kernel/debug/detshare/objects").exists():
        # the module counts clients too
        assert objects + len(tracer.world.clients) == leak("objects")
    assert hog.say("free")["status"] == 0
    assert len([each for each in tracer.drain() if not each.born and each.number in memory]) == 1009
    assert truth("objects") == sum(len(client.objects) for client in tracer.world.clients.values())
    hog.end()
    eventually(tracer, lambda found: ("process", False) in kinds(found))
    assert not tracer.world.clients
    assert tracer.trouble().words() == []


def test_101_processes_are_born_and_die(tracer: ObjectTracer) -> None:
    process = script(
        "for _ in range(101):\n"
        "    if not os.fork():\n"
        "        make_client(os.open('/dev/nvidiactl', os.O_RDWR))\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    process.wait()
    happened = tracer.drain()
    assert kinds(happened) == {
        (kind, born): 101 for kind in ("process", "client") for born in (True, False)
    }
    pids = [each.pid for each in happened if each.kind == "process" and each.born]
    assert len(set(pids)) == 101
    assert [each.pid for each in happened if each.kind == "process" and not each.born] == pids
    assert not tracer.world.processes


def test_a_client_lives_as_long_as_anybody_holds_its_file(tracer: ObjectTracer) -> None:
    process = script(
        "file = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "client = make_client(file)\n"
        "print(client, flush=True)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True); os._exit(0)\n"
        "sys.stdin.readline()\n"
        "copy = os.dup(file)\n"
        "os.close(file)\n"
        "print('closed one', flush=True)\n"
        "sys.stdin.readline()\n"
        "os.close(copy)\n"
        "print('closed all', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    client, child = int(told(process)), int(told(process))
    process.wait()
    happened = tracer.drain()
    assert kinds(happened) == {("process", True): 2, ("client", True): 1, ("process", False): 1}
    assert set(tracer.world.processes) == {child}
    tell(process)
    assert told(process) == "closed one"
    assert kinds(tracer.drain()) == {}
    assert list(tracer.world.clients) == [client]
    tell(process)
    assert told(process) == "closed all"
    assert kinds(tracer.drain()) == {("client", False): 1}
    tell(process)
    assert kinds(eventually(tracer, lambda found: bool(found))) == {("process", False): 1}


def test_exec_and_close_range_end_clients(tracer: ObjectTracer) -> None:
    process = script(
        "kept = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "os.set_inheritable(kept, True)\n"
        "make_client(kept)\n"
        "lost = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "make_client(lost)\n"
        "code = f'import os, sys; print(1, flush=True); sys.stdin.readline(); os.closerange({kept}, {kept} + 1);'\n"
        "os.execv(sys.executable, [sys.executable, '-c', code + 'print(2, flush=True); sys.stdin.readline()'])\n"
    )
    assert told(process) == "1"
    happened = tracer.drain()
    assert kinds(happened) == {("process", True): 1, ("client", True): 2, ("client", False): 1}
    assert len(tracer.world.clients) == 1
    tell(process)
    assert told(process) == "2"
    assert kinds(tracer.drain()) == {("client", False): 1}
    process.kill()
    process.wait()


def test_all_ways_to_allocate_and_free_agree_with_the_driver(tracer: ObjectTracer) -> None:
    process = subprocess.Popen(
        [CLIENTS / "nvstorm", "--processes", "7", "--seconds", "3", "--idle-us", "2000"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)
    process.communicate()
    happened = eventually(tracer, lambda found: kinds(found)["process", False] >= 8)
    counts = kinds(happened)
    assert counts["client", True] == counts["client", False] == 14
    assert counts["object", True] == counts["object", False] > 200
    assert not tracer.world.clients
    assert tracer.trouble().words() == []
    assert truth("objects") == 0


def test_no_event_is_lost_at_full_speed(tracer: ObjectTracer) -> None:
    """Nobody reads meanwhile: what comes in two seconds at 50 000 a second waits in the ring."""
    pairs = 13 * 3847
    begin = time.monotonic()
    done = subprocess.run(
        [CLIENTS / "nvloop", "--kind", "client", "--batches", "13", "--calls", "3847"],
        check=True,
        capture_output=True,
        text=True,
    )
    took = time.monotonic() - begin
    assert "client" in done.stdout
    counts = kinds(eventually(tracer, lambda found: ("process", False) in kinds(found)))
    print(f"{2 * pairs / took:.0f} calls/s")
    # nvloop warms up by one more batch, and its own client
    assert counts["client", True] == counts["client", False]
    assert counts["client", True] >= pairs
    assert tracer.trouble().lost == 0


def test_lost_events_are_reported() -> None:
    version = procfs.driver_version()
    assert version is not None
    tracer = ObjectTracer(for_version(version), ring_bytes=4096)
    try:
        words = [CLIENTS / "nvloop", "--kind", "client", "--batches", "2", "--calls", "200"]
        subprocess.run(words, check=True, capture_output=True)
        got = len(tracer.drain())
        assert got > 0
        assert tracer.trouble().lost > 300
        assert any("lost" in note for note in tracer.notes())
    finally:
        tracer.close()


def test_programs_that_ran_before_make_the_view_partial() -> None:
    hog = Hog()
    assert hog.take(1)
    version = procfs.driver_version()
    assert version is not None
    tracer = ObjectTracer(for_version(version))
    try:
        assert hog.take(1)
        assert len(tracer.drain()) >= 1
        assert any("before this trace" in note for note in tracer.notes())
    finally:
        tracer.close()
        hog.end()


def test_the_command_tells_births_and_deaths() -> None:
    words = [os.path.join(os.path.dirname(sys.executable), "detshare-trace"), "objects", "--json", "--duration", "8"]
    command = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    time.sleep(5)
    hog = Hog()
    assert hog.take(1)
    hog.end()
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 0
    assert '"class": "NV01_MEMORY_LOCAL_USER"' in out
    assert '"partial": []' in out.splitlines()[-1]
