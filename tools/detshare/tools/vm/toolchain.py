# SPDX-License-Identifier: Apache-2.0
"""The host's programs that kernels and modules are built with."""

from __future__ import annotations

import functools
import shutil
import subprocess

from detshare.tools.vm import compiler as newer_compiler
from detshare.tools.vm.errors import VmError

CHECKED = ("C=2", "CHECK=sparse -Wsparse-error")
"""Make variables with which a build fails on what sparse finds. The module that they make is the same."""


@functools.cache
def compiler(*, newer: bool = False) -> str:
    """The C compiler for modules: the one Debian built these kernels with where it is there, else gcc.

    `newer`: Debian 13's, from the cache.
    """
    if newer:
        return newer_compiler.gcc()
    found = next((name for name in ("gcc-12", "gcc") if shutil.which(name)), None)
    if found is None or shutil.which("make") is None:
        raise VmError("build a kernel module", "gcc or make is missing", "as root: apt-get install gcc make")
    return found


@functools.cache
def compiler_version(*, newer: bool = False) -> str:
    """Its first line of --version; part of each build's name."""
    words = [compiler(newer=newer), "--version"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def programs(*, newer: bool) -> tuple[str, ...]:
    """Make variables that name the compiler, and what writes the modules' BTF where that is not this machine's."""
    named = f"CC={compiler(newer=newer)}"
    return (named, f"PAHOLE={newer_compiler.pahole()}") if newer else (named,)


def sparse() -> tuple[str, ...]:
    """CHECKED; VmError where there is no sparse."""
    if shutil.which("sparse") is None:
        raise VmError("check a kernel module", "sparse is missing", "as root: apt-get install sparse")
    return CHECKED


def failure(log: str, lines: int = 60) -> str:
    """The part of a build's output that tells what went wrong."""
    kept = [line for line in log.splitlines() if not line.lstrip().startswith(("CC ", "LD ", "CC [M]", "LD [M]"))]
    first = next((n for n, line in enumerate(kept) if "error:" in line or "Error " in line), max(0, len(kept) - lines))
    start = max(0, first - 4)
    return "make failed:\n" + "\n".join(kept[start : start + lines])
