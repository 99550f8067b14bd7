# SPDX-License-Identifier: Apache-2.0
"""Fresh Debian roots: made once by mmdebstrap, kept in the test bed's cache, unpacked for each test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from detshare.tools.vm import cache, debian
from tests import patience

SUITES: Final = {"12": "bookworm", "13": "trixie"}
_COMMANDS: Final = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "mke2fs": "e2fsprogs", "openssl": "openssl"}
_INSIDE: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "DEBIAN_FRONTEND": "noninteractive",
}
# /dev is the root's own; what is mounted goes with the name space
_ENTER: Final = """\
set -e
mount -t proc proc "$1/proc"
mount -t sysfs -o ro sysfs "$1/sys"
mount --bind "$2" "$1/var/cache/apt/archives"
exec chroot "$1" bash -c "$3"
"""


def skip_without(*commands: str) -> None:
    """Install by apt what this machine lacks to make or enter a root; skip, with the reason, where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it unpacks and enters a Debian root")
    install([_COMMANDS[each] for each in commands if shutil.which(each) is None])


def install(packages: Sequence[str]) -> None:
    """Install packages by apt where we may, as `make setup` does; else skip, with the line that would."""
    if not packages:
        return
    words = [
        "apt-get",
        "-qq",
        "-o",
        "DPkg::Lock::Timeout=120",
        "install",
        "--yes",
        "--no-install-recommends",
        *packages,
    ]
    said = "apt-get is not here, or we are not root"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # a fresh image has no package lists
        for before in ([], ["apt-get", "-qq", "update"]):
            if before:
                patience.run(before, capture_output=True)
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = patience.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=quiet)
            if done.returncode == 0:
                return
            said = done.stderr.strip()[-300:]
    why = f"needs {', '.join(packages)} ({said}); as root: {' '.join(words)}"
    if os.environ.get("CI"):  # there nothing is left out for want of a package
        pytest.fail(why)
    pytest.skip(why)


def packed(release: str, packages: Iterable[str] = ()) -> Path:
    """A tar file of a minimal root of that release of Debian ("12"), with these packages too."""
    names = sorted({"sudo", *packages})
    suite = SUITES[release]

    def make(stage: Path) -> None:
        words = ["mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={','.join(names)}"]
        done = patience.run([*words, suite, str(stage), debian.mirror()], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"mmdebstrap {suite}: {done.stderr[-2000:]}")

    return cache.ensure(f"root/{suite}-{cache.key(*names)}.tar", make)


def archives(release: str) -> Path:
    """Where apt keeps what it fetched for that release, so that it is fetched once."""
    folder = cache.root() / "root" / f"{SUITES[release]}-archives"
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    return folder


class Root:
    """A root in a folder of its own. Commands run as root, in name spaces of their own; none outlives its call."""

    def __init__(self, release: str, folder: Path, packages: Iterable[str] = ()) -> None:
        self.release, self.folder = release, folder
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-C", str(folder), "-xf", str(packed(release, packages))], check=True)
        shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")

    def run(self, command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A line for bash; output and errors are one text."""
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", _ENTER, "enter"]
        words += [str(self.folder), str(archives(self.release)), command]
        # apt does not wait for who else fetches into the same folder
        with cache.lock(f"{SUITES[self.release]}-archives") if "apt-get" in command else contextlib.nullcontext():
            done = patience.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**_INSIDE, **(env or {})},
            )
        print(f"# {command}\n{done.stdout}", end="")  # shown by pytest where the test fails
        return done

    def does(self, command: str, env: Mapping[str, str] | None = None) -> str:
        """The same; what it said. AssertionError where it fails."""
        done = self.run(command, env)
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
        return str(done.stdout)

    def files(self) -> set[str]:
        """All paths of the root, but for what any package changes: apt's state, caches and logs."""
        passing = ("proc/", "sys/", "dev/", "run/", "tmp/", "var/cache/", "var/log/", "var/lib/apt/", "var/lib/dpkg/")
        found = (str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return {name for name in found if not name.startswith(passing)}
