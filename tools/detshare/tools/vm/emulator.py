# SPDX-License-Identifier: Apache-2.0
"""Which QEMU starts guests: the host's where it is new enough, else one in the cache.

Before 8.1 QEMU translates code without holding its page. Where one CPU of a guest changes kernel text while another
runs it (ftrace, static keys), a breakpoint that is no longer there can stay in the translation: "Oops: int3".
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from detshare.tools.vm import cache
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import say

PROGRAM = "qemu-system-x86_64"
LEAST = (8, 1)
_SUITE = "bookworm-backports"
# the firmware is a package of its own, which the host's QEMU came with
_FIRMWARE = (Path("/usr/share/seabios"), Path("/usr/share/qemu"))


@functools.cache
def command() -> tuple[str, ...]:
    """QEMU's first words: program, and where its files lie. VmError when the host has none at all."""
    host = shutil.which(PROGRAM)
    if host is None:
        raise VmError("start a guest", f"{PROGRAM} is missing", "as root: apt-get install qemu-system-x86")
    found = version((host,))
    if found is None or found >= LEAST:
        return (host,)
    try:
        words = _cached()
    except VmError as error:
        return _old(host, found, str(error))
    return words if version(words) is not None else _old(host, found, "the newer one does not run on this machine")


def version(words: tuple[str, ...]) -> tuple[int, int] | None:
    """What it says of itself; None where it does not run or says something else."""
    try:
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.match(r"QEMU emulator version (\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match and not done.returncode else None


def _cached() -> tuple[str, ...]:
    def make(stage: Path) -> None:
        suite = Suite(_SUITE, "main")
        suite.update()
        suite.unpack(["qemu-system-x86", "qemu-system-common", "qemu-system-data"], stage)

    folder = cache.ensure("emulator/qemu", make)
    places = (folder / "usr" / "share" / "qemu", *_FIRMWARE)
    return (str(folder / "usr" / "bin" / PROGRAM), *(word for place in places for word in ("-L", str(place))))


def _old(host: str, found: tuple[int, int], reason: str) -> tuple[str, ...]:
    say(f"using QEMU {found[0]}.{found[1]}, under which a guest may die of a false int3: {reason}")
    return (host,)
