# SPDX-License-Identifier: Apache-2.0
"""Which source files lack their licence line: ``python -m detshare.tools.spdx [--list-shell]``, in a checkout.

Looks at what git tracks and at new files that it does not ignore. Kernel code (kmod/, Kbuild, the modules in
tests/nvsim/, tests/nvfwd/guest/ and tests/fakegpu/, C in ebpf/) is GPL-2.0-only; kmod/rm/ and tests/nvfwd/common/,
which are compiled into programs too, offer both licences; everything else is Apache-2.0. Data, prose and licence
texts carry none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

__all__ = ["check", "expected", "is_shell", "main", "sources"]

_HEAD_LINES = 5
_C = {".c", ".h", ".S"}
_SUFFIXES = _C | {".py", ".pyi", ".cu", ".cuh", ".cpp", ".hpp", ".ptx", ".sh", ".bash", ".toml", ".yaml", ".yml", ".mk"}
_SUFFIXES |= {".html", ".css", ".js"}
_GPL, _EITHER = "GPL-2.0-only", "GPL-2.0-only OR Apache-2.0"
# modules, and the programs that compile their sources
_MODULES = (
    "kmod/",
    "tests/nvsim/",
    "tests/nvfwd/guest/",
    "tests/nvfwd/common/",
    "tests/fakegpu/",
    "tests/unit/nvsim/",
    "tests/unit/kmod/",
)
_NAMES = {"Makefile", "Kbuild", "Kconfig"}
_LINE = re.compile(r"SPDX-License-Identifier:\s*(.+?)\s*(?:\*/\s*)?$", re.MULTILINE)


def sources(root: Path) -> list[PurePosixPath]:
    """Tracked and untracked-not-ignored files of the checkout that exist, sorted; RuntimeError outside git."""
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cannot list the files of {root}: {done.stderr.decode(errors='replace').strip()}")
    names = {name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if name}
    return sorted(PurePosixPath(name) for name in names if (root / name).is_file() and not (root / name).is_symlink())


def _head(file: Path) -> str:
    with file.open("rb") as stream:
        return b"".join(stream.readline(4096) for _ in range(_HEAD_LINES)).decode("utf-8", "replace")


def is_shell(path: PurePosixPath, head: str) -> bool:
    """Is it a shell script, by name or by first line?"""
    return path.suffix in {".sh", ".bash"} or re.match(r"#!.*[/ ](?:ba|da)?sh\b", head) is not None


def expected(path: PurePosixPath, head: str) -> str | None:
    """The licence a file must name in its first lines; None for data, prose and generated tables."""
    if path.parts[0] == "LICENSES":
        return None
    if not (path.suffix in _SUFFIXES or path.name in _NAMES or head.startswith("#!")):
        return None
    if path.suffix == ".py":
        return "Apache-2.0"
    if path.parts[:2] == ("kmod", "rm"):
        return _EITHER
    kernel = path.name == "Kbuild" or str(path).startswith(_MODULES)
    return _GPL if kernel or (path.parts[0] == "ebpf" and path.suffix in _C) else "Apache-2.0"


def check(root: Path) -> list[str]:
    """One line per file whose licence line is missing or another one. [] is good."""
    problems = []
    for path in sources(root):
        head = _head(root / path)
        licence = expected(path, head)
        if licence is None or not head:
            continue
        match = _LINE.search(head)
        found = match[1] if match else None
        # a header that programs share with a module may offer both
        if found != licence and (licence, found) != (_GPL, _EITHER):
            said = f"says {found}" if found else f"has none in its first {_HEAD_LINES} lines"
            problems.append(f"{path}: needs SPDX-License-Identifier: {licence}; it {said}")
    return problems


def main(arguments: list[str]) -> int:
    """The command line; exit code 0 good, 1 problems found, 2 bad usage."""
    root = Path.cwd()
    if arguments not in ([], ["--list-shell"]):
        print("usage: python -m detshare.tools.spdx [--list-shell]", file=sys.stderr)
        return 2
    try:
        if arguments:  # NUL-separated, for xargs -0
            shell = [path for path in sources(root) if is_shell(path, _head(root / path))]
            sys.stdout.write("".join(f"{path}\0" for path in shell))
            return 0
        problems = check(root)
    except RuntimeError as error:
        print(f"{error}; run this in a git checkout", file=sys.stderr)
        return 1
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"spdx: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
