# SPDX-License-Identifier: Apache-2.0
"""What eBPF can do on this machine, and by which loader."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from detshare.ebpf import attach, libraries, loader, packing
from detshare.ebpf.bpf import Map, MapKind, MapSpec, lockdown, refused
from detshare.ebpf.errors import EbpfError


@dataclass(frozen=True, slots=True)
class Check:
    """`ok` None: neither good nor bad."""

    name: str
    ok: bool | None
    text: str
    advice: str = ""


_INITIAL = 0xEFFFFFFC
"""inode of the initial pid namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)"""


def foreign_pids() -> str:
    """What to say where the kernel's PIDs are not those of this process's namespace; empty where they are."""
    try:
        same = os.stat("/proc/self/ns/pid").st_ino == _INITIAL
    except OSError:
        return ""
    said = "this is not the initial pid namespace: PIDs are the host's, and programs cannot be looked up"
    return "" if same else said


def loading() -> Check:
    """Whether programs can be loaded, and how: what `detshare-ctl doctor` shows too. Never raises."""
    try:
        Map(MapSpec("doctor", MapKind.ARRAY, 4, 4, 1)).close()
        if lockdown():  # maps can be had all the same
            raise refused("load programs", OSError(errno.EPERM, os.strerror(errno.EPERM)))
        choice = loader.choices()[0]
    except EbpfError as error:
        return Check("ebpf", None, f"observers cannot be loaded: {error.why}", error.advice)
    if not choice.name:
        return Check("ebpf", None, f"observers cannot be loaded: {choice.why}", choice.advice)
    return Check("ebpf", True, f"observers are loaded by {choice.why}")


def checks() -> list[Check]:
    """Everything that detshare-trace needs, in the order in which to mend it. Never raises."""
    found = [loading()]
    try:
        folder = attach.events()
        ready = (folder / "syscalls" / "sys_enter_ioctl").is_dir()
        # one that is mounted nowhere has no place that would tell anybody anything
        where = "seen, though tracefs is not mounted" if folder.is_relative_to("/proc") else str(folder)
        found.append(
            Check(
                "tracepoints",
                ready,
                where if ready else "this kernel has no tracepoints of system calls",
                "" if ready else "`objects` needs CONFIG_FTRACE_SYSCALLS",
            )
        )
        module = (folder / "detshare").is_dir()
        found.append(Check("detshare:*", None, "there" if module else "not there: detshare.ko is not loaded"))
    except EbpfError as error:
        found.append(Check("tracepoints", False, error.why, error.advice))
    if absent := packing.missing():
        advice = "as root: apt-get install liblz4-1 libzstd1"
        text = f"{', '.join(absent)} not installed: of compressed images `dirty` cannot tell what kernels write"
        found.append(Check("images", False, text, advice))
    libs = libraries.installed()
    known = {each.identity for each in libs}
    libs += [each for each in libraries.of_programs() if each.identity not in known]
    found.append(
        Check("libcuda", bool(libs) or None, ", ".join(each.path for each in libs) or "none found",
              "" if libs else "`launches` and `dirty` need it: --libcuda FILE")
    )
    return found
