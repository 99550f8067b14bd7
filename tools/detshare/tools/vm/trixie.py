# SPDX-License-Identifier: Apache-2.0
"""The QEMU of Debian 13's backports, which maps a back end's files into a guest.

It is run by its own release's loader and libraries: the host's may be older.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from detshare.tools.vm import cache
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.emulator import PROGRAM
from detshare.tools.vm.errors import VmError

RELEASE, BACKPORTS = "trixie", "trixie-backports"
LEAST = (11, 1)  # VHOST_USER_BACKEND_SHMEM_MAP
_OWN = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
_LIBRARY = re.compile(r"lib|zlib1g")
_FIRMWARE = ("usr/share/qemu", "usr/share/seabios")
# what a q35 machine without a display and a network reads of them
FIRMWARE_FILES = ("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin", "linuxboot.bin")


def folder() -> Path:
    """The unpacked packages: QEMU, its firmware, the libraries that it needs."""

    def make(stage: Path) -> None:
        newer, release = Suite(BACKPORTS, "main"), Suite(RELEASE, "main")
        newer.update()
        release.update()
        newer.unpack(list(_OWN), stage)
        release.unpack(closure(release, list(newer.package(_OWN[0]).depends)), stage)

    return cache.ensure("emulator/qemu-trixie", make)


def closure(suite: Suite, names: list[str]) -> list[str]:
    """Those of the names that are libraries, and the libraries that they depend on; nothing to compile against."""
    found: dict[str, None] = {}
    while names:
        name = names.pop()
        if name not in found and _LIBRARY.match(name) and not name.endswith("-dev"):
            found[name] = None
            names += suite.package(name).depends
    return sorted(found)


def loader(root: Path) -> Path:
    """The release's ld.so below `root`."""
    return libraries(root) / "ld-linux-x86-64.so.2"


def libraries(root: Path) -> Path:
    """Where the release keeps its libraries, below `root`."""
    return root / "usr" / "lib" / "x86_64-linux-gnu"


def needed(root: Path) -> list[Path]:
    """The library files that QEMU is linked with, by the loader itself."""
    program = root / "usr" / "bin" / PROGRAM
    words = [str(loader(root)), "--library-path", str(libraries(root)), "--list", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    paths = [Path(path) for path in re.findall(r"=> (/\S+)", done.stdout)]
    if done.returncode or not paths or not all(path.is_relative_to(root) for path in paths):
        raise VmError(
            "find QEMU's libraries", done.stderr.strip() or done.stdout, "detshare-vm clean, and run it again"
        )
    return paths


def command() -> tuple[str, ...]:
    """QEMU's first words."""
    root = folder()
    words = (str(loader(root)), "--library-path", str(libraries(root)), str(root / "usr" / "bin" / PROGRAM))
    return (*words, *(word for place in _FIRMWARE for word in ("-L", str(root / place))))
