# SPDX-License-Identifier: Apache-2.0
"""The cache folder. What has its final name in it is complete: things are made under another name and renamed.

Layout, below `root()`: apt/ (package lists), emulator/ (QEMU), kernel/, driver/, build/ (modules), boot/ (initramfs
images), monitor/ (Prometheus), root/ (Debian roots of tests/debian), lock/.
Everything may be deleted at any time when no detshare-vm runs; it is made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import pwd
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import say

_USERS = "running guests"
PARTS = ("apt", "emulator", "kernel", "driver", "build", "boot", "monitor", "root", "lock")


def _home() -> str:
    """$HOME, else what the system says; a container's user may have neither."""
    try:
        return os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError as error:
        stopped = f"HOME is not set, and user {os.getuid()} has no home folder"
        raise VmError("find the cache folder", stopped, "set DETSHARE_CACHE to a folder of yours") from error


def root() -> Path:
    """$DETSHARE_CACHE, else ~/.cache/detshare; made when it is missing."""
    told = os.environ.get("DETSHARE_CACHE")
    folder = Path(told or f"{os.environ.get('XDG_CACHE_HOME') or f'{_home()}/.cache'}/detshare").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VmError(
            f"make the cache folder {folder}", str(error), "set DETSHARE_CACHE to a folder of yours"
        ) from error
    if " " in str(folder) or ":" in str(folder):
        raise VmError(
            f"use the cache folder {folder}",
            "make cannot build in a path with a space or a colon",
            "set DETSHARE_CACHE to another folder",
            usage=True,
        )
    return folder


@contextmanager
def lock(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Holds the cache's lock of that name against other processes; yields False when it is taken and `wait` is not set.

    The kernel drops the lock when its holder dies, so an interrupted run leaves none behind.
    """
    folder = root() / "lock"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / name.replace("/", "_"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                yield False
                return
            say(f"waiting for another detshare-vm that prepares {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield True
    finally:
        os.close(file)


@contextmanager
def in_use() -> Iterator[None]:
    """While it is held, `clean` does not remove anything: guests read from the cache."""
    folder = root() / "lock"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / _USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def ensure(name: str, make: Callable[[Path], None]) -> Path:
    """The thing of that name below root(); made once by `make`, which is given a path to fill with a file or a folder.

    Two processes that want the same thing: one makes it, the other waits. What an interrupted `make` left is removed,
    as far as programs that it started, and that outlived it, do not still write there: each attempt has its own place.
    """
    target = root() / name
    if _used(target):
        return target
    with lock(name):
        if _used(target):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".part-{glob.escape(target.name)}.*"):
            shutil.rmtree(left, ignore_errors=True)
            with contextlib.suppress(IsADirectoryError):  # also one that is written anew just now
                left.unlink(missing_ok=True)
        stage = target.with_name(f".part-{target.name}.{os.getpid()}.{time.monotonic_ns():x}")
        try:
            make(stage)
            stage.rename(target)
        except BaseException:
            remove(stage)
            raise
    return target


def present(name: str) -> Path | None:
    """The thing of that name below root(), if somebody made it."""
    target = root() / name
    return target if _used(target) else None


def _used(target: Path) -> bool:
    """Whether it is there; if so it counts as used now, which `clean --older-than` looks at."""
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    except OSError:
        return target.exists()
    return True


def remove(path: Path) -> None:
    """Removes a file or a tree; absent is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def key(*parts: str | bytes) -> str:
    """A short name for exactly these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:24]


def key_of_files(base: Path, files: Iterable[Path]) -> str:
    """A short name for the names below `base`, kinds, and contents of these files."""
    parts: list[str | bytes] = []
    for file in sorted(files):
        mode = "x" if os.access(file, os.X_OK) else "-"
        parts += [f"{mode}{file.relative_to(base)}", file.read_bytes()]
    return key(*parts)


def clean(older_than_days: float | None = None) -> str:
    """Removes everything, or only builds unused for so many days; how much that was, in words.

    VmError when another process prepares something or a guest runs: its lock is the proof.
    """
    base = root()
    freed = 0
    with ExitStack() as held:
        for file in sorted((base / "lock").glob("*")):
            if not held.enter_context(lock(file.name, wait=False)):
                raise VmError(
                    "empty the cache", f"another detshare-vm holds it ({file.name})", "wait until it has ended"
                )
        if older_than_days is None:
            victims = [base / part for part in PARTS if part != "lock"]
        else:
            limit = time.time() - older_than_days * 86400
            victims = [path for path in (base / "build").glob("*") if path.stat().st_mtime < limit]
        for victim in victims:
            freed += _size(victim)
            remove(victim)
    return f"{freed / 1e6:.0f} MB"


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size if path.exists() else 0
    return sum(Path(where, name).lstat().st_size for where, _, names in os.walk(path) for name in names)
