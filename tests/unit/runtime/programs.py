# SPDX-License-Identifier: Apache-2.0
"""C programs that use the stand-in driver (tests/fakecuda), with libdetshare.so preloaded or without."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
CLIENTS = Path(__file__).parent / "clients"
DRIVER = CHECKOUT / "build" / "fakecuda"
LIBRARY = CHECKOUT / "runtime" / "libdetshare.so"
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
INCLUDES = [f"-I{CHECKOUT / 'runtime'}", f"-I{CHECKOUT / 'tests' / 'fakecuda'}"]


@functools.cache
def made() -> Path:
    """Builds driver, library and the part that all clients share; a folder for programs of this session."""
    for folder in ("tests/fakecuda", "runtime"):
        subprocess.run(["make", "-s", "-j2", "-C", str(CHECKOUT / folder)], check=True)
    folder = Path(tempfile.mkdtemp(prefix="detshare-clients-", dir=CHECKOUT / "build"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in ("client", "daemon"):
        subprocess.run(
            ["gcc", *FLAGS, *INCLUDES, "-c", str(CLIENTS / f"{name}.c"), "-o", str(folder / f"{name}.o")], check=True
        )
    return folder


@functools.cache
def program(name: str) -> Path:
    """The client `name`, linked against the driver."""
    folder = made()
    out = folder / name
    objects = [str(folder / "client.o"), str(folder / "daemon.o")]
    source = str(CLIENTS / f"{name}.c")
    subprocess.run(
        ["gcc", *FLAGS, *INCLUDES, source, *objects, "-o", str(out), f"-L{DRIVER}", "-lcuda", "-ldl"], check=True
    )
    return out


@functools.cache
def alone(name: str, *flags: str) -> Path:
    """A client that is linked against nothing of ours."""
    out = made() / f"{name}.alone"
    subprocess.run(["gcc", *FLAGS, *flags, str(CLIENTS / f"{name}.c"), "-o", str(out), "-ldl"], check=True)
    return out


def run(
    path: Path, *args: str, preload: str | None = None, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Its run, with the library preloaded unless `preload` says otherwise; stderr holds what the driver found wrong."""
    full = {
        **os.environ,
        "LD_LIBRARY_PATH": str(DRIVER),
        "LD_PRELOAD": str(LIBRARY) if preload is None else preload,
        "TMPDIR": str(made()),
        **env,
    }
    return subprocess.run(
        [str(path), *args], env=full, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def good(result: subprocess.CompletedProcess[str]) -> str:
    """Its output, if it ended well and the driver saw no wrong use."""
    assert result.returncode == 0, f"{result.returncode}\n{result.stdout}{result.stderr}"
    assert "fakecuda:" not in result.stderr, result.stderr
    return result.stdout
