# SPDX-License-Identifier: Apache-2.0
"""Kernel modules built against a cached kernel. Sources are copied to the cache first, so nothing is left beside them.

A build's name is a hash of its sources, kernel and compiler: the same input is built once, whoever asks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from detshare.tools.vm import cache
from detshare.tools.vm.checkout import TOP
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.say import step
from detshare.tools.vm.toolchain import CHECKED, compiler_version, failure, programs

_FORMAT = "2"  # changes when the same sources shall be built in another way
_KEPT = 8  # builds of one module for one kernel
_MADE = {".o", ".ko", ".mod", ".cmd", ".a", ".d", ".pyc", ".rej", ".orig", ".swp"}
_MADE_NAMES = {"Module.symvers", "modules.order", "__pycache__", ".tmp_versions"}


def sources(folder: Path) -> tuple[Path, list[Path]]:
    """What a build of `folder` may read: the base that paths are relative to, and the files.

    The root of the checkout is detshare.ko, whose Kbuild reads kmod/ only. A module elsewhere is its own folder; in the
    checkout it gets kmod/ too (the plain C core, the user-space header) when it names something there.
    """
    folder = folder.resolve()
    if not (folder / "Kbuild").is_file() and not (folder / "Makefile").is_file():
        raise VmError(
            f"build the module in {folder}", "there is no Kbuild or Makefile", "name the folder of a module", usage=True
        )
    if folder == TOP:
        files = [TOP / "Kbuild", *_walk(TOP / "kmod")]
        base = TOP
    elif folder.is_relative_to(TOP):
        files, base = _walk(folder), TOP
        if any(b"kmod/" in file.read_bytes() for file in files):
            files = [*{*files, *_walk(TOP / "kmod")}]
    else:
        files, base = _walk(folder), folder
    return base, [file for file in files if file.is_file()]


def _walk(folder: Path) -> list[Path]:
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _MADE_NAMES and not name.startswith(".")]
        for name in names:
            made = Path(name).suffix in _MADE or name in _MADE_NAMES or name.endswith(".mod.c")
            if not made and not name.startswith("."):
                found.append(Path(where, name))
    return found


def build(folder: Path, kernel: Kernel, *variables: str) -> Path:
    """The folder of the cache that holds the module(s) of `folder` for that kernel; make variables as NAME=VALUE.

    Without variables one that sparse read too will do.
    """
    base, files = sources(folder)
    inside = folder.resolve().relative_to(base)
    label = folder.resolve().name if inside != Path() or base != TOP else "detshare"
    made_by = compiler_version(newer=kernel.newer)
    what = (cache.key_of_files(base, files), str(inside), kernel.release, str(kernel.root), made_by)

    def named(variables: Sequence[str]) -> str:
        return f"build/{label}-{kernel.release}-{cache.key(_FORMAT, *what, *variables)}"

    def make(stage: Path) -> None:
        for file in files:
            to = stage / file.relative_to(base)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, to)
        with step(f"building {label} for {kernel.release}"):
            # a WARN names kmod/x.c, not a folder of the cache
            paths = f"KCFLAGS=-ffile-prefix-map={stage}/="
            asked = f"build {folder} for {kernel.release}"
            run_make(stage / inside, kernel, asked, paths, *variables, shown=(stage, base))
        if not any((stage / inside).glob("*.ko")):
            raise VmError(
                f"build {folder} for {kernel.release}", "make ended well and made no .ko", "check the Kbuild's obj-m"
            )
        for left in [*stage.rglob("*.o"), *stage.rglob(".*.cmd")]:  # ten times the size of what they made
            left.unlink()

    made = None if variables else cache.present(named(CHECKED))
    made = made or cache.ensure(named(variables), make)
    _drop_old(made.parent, f"{label}-{kernel.release}-")
    return made / inside


def _drop_old(folder: Path, prefix: str) -> None:
    """Forgets builds of earlier sources: those beyond the newest eight, unused for a day."""
    limit = time.time() - 86400
    known = [(path.stat().st_mtime, path) for path in folder.glob(f"{prefix}*")]
    for used, path in sorted(known, reverse=True)[_KEPT:]:
        if used < limit:
            cache.remove(path)


def run_make(folder: Path, kernel: Kernel, asked: str, *variables: str, shown: tuple[Path, Path] | None = None) -> None:
    """`make modules` of an external module; its output is kept in build.log and told when it fails.

    `shown` (copy, original): errors name the original's files instead of the copy's.
    """
    if not kernel.newer and shutil.which("pahole") is None and (kernel.headers / "vmlinux").exists():
        raise VmError(asked, "pahole is missing (it writes the modules' BTF)", "as root: apt-get install dwarves")
    words = ("make", "-C", str(kernel.headers), f"M={folder}", f"-j{os.cpu_count()}", *programs(newer=kernel.newer))
    command = [*words, *variables]
    log_file = folder / "build.log"
    with log_file.open("w", encoding="utf-8") as log:
        rc = subprocess.run([*command, "modules"], stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if rc:
        text = log_file.read_text(encoding="utf-8", errors="replace")
        if shown is not None:
            text = text.replace(str(shown[0]), str(shown[1]))
        raise VmError(asked, failure(text), "mend the sources and run it again")


def depends(module: Path) -> list[str]:
    """The modules that this one says it depends on."""
    return [name for name in said(module, "depends").split(",") if name]


def said(module: Path, what: str) -> str:
    """What a module says of itself under that name, as modinfo shows it; "" for nothing."""
    data, name = module.read_bytes(), f"\0{what}=".encode()
    start = data.find(name)
    return "" if start < 0 else data[start + len(name) : data.index(b"\0", start + 1)].decode()
