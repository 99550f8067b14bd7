# SPDX-License-Identifier: Apache-2.0
"""Limits and orders that cannot be enforced: said once; with fail_closed=1 who has some is kept out."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from detshare.ctl.backends.module import module
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.records import Status
from tests.vm.guest.kmod_failures import Log
from tests.vm.guest.kmod_tools import PID, free_client, load, make_client, unload
from tests.vm.guest.nvsim_rm import Rm, truth

KPROBES = Path("/sys/kernel/debug/kprobes/enabled")
UVM_INITIALIZE = 0x30000001


def driver(without: str = "", **parameters: str) -> None:
    """Inserts the simulated driver; `without`: a function that it does not have by that name."""
    words = [f"{name}={value}" for name, value in parameters.items()]
    if not without:
        subprocess.run(["vm-load", "driver", *words], check=True)
        return
    changed = "/tmp/nvidia.ko"
    rename = f"{without}={without[:-1]}_"
    subprocess.run(["objcopy", "--redefine-sym", rename, os.environ["DETSHARE_VM_DRIVER_KO"], changed], check=True)
    subprocess.run(["insmod", changed, *words], check=True)
    subprocess.run(["insmod", os.environ["DETSHARE_VM_UVM_KO"]], check=True)


@contextmanager
def inserted(
    closed: int, without: str = "", module_options: dict[str, int] | None = None, **parameters: str
) -> Iterator[None]:
    driver(without, **parameters)
    load(fail_closed=closed, **(module_options or {}))
    try:
        yield
    finally:
        unload()
        subprocess.run(["vm-load", "-r", "driver"], check=True)


@contextmanager
def no_kprobes() -> Iterator[None]:
    KPROBES.write_text("0")
    try:
        yield
    finally:
        KPROBES.write_text("1")


def answer(call: Callable[[], object]) -> int:
    """0, or the errno."""
    try:
        call()
    except OSError as error:
        return error.errno or -1
    return 0


def asks() -> tuple[int, int, int]:
    """What a client, a mapping of the control file and managed memory are answered."""
    control = os.open("/dev/nvidiactl", os.O_RDWR)
    uvm = os.open("/dev/nvidia-uvm", os.O_RDWR)
    try:
        client = answer(lambda: free_client(control, make_client(control)))
        mapping = answer(lambda: mmap.mmap(control, mmap.PAGESIZE, mmap.MAP_SHARED).close())
        return client, mapping, answer(lambda: fcntl.ioctl(uvm, UVM_INITIALIZE, bytearray(16)))
    finally:
        os.close(control)
        os.close(uvm)


def as_child(order: Callable[[int], object] | None) -> tuple[int, ...]:
    """The same of a process for which something may be ordered before it begins."""
    ready, go = os.pipe()
    said, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(ready, 1)
            os.write(tell, bytes(asks()))
        finally:
            os._exit(0)
    if order is not None:
        order(pid)
    os.write(go, b"x")
    os.waitpid(pid, 0)
    os.set_blocking(said, False)
    answers = tuple(os.read(said, 3))
    for each in (ready, go, said, tell):
        os.close(each)
    return answers


def limit(pid: int) -> None:
    with genl.DetShare() as family:
        family.limit_set(1 << 30, kind=PID, pid=pid)


def klass(pid: int) -> None:
    with genl.DetShare() as family:
        family.sched_set(pid, "low")


def status() -> Status:
    link = Link()
    try:
        return link.status()
    finally:
        link.close()


LAPSES = {
    "unknown": ({"says": "999.1"}, "driver 999.1 is of a branch that is not known"),
    "untried": ({"says": "580.999"}, "driver 580.999 was never tried"),
    "hook": ({"without": "nvidia_vma_access"}, "nvidia:nvidia_vma_access (missing) is not hooked"),
    "probe": ({"without": "rm_ioctl"}, "rm_ioctl, cannot be hooked"),
    "entry": ({"without": "nvidia_unlocked_ioctl"}, "the driver's entry"),
    "filter": ({"module_options": {"filter": 0}}, "filter=0"),
    "kprobes": ({}, "disarmed its kprobes"),
}


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


@pytest.mark.parametrize("closed", [0, 1], ids=["open", "closed"])
@pytest.mark.parametrize("name", LAPSES)
def test_in_a_lapse(name: str, closed: int, log: Log) -> None:
    options, cause = LAPSES[name]
    # without its probe the module cannot put its own call in a program's place, which then fails for all
    unmanaged = errno.EINVAL if name == "kprobes" else 0
    with ExitStack() as stack:
        stack.enter_context(inserted(closed, **options))  # type: ignore[arg-type]  # by keyword
        if name == "kprobes":
            assert as_child(limit)[0] == 0
            stack.enter_context(no_kprobes())
        if name not in ("unknown", "untried", "probe", "entry") or closed:
            for order in (klass, limit):
                for _ in range(2):
                    client, mapping, uvm = as_child(order)
                    if closed:
                        assert (client, mapping, uvm) == (errno.EPERM,) * 3
                    else:
                        assert client == unmanaged
                        assert errno.EPERM not in (mapping, uvm)
        # who is not managed
        client, mapping, uvm = as_child(None)
        assert client == unmanaged
        assert errno.EPERM not in (mapping, uvm)
        said = status()
        assert any(cause in each for each in said.lapses)
        assert said.fail_closed is bool(closed)
        assert (said.closed > 0) is bool(closed)
        assert cause in " ".join(module.warnings(said))
        (check,) = (each for each in module.checks(Link()) if each.name == "enforcement")
        assert check.ok is False
        assert cause in check.detail
        assert ("are refused" in check.detail) is bool(closed)
        lines = log.lines()
        refusing = [line for line in lines if "are refused" in line]
        assert len(refusing) == closed
        others = [line for line in lines if line not in refusing and "limits are in force" not in line]
        assert len(others) == len(set(others)), "the same twice"
        if not closed:
            assert others, "nobody was told"


def test_without_kprobes_nobody_gets_memory_that_is_not_charged() -> None:
    with inserted(0):
        rm = Rm.start()
        try:
            limit(os.getpid())
            before = truth("used")
            with no_kprobes():
                codes = [answer(lambda: rm.memory(1 << 29)) for _ in range(3)]
            assert truth("used") == before
            assert codes == [errno.EINVAL] * 3
            assert rm.memory(1 << 29)[0] == 0
        finally:
            rm.close()


@pytest.mark.parametrize("untried", [False, True])
def test_where_all_holds_nobody_is_refused(untried: bool) -> None:
    with inserted(1, module_options={"untried_builds": 1}, says="580.999") if untried else inserted(1):
        for order in (None, klass, limit):
            client, mapping, uvm = as_child(order)
            assert client == 0
            assert errno.EPERM not in (mapping, uvm)
        said = status()
        assert (said.lapses, said.closed) == ((), 0)
        (check,) = (each for each in module.checks(Link()) if each.name == "enforcement")
        assert check.ok is True
        assert module.warnings(said) == ()


def test_what_was_opened_and_mapped_before_goes_no_further() -> None:
    """A program that is at work when the kernel switches its probes off."""
    with inserted(1):
        control = os.open("/dev/nvidiactl", os.O_RDWR)
        client = make_client(control)
        klass(os.getpid())
        free_client(control, client)
        with no_kprobes():
            assert answer(lambda: make_client(control)) == errno.EPERM
        free_client(control, make_client(control))
        os.close(control)
