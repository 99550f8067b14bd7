# SPDX-License-Identifier: Apache-2.0
"""Clients appear and vanish, on every driver and in both load orders. The module is loaded already."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.netlink import genl
from tests.patience import until
from tests.vm.guest.kmod_tools import (
    NV01_ROOT,
    NV01_ROOT_CLIENT,
    bind,
    family,
    free_client,
    leak,
    load,
    make_client,
    row,
    unload,
    vctxs,
)

__all__ = ["family"]  # a fixture


@pytest.fixture
def control() -> Iterator[int]:
    file = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    yield file
    os.close(file)


def test_what_is_in_force(family: genl.DetShare) -> None:
    status = row(family.status_get())
    assert status["mode"] == genl.DETSHARE_MODE_ENFORCE
    assert status["shield"] == 1
    assert status["driver_version"].split(".")[0] in ("535", "550", "580")
    assert "nvidia:rm_ioctl" in status["hook"]
    assert any(hook.endswith("_unlocked_ioctl") for hook in status["hook"])
    # memory that is kept without a handle: whoever keeps it is seen
    assert {
        "nvidia:nv_get_file_private",
        "nvidia:nvUvmInterfaceDupMemory",
        "nvidia:nvUvmInterfaceFreeDupedHandle",
        "nvidia:nv_dma_buf_dup_mem_handles",
        "nvidia:nv_dma_buf_undup_mem_handles",
        "nvidia:nv_dma_buf_release",
    } <= set(status["hook"])
    # doorbells: mapped, touched, looked into, inherited
    assert {
        "nvidia:nvidia_mmap",
        "nvidia:nvidia_fault",
        "nvidia:nvidia_vma_access",
        "nvidia:nvidia_vma_open",
        "nvidia:nvidia_vma_release",
        "nvidia:os_lookup_user_io_memory",
    } <= set(status["hook"])
    assert not [hook for hook in status["hook"] if "missing" in hook]


@pytest.mark.parametrize("root_class", [NV01_ROOT, NV01_ROOT_CLIENT])
def test_a_client_appears_and_vanishes(family: genl.DetShare, control: int, root_class: int) -> None:
    client = make_client(control, root_class)
    (found,) = vctxs(family, os.getpid())
    assert found["client"] == client
    assert found["comm"] == Path("/proc/self/comm").read_text().strip()
    assert found["start_time"] == int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    assert "gpu" not in found
    assert not found["partial"]
    free_client(control, client)
    assert vctxs(family) == []


def test_a_client_vanishes_with_its_process(family: genl.DetShare) -> None:
    code = (
        "import os, time\n"
        "from tests.vm.guest.kmod_tools import make_client\n"
        "file = os.open('/dev/nvidiactl', os.O_RDWR)\n"
        "print(make_client(file), flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    client = int(process.stdout.readline())
    assert [found["client"] for found in vctxs(family, process.pid)] == [client]
    process.kill()
    process.communicate()
    until(lambda: vctxs(family) == [])
    assert leak("objects") == 0
    assert leak("shadows") == 0


def test_the_client_stays_with_the_file_and_its_maker(family: genl.DetShare, control: int) -> None:
    client = make_client(control)
    copy = os.dup(control)
    child = os.fork()
    if not child:
        free = make_client(copy)  # on the parent's file, by the child: the child pays
        os._exit(0 if free else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(found["pid"] for found in vctxs(family)) == sorted([os.getpid(), child])
    assert [found["client"] for found in vctxs(family, os.getpid())] == [client]
    os.close(copy)
    free_client(control, client)


def test_a_bound_file_is_the_control_file_whoever_uses_it(family: genl.DetShare, control: int) -> None:
    bound = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    own = make_client(bound)  # before it is bound: on the file itself, and out of its reach from then on
    bind(bound, control)
    client = make_client(control)
    child = os.fork()
    if not child:
        try:
            os.close(control)
            free_client(bound, client)
            os._exit(0 if make_client(bound) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(found["pid"] for found in vctxs(family)) == sorted([os.getpid(), child])
    assert [found["client"] for found in vctxs(family, os.getpid())] == [own]
    (other,) = (found["client"] for found in vctxs(family, child))
    os.close(bound)
    assert [found["client"] for found in vctxs(family)] == [other]  # which was made on the control file
    free_client(control, other)
    assert vctxs(family) == []


def test_nobody_reaches_a_client_through_a_file_that_is_not_bound(family: genl.DetShare, control: int) -> None:
    client = make_client(control)
    stranger = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    for target in (stranger, -1):
        with pytest.raises(OSError, match="Invalid argument"):
            bind(stranger, target)
    with pytest.raises(AssertionError):
        free_client(stranger, client)
    assert [found["client"] for found in vctxs(family)] == [client]
    bind(stranger, control)
    with pytest.raises(OSError, match="Invalid argument"):  # once
        bind(stranger, control)
    free_client(stranger, client)
    assert vctxs(family) == []
    os.close(stranger)


def test_a_binding_older_than_the_module_is_found_by_the_client(control: int) -> None:
    bound = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    unload()
    bind(bound, control)
    load()
    with genl.DetShare() as family:
        client = make_client(control)
        assert [found["client"] for found in vctxs(family)] == [client]
        # on which file a client would be that is made through it is not known
        with pytest.raises(AssertionError):
            make_client(bound)
        free_client(bound, client)
        assert vctxs(family) == []
    os.close(bound)


def test_a_client_older_than_the_module_is_found_on_its_next_call(control: int) -> None:
    unload()
    client = make_client(control)
    load()
    with genl.DetShare() as family:
        assert vctxs(family) == []
        # any call that matters will do: this one makes another client on the file, the next one names the old one
        other = make_client(control)
        assert [found["client"] for found in vctxs(family)] == [other]
        free_client(control, client)
        assert [found["client"] for found in vctxs(family)] == [other]
        free_client(control, other)
        assert vctxs(family) == []


def refused_to_all() -> bool:
    """Is every request refused with EPERM?"""
    with genl.DetShare() as family:
        for ask in (family.status_get, family.vctx_get, lambda: family.tenant_set("x")):
            try:
                ask()
            except NetlinkError as error:
                if error.code == errno.EPERM:
                    continue
            return False
    return True


def test_nobody_but_root_is_answered() -> None:
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(0 if refused_to_all() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
