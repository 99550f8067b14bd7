# SPDX-License-Identifier: Apache-2.0
"""Debian 13's compiler and pahole, for kernels whose build tools this machine's libraries are too old for.

Like QEMU of `trixie.py` they are run by their own release's loader: each program becomes a script that calls it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from detshare.tools.vm import cache, trixie
from detshare.tools.vm.debian import Suite

_PACKAGES = ("gcc-14-x86-64-linux-gnu", "cpp-14-x86-64-linux-gnu", "pahole")
# what programs of linux-kbuild are linked with besides
_LIBRARIES = ("libelf1t64", "libssl3t64", "zlib1g")
_GCC = "usr/bin/x86_64-linux-gnu-gcc-14"


def folder() -> Path:
    """The unpacked packages, their programs run by their own loader."""
    name = f"compiler/gcc-14-{cache.key(*_PACKAGES, *_LIBRARIES, trixie.RELEASE)}"

    def make(stage: Path) -> None:
        suite = Suite(trixie.RELEASE, "main")
        suite.update()
        needed = [each for name in _PACKAGES for each in suite.package(name).depends]
        suite.unpack([*_PACKAGES, *trixie.closure(suite, [*needed, *_LIBRARIES])], stage)
        final = cache.root() / name
        for below in ("usr/bin", "usr/libexec"):
            wrap(stage / below, trixie.loader(final), trixie.libraries(final))

    return cache.ensure(name, make)


def gcc() -> str:
    """The compiler."""
    return str(folder() / _GCC)


def pahole() -> str:
    """What writes a module's BTF."""
    return str(folder() / "usr" / "bin" / "pahole")


def adapt(programs: Path) -> None:
    """Makes the programs below a folder, of linux-kbuild, run on this machine."""
    root = folder()
    wrap(programs, trixie.loader(root), trixie.libraries(root))


def wrap(programs: Path, loader: Path, libraries: Path) -> None:
    """Replaces each ELF program below `programs` by a script that runs it by `loader`.

    Programs find what belongs to them by their own name, so they are told the script's.
    """
    for program in [path for path in programs.rglob("*") if path.is_file() and not path.is_symlink()]:
        if not program.stat().st_mode & 0o100 or program.read_bytes()[:4] != b"\x7fELF":
            continue
        program.rename(program.with_name(f"{program.name}.elf"))
        words = shlex.join([str(loader), "--library-path", str(libraries)])
        program.write_text(f'#!/bin/sh\nexec {words} --argv0 "$0" "$0.elf" "$@"\n', encoding="utf-8")
        program.chmod(0o755)
