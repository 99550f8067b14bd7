# SPDX-License-Identifier: Apache-2.0
"""What a report says of the machine: versions, module parameters, folders, lines of two logs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

__all__ = ["daemon_log", "kernel_log", "listing", "versions"]

LINES: Final = 2000
"""of a log, the newest"""
_BYTES: Final = 4 << 20
_OURS: Final = re.compile(r"detshare|NVRM|\bXid\b|nvidia", re.IGNORECASE)
_PACKAGES: Final = ("detshare", "click", "rich", "aiohttp", "prometheus-client", "nvidia-ml-py", "pyroute2", "numpy")
_MODULES: Final = ("nvidia", "nvidia_uvm", "detshare")
_PATIENCE_S: Final = 60.0


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _module(name: str) -> dict[str, Any] | None:
    """Version and parameters of a kernel module; None where it is not loaded."""
    folder = Path("/sys/module") / name
    if not folder.is_dir():
        return None
    parameters = {path.name: _read(path) for path in sorted((folder / "parameters").glob("*"))}
    return {"version": _read(folder / "version"), "srcversion": _read(folder / "srcversion"), "parameters": parameters}


def versions() -> dict[str, Any]:
    """Of DetShare and what it uses, Python, kernel, distribution, driver, modules."""
    release = dict(
        line.split("=", 1) for line in (_read(Path("/etc/os-release")) or "").splitlines() if line.count("=") == 1
    )
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": {name: _package(name) for name in _PACKAGES},
        "python": sys.version,
        "kernel": " ".join(platform.uname()[i] for i in (0, 2, 3, 4)),
        "distribution": release.get("PRETTY_NAME", "").strip('"'),
        "cgroups": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "no version 2 at /sys/fs/cgroup",
        "driver": _read(Path("/proc/driver/nvidia/version")),
        "modules": {name: _module(name) for name in _MODULES},
        "uid": os.geteuid(),
    }


def listing(folders: Iterable[Path]) -> str:
    """Names, modes, owners, sizes and times of what lies there; no content."""
    lines = []
    for folder in folders:
        if not folder.exists():
            lines.append(f"{folder}: is not there")
            continue
        for path in [folder, *sorted(folder.rglob("*"))]:
            try:
                found = path.lstat()
            except OSError as error:
                lines.append(f"{path}: {error.strerror}")
                continue
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.st_mtime))
            mode = stat.filemode(found.st_mode)
            lines.append(f"{mode} {found.st_uid}:{found.st_gid} {found.st_size:>10} {when} {path}")
    return "\n".join(lines) + "\n"


def kernel_log(path: Path = Path("/dev/kmsg")) -> str:
    """The kernel's lines about DetShare and NVIDIA's driver, with seconds since boot. OSError."""
    lines: list[str] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten while it was read: go on with the oldest that is left
                continue
            if not record:
                break
            for line in record.decode(errors="replace").splitlines():
                head, separator, text = line.partition(";")
                fields = head.split(",")
                if separator and len(fields) >= 3 and fields[2].isdecimal() and _OURS.search(text):
                    lines.append(f"[{int(fields[2]) / 1e6:.6f}] {text}")
    finally:
        os.close(descriptor)
    return "\n".join(lines[-LINES:]) + "\n"


def daemon_log(path: Path | None = None) -> str:
    """The newest lines of the daemon's log: of a file, else of its unit in the journal. OSError without any."""
    if path is not None:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _BYTES))
            text = file.read(_BYTES).decode(errors="replace")
    else:
        if shutil.which("journalctl") is None:
            raise OSError("there is no journalctl here: name the daemon's log with --log")
        done = subprocess.run(
            ["journalctl", "--unit=detshared", f"--lines={LINES}", "--no-pager", "--quiet", "--output=short-iso"],
            capture_output=True, check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
        text = done.stdout.decode(errors="replace")
        if done.returncode or not text.strip():
            raise OSError("the journal has no entries of the unit detshared: name the daemon's log with --log")
    return "\n".join(text.splitlines()[-LINES:]) + "\n"
