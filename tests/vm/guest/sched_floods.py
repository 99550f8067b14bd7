# SPDX-License-Identifier: Apache-2.0
"""One tenant makes of everything as much as it can: what others pay for that, counted, and where it ends."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.gate_tools import GATES, Door, Gate
from tests.vm.guest.gate_tools import children as children_of
from tests.vm.guest.kmod_tools import leak
from tests.vm.guest.nvsim_rm import Rm, Uvm, status
from tests.vm.guest.nvsim_work import DOORBELL_SIZE, Doorbell, usermode
from tests.vm.guest.sched_bounds import KMSG, group, log_since, parameter
from tests.vm.guest.sched_hidden import Play, Programs, program
from tests.vm.guest.sched_stalled import LIBC
from tests.vm.guest.sched_tools import family, worker

__all__ = ["family", "program", "worker"]  # fixtures

TRACING = Path("/sys/kernel/tracing")
CROWD = 24
ROUNDS = 4
CLIENTS_OF_ONE, DOORS = 12, 3
FULL = status("NV_ERR_INSUFFICIENT_RESOURCES")


@contextmanager
def counted_calls(function: str) -> Iterator[list[int]]:
    """How often a function of the kernel is called within: the one number of the list, once it ends."""
    event = TRACING / "events" / "kprobes" / "flood"
    count = [0]
    (TRACING / "kprobe_events").write_text(f"p:flood {function}\n")
    (event / "trigger").write_text("hist:keys=common_type\n")
    yield count
    total = next(line for line in (event / "hist").read_text().splitlines() if "Hits:" in line)
    count[0] = int(total.split(":")[1])
    (event / "trigger").write_text("!hist:keys=common_type\n")
    (TRACING / "kprobe_events").write_text("")


def crowd(most: int) -> Play:
    """Programs with doorbells that children of theirs have inherited, and with those of one another."""
    first = Rm.start()
    kept = [Doorbell(first)]
    for _ in range(most):
        ready = os.eventfd(0)
        if not os.fork():
            kept.append(Doorbell(Rm.start()))
            os.fork()
            os.eventfd_write(ready, 1)
            signal.pause()
        os.eventfd_read(ready)
    yield {}


def zaps_of_a_hold(pid: int) -> int:
    with counted_calls("unmap_mapping_range") as count:
        for _ in range(ROUNDS):
            with Gate(pid):
                pass
    return count[0] // ROUNDS


def test_a_hold_takes_nothing_from_programs_that_it_does_not_concern(family: genl.DetShare, program: Programs) -> None:
    with Door() as neighbour:
        neighbour.do("kick", 0, 1)
        alone = zaps_of_a_hold(neighbour.pid)
        program(crowd, CROWD)
        assert alone, "nothing is counted"
        assert zaps_of_a_hold(neighbour.pid) == alone


def many_clients(clients: int, doors: int, heirs: int) -> Play:
    """A program with many clients, and children that have inherited all of its doorbells."""
    kept = [[Doorbell(rm) for _ in range(doors)] for rm in [Rm.start() for _ in range(clients)]]
    for _ in range(heirs):
        if not os.fork():
            signal.pause()
    yield {"kept": len(kept)}


def test_a_hold_takes_each_doorbell_of_a_program_once(family: genl.DetShare, program: Programs) -> None:
    """However many clients it has: each is held, and a child makes all their doorbells those of two."""
    alone, forked = program(many_clients, CLIENTS_OF_ONE, DOORS, 0), program(many_clients, CLIENTS_OF_ONE, DOORS, 1)
    assert zaps_of_a_hold(forked.pid) == zaps_of_a_hold(alone.pid) == CLIENTS_OF_ONE * DOORS


# ---- bounds -----------------------------------------------------------------------------


@contextmanager
def refusals(parameter_name: str) -> Iterator[None]:
    """One line of the log within names the parameter, or a few: not one for each refusal."""
    log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    yield
    lines = [line for line in log_since(log).splitlines() if f"parameter {parameter_name}" in line]
    os.close(log)
    assert 1 <= len(lines) <= 3


@pytest.fixture
def greedy(family: genl.DetShare, program: Programs) -> Iterator[Callable[..., dict[str, Any]]]:
    """greedy(PLAY, WORD...): what a program of a tenant says when it was let go on."""

    def play(play: Callable[..., Play], *words: object) -> dict[str, Any]:
        one = program(play, *words)
        family.tenant_set("greedy", one.pid)
        return one.ask()

    yield play
    family.tenant_del("greedy")


def clients(count: int) -> Play:
    """In a child of its own each, which is of the same tenant."""
    yield {}
    codes = []
    ends = []
    for _ in range(count):
        here, there = os.pipe()
        if not os.fork():
            rm = Rm(os.open("/dev/nvidiactl", os.O_RDWR))
            os.write(there, b"%d\n" % rm.alloc("NV01_ROOT", 0, 0, root=0)[0])
            signal.pause()
        codes.append(int(os.read(here, 32)))
        ends.append(here)
    yield {"codes": codes}


def test_a_tenant_has_so_many_clients(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("clients_max", 6), refusals("clients_max"):
        assert greedy(clients, 9)["codes"] == [0] * 6 + [FULL] * 3
        Rm.start().close()


def returning(count: int) -> Play:
    yield {}
    codes = []
    for _ in range(count):
        rm = Rm(os.open("/dev/nvidiactl", os.O_RDWR))
        codes.append(rm.alloc("NV01_ROOT", 0, 0, root=0)[0])
        rm.close()
    yield {"codes": codes}


def test_clients_that_are_gone_do_not_count(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("clients_max", 2):
        assert greedy(returning, 6)["codes"] == [0] * 6


def runs(most: int) -> Play:
    """Channel groups and doorbells of clients of their own: the last ones of those that have no run yet."""
    yield {}
    many = [Rm.start() for _ in range(most + 2)]
    codes = [group(each)[0] for each in many]
    bells = [each.map(usermode(each), DOORBELL_SIZE, each.open("nvidia0")) for each in many]
    many[0].close()
    yield {"groups": codes, "bells": bells, "again": group(many[-1])[0]}


def test_a_tenant_has_so_many_runs_on_a_gpu(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("runs_max", 3), refusals("runs_max"):
        said = greedy(runs, 3)
        assert said["groups"] == [0] * 3 + [FULL] * 2
        assert said["bells"] == [0] * 3 + [FULL] * 2
        assert said["again"] == 0
        other = Rm.start()
        assert group(other)[0] == 0, "another's"
        other.close()


def left_doors(most: int) -> Play:
    """Doorbells that outlive their clients."""
    yield {}
    bells, codes = [], []
    for _ in range(most + 2):
        rm = Rm.start()
        file = rm.open("nvidia0")
        codes.append(rm.map(usermode(rm), DOORBELL_SIZE, file))
        if not codes[-1]:
            bells.append(mmap.mmap(file, DOORBELL_SIZE))
        assert rm.free(rm.client) == 0
    yield {"codes": codes}


def test_doorbells_without_clients_count_as_runs(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("runs_max", 3):
        assert greedy(left_doors, 3)["codes"] == [0] * 3 + [FULL] * 2


def mappings(most: int) -> Play:
    """One doorbell mapped as often as it goes, another one, and children that inherit all of it."""
    yield {}
    rm = Rm.start()
    bell = Doorbell(rm)
    more, code = [], 0
    while not code:
        try:
            more.append(mmap.mmap(bell.fd, DOORBELL_SIZE))
        except OSError as error:
            code = error.errno or 0
    second = rm.map(usermode(rm), DOORBELL_SIZE, rm.open("nvidia0"))
    children = 4 * most
    for _ in range(children):
        if not os.fork():
            signal.pause()
    time.sleep(0.2)
    seen = sum(int(line.split()[line.split().index("mappings") + 1]) for line in GATES.read_text().splitlines())
    inherited = [pid for pid in children_of(os.getpid()) if "nvidia0" in Path(f"/proc/{pid}/maps").read_text()]
    yield {"mapped": len(more), "code": code, "second": second, "seen": seen, "inherited": len(inherited)}


def test_a_doorbell_has_so_many_mappings(greedy: Callable[..., dict[str, Any]]) -> None:
    most = 8
    with parameter("doors_max", most), refusals("doors_max"):
        said = greedy(mappings, most)
    # the doorbell itself counts, and so does its first mapping
    assert (said["mapped"], said["code"], said["second"]) == (most - 2, errno.ENOMEM, FULL)
    # of those that were there before the bound each may be inherited once
    assert said["inherited"] <= 1
    assert said["seen"] <= 2 * most


def inheriting(count: int) -> Play:
    """Children ring what they have inherited."""
    rm = Rm.start()
    bell = Doorbell(rm)
    yield {}
    codes = []
    for _ in range(count):
        child = os.fork()
        if not child:
            bell.at[0xF00] = 1
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])
    yield {"codes": codes}


def test_children_below_the_bound_share_doors(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("doors_max", 8):
        assert greedy(inheriting, 20)["codes"] == [0] * 20


def files(most: int) -> Play:
    yield {}
    rm = Rm.start()
    many = [Uvm(rm) for _ in range(most + 2)]
    codes = []
    for n, each in enumerate(many):
        at = 0x200000000 + n * 0x10000000
        found = LIBC.mmap(at, 1 << 21, 3, mmap.MAP_SHARED | 0x10, each.fd, at)
        codes.append(0 if found == at else ctypes.get_errno())
    yield {"codes": codes}


def test_a_tenant_has_so_many_files_with_managed_memory(greedy: Callable[..., dict[str, Any]]) -> None:
    with parameter("files_max", 3), refusals("files_max"):
        assert greedy(files, 3)["codes"] == [0] * 3 + [errno.ENOMEM] * 2


def test_nothing_is_counted_for_nobody() -> None:
    until(lambda: leak("clients") == 0)
    until(lambda: leak("bounds") == 0)
