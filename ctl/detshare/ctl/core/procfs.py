# SPDX-License-Identifier: Apache-2.0
"""Processes and their /dev/nvidia* descriptors, read from /proc."""

from __future__ import annotations

import os
import pwd
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from detshare.ctl.core.driver import Gpu, Opener, ProcessId

NVIDIA_MAJOR = 195
"""Documentation/admin-guide/devices.txt of the kernel: 195 char, Nvidia graphics devices"""
CONTROL_MINOR = 255
"""minor of /dev/nvidiactl (kernel-open/common/inc/nv-linux.h, NV_CONTROL_DEVICE_MINOR)"""
MODESET_MINOR = 254
"""minor of /dev/nvidia-modeset; GPUs are below it"""
MPS_COMM = "nvidia-cuda-mps"
"""the first 15 bytes of nvidia-cuda-mps-server and nvidia-cuda-mps-control"""

_STATUS = re.compile(rb"^PPid:\s*(\d+)\n(?:.*\n)*?Uid:\s*(\d+)", re.MULTILINE)
"""parent and real user: a name, which comes before them, has no line of its own in status"""
_CONTAINER = re.compile(r"([0-9a-f]{64})")
_PAGE = 4096
"""more than stat has, 52 numbers and a name, and than status has before its list of groups"""
_START_FIELD = 19  # field 22 of stat, counted from the state field that follows the closing parenthesis


def _first(path: str) -> bytes:
    """What is at the begin of a file. OSError."""
    # of each program at each look, touch and answer: without Path and text it takes half as long
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _PAGE)
    finally:
        os.close(file)


def _whole(path: str) -> bytes:
    """What is in a file. OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while part := os.read(file, _PAGE):
            found += part
        return found
    finally:
        os.close(file)


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which process `pid` began; None if there is none."""
    try:
        line = _first(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = line.rpartition(b")")[2].split()
    if fields[0] == b"X" or (fields[0] == b"Z" and not _other_threads(pid)):
        return None  # it has closed its descriptors
    return int(fields[_START_FIELD])


def _other_threads(pid: int) -> bool:
    """Whether threads outlive their leader: main() left with pthread_exit."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


@lru_cache(maxsize=256)
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def nvidia_fds(pid: int) -> tuple[list[int], list[tuple[int, int]]]:
    """(nvidiactl descriptors, (descriptor, minor) of GPUs) of a process. OSError if it ended or may not be read."""
    control: list[int] = []
    devices: list[tuple[int, int]] = []
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{name}")
            if "nvidia" not in link or not link.startswith("/"):
                continue
            status = os.stat(f"{folder}/{name}")
        except OSError:
            continue  # closed between listing and reading
        if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == NVIDIA_MAJOR:
            minor = os.minor(status.st_rdev)
            if minor == CONTROL_MINOR:
                control.append(int(name))
            else:
                devices.append((int(name), minor))
    return sorted(control), sorted(devices)


@dataclass(frozen=True, slots=True)
class Name:
    """What a process is known by: a part of its Opener, as that has it."""

    id: ProcessId
    command: str
    container: str


def name(process: ProcessId) -> Name:
    """By three files of /proc at most. OSError if it ended."""
    base = f"/proc/{process.pid}"
    command = _argv(base) or f"[{_comm(base)}]"
    return Name(process, command, _cgroup(base)[1])


def _argv(base: str) -> str:
    return _whole(f"{base}/cmdline").rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")


def _comm(base: str) -> str:
    """Any bytes: a program names itself."""
    return _first(f"{base}/comm").removesuffix(b"\n").decode("utf-8", "replace")


def _cgroup(base: str) -> tuple[str, str]:
    """Path, and the container's id in it."""
    cgroup = _whole(f"{base}/cgroup").decode("utf-8", "replace").strip().rpartition(":")[2]
    return cgroup, container_id(cgroup)


def container_id(cgroup: str) -> str:
    """The id of the container that a cgroup is of; empty: of none that is known by 64 digits."""
    found = _CONTAINER.search(cgroup)
    return found[1] if found else ""


def describe(pid: int, start: int, control: list[int], devices: list[tuple[int, int]]) -> Opener:
    """The Opener of a process whose descriptors are known. OSError if it ended."""
    base = f"/proc/{pid}"
    comm = _comm(base)
    cgroup, container = _cgroup(base)
    status = _STATUS.search(_first(f"{base}/status"))
    return Opener(
        id=ProcessId(pid, start),
        parent=int(status[1]) if status else 0,
        command=_argv(base) or f"[{comm}]",
        comm=comm,
        user=_user(int(status[2]) if status else 0),
        cgroup=cgroup,
        container=container,
        control_fds=tuple(control),
        device_fds=tuple(devices),
        pid_namespace=os.stat(f"{base}/ns/pid").st_ino,
    )


def _information(path: Path) -> dict[str, str]:
    lines = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in lines}


def gpus(root: Path = Path("/proc/driver/nvidia/gpus")) -> list[Gpu]:
    """The GPUs that the driver lists, by minor."""
    found = []
    for path in sorted(root.glob("*/information")):
        try:
            info = _information(path)
        except OSError:
            continue
        uuid, minor = info.get("GPU UUID", ""), info.get("Device Minor", "")
        if uuid.startswith("GPU-") and minor.isdigit():
            found.append(Gpu(uuid, int(minor), info.get("Model", "?"), info.get("Bus Location", path.parent.name)))
    return sorted(found, key=lambda gpu: gpu.minor)


def bound(root: Path = Path("/sys/bus/pci/drivers/nvidia")) -> list[str]:
    """PCI addresses of the driver's devices, sorted; also of those that a container does not show in /proc."""
    return sorted(path.name for path in root.glob("*:*:*.*"))


def proof(modules: Path = Path("/sys/module")) -> str:
    """Proof level of what is seen through the loaded driver: "model" for our simulated one (tests/nvsim), "driver" for
    the genuine one on fake GPUs (tests/fakegpu), "gpu" else."""
    if (modules / "nvidia" / "parameters" / "heap_mb").exists():
        return "model"
    return "driver" if (modules / "fakegpu").exists() else "gpu"


def driver_version() -> str | None:
    """Version of the loaded nvidia.ko; None if none is loaded."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        pass
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else None
