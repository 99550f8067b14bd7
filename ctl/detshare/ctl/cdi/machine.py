# SPDX-License-Identifier: Apache-2.0
"""What this machine has for containers: device files of GPUs, the driver's libraries, our library."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import detshare.runtime
from detshare.ctl.core import native, procfs
from detshare.ctl.core.errors import ControlError

__all__ = ["Machine", "find"]

LIBRARY: Final = "libdetshare.so"
# NVIDIA's for computing; those for drawing and for the host's own tools have no use in a container
_DRIVER: Final = re.compile(r"lib(cuda|cudadebugger|nvidia-(ml|ptxjitcompiler|nvvm|gpucomp|nvvm70))\.so\..+")
_FOLDERS: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")
"""where loaders look, most special first; a container's that looks elsewhere is told by ldconfig"""
_NAMED: Final = re.compile(r"nvidia([0-9]+)")


@dataclass(frozen=True, slots=True)
class Machine:
    """Paths are the host's."""

    gpus: dict[int, str]
    """device file of each GPU, by its number"""
    control: tuple[str, ...]
    """device files that every program needs besides"""
    driver: tuple[tuple[str, str], ...] = ()
    """libraries of the driver that is loaded: the file, and the name by which programs find it"""
    library: str = ""
    """libdetshare.so; empty: there is none"""


def find(asked: str, dev: Path = Path("/dev"), folders: tuple[str, ...] = _FOLDERS) -> Machine:
    """ControlError where no container could use a GPU of this machine."""
    gpus = {int(named[1]): str(path) for path in sorted(dev.glob("nvidia*"))
            if (named := _NAMED.fullmatch(path.name)) and _minor(path) == int(named[1])}  # fmt: skip
    control = [path for name in ("nvidiactl", "nvidia-uvm") if stat_of(path := dev / name) is not None]
    if not gpus or len(control) < 2:
        there = ", ".join(sorted(path.name for path in dev.glob("nvidia*"))) or "none"
        stopped = f"a container needs {dev}/nvidiactl, {dev}/nvidia-uvm and a GPU such as {dev}/nvidia0"
        stopped += f"; there are: {there}"
        raise ControlError(asked, stopped, "make them: nvidia-modprobe -c0 -u, or run nvidia-smi once")
    version = procfs.driver_version()
    found = native.folder(detshare.runtime.__file__, LIBRARY) / LIBRARY
    return Machine(
        gpus=dict(sorted(gpus.items())),
        control=tuple(map(str, control)),
        driver=tuple(_libraries(version, folders)) if version else (),
        library=str(found) if found.is_file() else "",
    )


def stat_of(path: Path) -> os.stat_result | None:
    """Of a character device; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found if stat.S_ISCHR(found.st_mode) else None


def _minor(path: Path) -> int | None:
    found = stat_of(path)
    return None if found is None or os.major(found.st_rdev) != procfs.NVIDIA_MAJOR else os.minor(found.st_rdev)


def _libraries(version: str, folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Files of this version by all names that they have in the first folder that has any."""
    for folder in map(Path, folders):
        found = []
        for path in sorted(folder.glob("lib*.so.*")):
            real = path.resolve()
            if _DRIVER.fullmatch(path.name) and real.name.endswith(f".so.{version}") and real.is_file():
                found.append((str(real), str(path)))
        if found:
            yield from found
            return
