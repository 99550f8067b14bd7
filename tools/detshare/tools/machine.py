# SPDX-License-Identifier: Apache-2.0
"""What a result was measured on and with: the machine in words (never its name) and the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections import Counter
from pathlib import Path

import pynvml

_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")


def driver_version(proc: Path = Path("/proc/driver/nvidia")) -> str | None:
    """The loaded NVIDIA driver's version and flavour ("580.95.05 open"), None when no driver is loaded."""
    try:
        first = (proc / "version").read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return None
    match = _VERSION.search(first)
    if match is None:
        return None
    return f"{match[0]} open" if "Open Kernel Module" in first else match[0]


def gpu_names(proc: Path = Path("/proc/driver/nvidia")) -> list[str]:
    """One product name per GPU: those NVML shows to this process, else those the driver lists; [] without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        names = []
        for file in sorted((proc / "gpus").glob("*/information")):
            match = re.search(r"^Model:\s*(.+?)\s*$", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
            names.append(match[1] if match else "unknown NVIDIA GPU")
        return names
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        raw = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        return [name.decode() if isinstance(name, bytes) else str(name) for name in raw]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def machine(proc: Path = Path("/proc/driver/nvidia")) -> str:
    """The machine in one line: GPUs, driver, kernel, number of CPUs. No host name, serial number or UUID."""
    gpus = [name if count == 1 else f"{count} x {name}" for name, count in Counter(gpu_names(proc)).items()]
    driver = driver_version(proc)
    parts = [
        ", ".join(gpus) or "no GPU",
        f"driver {driver}" if driver else "no NVIDIA driver",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        f"{os.cpu_count()} CPUs",
    ]
    return "; ".join(parts)


def commit() -> str:
    """The commit measured: $DETSHARE_COMMIT, else that of the sources, with ``-dirty`` where one of them was changed
    since, else "unknown". Results are no sources: an experiment writes its own while it runs.
    """
    told = os.environ.get("DETSHARE_COMMIT", "").strip()
    if told:
        return told
    found = ask_git("describe", "--always")
    changed = ask_git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs/results")
    return "unknown" if not found else f"{found}-dirty" if changed else found


def ask_git(*words: str) -> str:
    """What git says; empty where it says nothing or cannot be asked."""
    # of this file's checkout, not of the folder that the user happens to stand in
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).resolve().parent), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
