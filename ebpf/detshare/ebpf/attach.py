# SPDX-License-Identifier: Apache-2.0
"""Attaching loaded programs: perf_event_open(2) for tracepoints and uprobes, bpf(2) for the rest."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from functools import cache
from pathlib import Path

from detshare.ebpf.bpf import link_perf_event, open_raw_tracepoint, refused
from detshare.ebpf.errors import EbpfError

_NR_PERF_EVENT_OPEN = 298  # x86-64
_NR_FSOPEN, _NR_FSCONFIG, _NR_FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_FSCONFIG_CMD_CREATE = 6
_TYPE_TRACEPOINT = 2
_CLOEXEC = 8
_IOC_ENABLE, _IOC_SET_BPF = 0x2400, 0x40042408
_ATTR = 112  # PERF_ATTR_SIZE_VER5
_TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_PROBES = Path("/sys/bus/event_source/devices")


def _open_event(kind: int, config: int, pid: int, config1: int = 0, config2: int = 0) -> int:
    attributes = struct.pack("<IIQQQQQIIQQ", kind, _ATTR, config, 1, 0, 0, 0, 1, 0, config1, config2)
    block = ctypes.create_string_buffer(attributes.ljust(_ATTR, b"\0"), _ATTR)
    libc = ctypes.CDLL(None, use_errno=True)
    cpu = 0 if pid < 0 else -1
    fd = int(libc.syscall(_NR_PERF_EVENT_OPEN, block, pid, cpu, -1, _CLOEXEC))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _run(fd: int, program: int) -> int:
    try:
        fcntl.ioctl(fd, _IOC_SET_BPF, program)
        fcntl.ioctl(fd, _IOC_ENABLE, 0)
    except OSError:
        os.close(fd)
        raise
    return fd


@cache
def _own_tracefs() -> Path | None:
    """One of this process's own, which is mounted nowhere and ends with it; None where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened = int(libc.syscall(_NR_FSOPEN, b"tracefs", _FSOPEN_CLOEXEC))
    if opened < 0:
        return None
    try:
        if libc.syscall(_NR_FSCONFIG, opened, _FSCONFIG_CMD_CREATE, None, None, 0) < 0:
            return None
        mounted = int(libc.syscall(_NR_FSMOUNT, opened, _FSMOUNT_CLOEXEC, 0))
    finally:
        os.close(opened)
    return Path(f"/proc/self/fd/{mounted}") if mounted >= 0 else None


def events() -> Path:
    """Where the kernel lists its tracepoints, whether tracefs is mounted or not; EbpfError where it cannot be had."""
    for folder in _TRACEFS:
        if (folder / "events").is_dir():
            return folder / "events"
    own = _own_tracefs()
    if own is not None and (own / "events").is_dir():
        return own / "events"
    raise EbpfError(
        "find the kernel's tracepoints",
        "tracefs is not mounted, or not for us",
        "as root: mount -t tracefs tracefs /sys/kernel/tracing",
    )


def has_tracepoint(name: str) -> bool:
    """Whether there is a tracepoint GROUP/EVENT."""
    return (events() / name).is_dir()


def tracepoint(name: str, program: int) -> int:
    """The program runs at tracepoint GROUP/EVENT until the descriptor is closed."""
    asked = f"attach to the tracepoint {name}"
    try:
        number = int((events() / name / "id").read_text())
    except FileNotFoundError:
        raise EbpfError(
            asked, "this kernel has none of that name", "syscalls:* need CONFIG_FTRACE_SYSCALLS, detshare:* detshare.ko"
        ) from None
    except OSError as error:
        raise refused(asked, error) from error
    try:
        return _run(_open_event(_TYPE_TRACEPOINT, number, -1), program)
    except OSError as error:
        raise refused(asked, error) from error


@cache
def _probe_type(name: str) -> tuple[int, int]:
    """(perf type, bit of config for return probes) of uprobe or kprobe"""
    try:
        kind = int((_PROBES / name / "type").read_text())
        bit = int((_PROBES / name / "format" / "retprobe").read_text().strip().removeprefix("config:"))
    except OSError:
        raise EbpfError(
            "attach to functions", f"this kernel has no {name}s", f"it needs CONFIG_{name.upper()}_EVENTS"
        ) from None
    return kind, bit


def _probe(kind: str, place: str, offset: int, program: int, cookie: int, on_return: bool, pid: int) -> tuple[int, int]:
    number, bit = _probe_type(kind)
    name = ctypes.create_string_buffer(os.fsencode(place))
    try:
        fd = _open_event(number, 1 << bit if on_return else 0, pid, ctypes.addressof(name), offset)
        try:
            return fd, link_perf_event(fd, program, cookie)
        except OSError:
            os.close(fd)
            raise
    except OSError as error:
        raise refused(f"attach to {place}" + (f" at {offset:#x}" if offset else ""), error) from error


def uprobe(
    path: str, offset: int, program: int, *, cookie: int = 0, on_return: bool = False, pid: int = -1
) -> tuple[int, int]:
    """The program runs when `offset` of that file is executed, by that process or any, until both descriptors are
    closed. `cookie` is what it reads by bpf_get_attach_cookie (Linux 5.15)."""
    return _probe("uprobe", path, offset, program, cookie, on_return, pid)


def kprobe(function: str, program: int, *, cookie: int = 0, on_return: bool = False) -> tuple[int, int]:
    """The same for a function of the kernel or of a module, by its name."""
    return _probe("kprobe", function, 0, program, cookie, on_return, -1)


def raw_tracepoint(name: str | None, program: int) -> int:
    """As tracepoint(), without the kernel's formatting; None: the function that the program was loaded for."""
    return open_raw_tracepoint(name, program)
