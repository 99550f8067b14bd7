# SPDX-License-Identifier: Apache-2.0
"""CO-RE objects from the sources in ebpf/: `python -m detshare.ebpf.build`. Needs clang and libbpf's headers."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detshare.ctl.core import native
from detshare.ebpf.errors import EbpfError

FOLDER = native.folder(__file__, "objects.bpf.c")
_FLAGS = (
    *("-target", "bpf", "-O2", "-g", "-mcpu=v2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"),
    "-fdebug-compilation-dir=.",  # the object is the same wherever it is built
)
_ADVICE = "as root: apt-get install clang libbpf-dev"


def sources() -> list[Path]:
    """Every program's source."""
    return sorted(FOLDER.glob("*.bpf.c"))


def clang() -> str | None:
    """The newest clang that is installed; None without one."""
    found = shutil.which("clang")
    if found:
        return found
    named = [
        Path(folder, name)
        for folder in os.get_exec_path()
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if re.fullmatch(r"clang-\d+", name)
    ]
    return str(max(named, key=lambda path: int(path.name[6:]))) if named else None


def why_not() -> str:
    """What is missing for a build; empty when nothing is."""
    if clang() is None:
        return "there is no clang"
    if not any(Path(folder, "bpf/bpf_helpers.h").exists() for folder in ("/usr/include", "/usr/local/include")):
        return "libbpf's headers are missing"
    return ""


def built(source: Path, folder: Path = FOLDER) -> Path:
    """Where that source's object belongs."""
    return folder / f"{source.name.removesuffix('.bpf.c')}.bpf.o"


def stale(source: Path, target: Path) -> bool:
    """Whether the object is missing, or older than its source or any header."""
    try:
        made = target.stat().st_mtime_ns
    except OSError:
        return True
    return any(path.stat().st_mtime_ns > made for path in (source, *FOLDER.glob("*.h")))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def build(source: Path, folder: Path = FOLDER) -> Path:
    """Compiles one source into `folder`, if that is needed. Two at a time: one makes it, the other waits. EbpfError."""
    target = built(source, folder)
    if not stale(source, target):
        return target
    asked = f"build {target.name}"
    if reason := why_not():
        raise EbpfError(asked, reason, _ADVICE)
    with _alone(folder):
        if not stale(source, target):
            return target
        stage = target.with_name(f".{target.name}.{os.getpid()}")
        triple = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=False).stdout.strip()
        words = [str(clang()), *_FLAGS, f"-I/usr/include/{triple or 'x86_64-linux-gnu'}"]
        words += ["-c", source.name, "-o", str(stage)]
        done = subprocess.run(words, cwd=source.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EbpfError(asked, done.stderr.strip(), "see the compiler's words")
        strip = next((name for name in ("llvm-strip", "llvm-strip-14") if shutil.which(name)), None)
        if strip:  # DWARF only; the type information that libbpf needs is BTF
            subprocess.run([strip, "-g", str(stage)], check=False, capture_output=True)
        stage.rename(target)
    return target


def main() -> int:
    """Builds all; 1 where something is missing."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else FOLDER
    try:
        for source in sources():
            print(build(source, folder))
    except EbpfError as error:
        print(f"ebpf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
