# SPDX-License-Identifier: Apache-2.0
"""The observer of RM objects against the simulated driver's truth and the module's own tree, counted exactly."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ebpf.objects import ObjectTracer
from detshare.ebpf.world import ObjectChange
from tests.patience import until
from tests.vm.guest.ebpf_tools import BIRTHS, abi, raw_program, tell, told, tracing
from tests.vm.guest.kmod_tools import CLIENTS, Hog, leak, truth


@pytest.fixture(scope="module")
def shared() -> Iterator[ObjectTracer]:
    """Taking eighteen tracepoints and giving them back takes an emulated processor seconds."""
    made = ObjectTracer(abi())
    yield made
    made.close()


@pytest.fixture
def tracer(shared: ObjectTracer) -> Iterator[ObjectTracer]:
    """With nothing left to read, and nobody left who made something, before and after."""
    shared.drain()
    assert not shared.world.clients
    yield shared
    shared.drain()
    assert shared.trouble().words() == []


def kinds(happened: list[ObjectChange]) -> Counter[tuple[str, bool]]:
    return Counter((each.kind, each.born) for each in happened)


def test_1009_allocations_are_counted_exactly_and_the_module_agrees(tracer: ObjectTracer) -> None:
    hog = Hog()
    memory = tracer.world.memory
    assert {answer["status"] for answer in hog.say_all(["65536"] * 1009)} == {0}
    born = [each for each in tracer.drain() if each.born and each.number in memory]
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
    assert kinds(tracer.drain())["process", False] == 1
    assert not tracer.world.clients


def test_101_processes_are_born_and_die(tracer: ObjectTracer) -> None:
    raw_program(BIRTHS).wait()
    happened = tracer.drain()
    assert kinds(happened) == {(kind, born): 101 for kind in ("process", "client") for born in (True, False)}
    pids = [each.pid for each in happened if each.kind == "process" and each.born]
    assert len(set(pids)) == 101
    assert [each.pid for each in happened if each.kind == "process" and not each.born] == pids
    assert not tracer.world.processes


def test_a_client_lives_as_long_as_anybody_holds_its_file(tracer: ObjectTracer) -> None:
    process = raw_program(
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
    assert process.stdout is not None
    assert process.stdout.read() == ""  # the child has ended
    assert kinds(until(tracer.drain)) == {("process", False): 1}


def test_exec_and_close_range_end_clients(tracer: ObjectTracer) -> None:
    process = raw_program(
        "kept = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "os.set_inheritable(kept, True)\n"
        "make_client(kept)\n"
        "lost = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "make_client(lost)\n"
        "code = f'import os, sys; print(1, flush=True); sys.stdin.readline(); os.closerange({kept}, {kept} + 1);'\n"
        "code += 'print(2, flush=True); sys.stdin.readline()'\n"
        "os.execv(sys.executable, [sys.executable, '-S', '-c', code])\n"
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


def test_a_program_in_another_pid_namespace_has_the_hosts_number(tracer: ObjectTracer) -> None:
    body = "make_client(os.open('/dev/nvidiactl', os.O_RDWR)); print(os.getpid(), flush=True); sys.stdin.readline()"
    process = raw_program(body, "unshare", "--pid", "--fork")
    assert told(process) == "1"
    (born,) = (each for each in tracer.drain() if each.kind == "process")
    assert Path(f"/proc/{born.pid}/stat").read_text().rpartition(")")[2].split()[1] == str(process.pid)
    tell(process)
    process.wait()


def test_all_ways_to_allocate_and_free_agree_with_the_driver(tracer: ObjectTracer) -> None:
    words = [CLIENTS / "nvstorm", "--processes", "7", "--seconds", "1", "--idle-us", "2000"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    counts = kinds(tracer.drain())
    assert counts["process", True] == counts["process", False] == 7
    assert counts["client", True] == counts["client", False] == 14
    assert counts["object", True] == counts["object", False] >= 7 * 15
    assert not tracer.world.clients
    assert truth("objects") == 0


def test_the_command_tells_births_and_deaths() -> None:
    with tracing("objects", "--json") as trace:
        hog = Hog()
        assert hog.take(1)
        hog.end()
    assert trace.code == 0
    assert '"class": "NV01_MEMORY_LOCAL_USER"' in trace.out
    assert '"partial": []' in trace.out.splitlines()[-1]


def test_the_end_of_the_one_program_that_is_watched_ends_the_trace_and_is_told() -> None:
    hog = Hog()
    with tracing("objects", "--pid", str(hog.pid), "--count", ends=False) as trace:
        assert hog.take(1)
        hog.end()
    assert trace.code == 0
    assert re.search(r"^NV01_MEMORY_LOCAL_USER +1 +1$", trace.out, re.MULTILINE)
    assert f"partial: PID {hog.pid} has ended" in trace.err
    assert "partial: 1 program(s) were running before this trace" in trace.err


def test_programs_that_ran_before_make_the_view_partial() -> None:
    hog = Hog()
    assert hog.take(1)
    tracer = ObjectTracer(abi())
    try:
        assert hog.take(1)
        assert len(tracer.drain()) >= 1
        assert any("before this trace" in note for note in tracer.notes())
    finally:
        tracer.close()
        hog.end()


def test_no_event_is_lost_while_nobody_reads_and_a_small_ring_says_what_it_lost() -> None:
    """A second of 50 000 calls waits in the ring; in one of a page hardly anything does. More: bench ebpf-counts."""
    batches, calls = 6, 3847
    whole, small = ObjectTracer(abi()), ObjectTracer(abi(), ring_bytes=4096)
    try:
        begin = time.monotonic()
        words = [CLIENTS / "nvloop", "--kind", "client", "--batches", str(batches), "--calls", str(calls)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        took = time.monotonic() - begin
        events, lost = sum(1 for _ in whole.records()), small.trouble().lost
        pairs = (batches + 1) * calls  # nvloop warms up by one more batch
        print(f"{2 * pairs / took:.0f} calls/s")
        assert 2 * pairs >= 50_000
        assert whole.trouble().words() == []
        # besides: the descriptors, objects and the end of nvloop itself
        assert 2 * pairs < events < 2 * pairs + 50
        assert lost + sum(1 for _ in small.records()) == events
        assert f"{lost} event(s) lost: the ring was full" in small.notes()
    finally:
        whole.close()
        small.close()
