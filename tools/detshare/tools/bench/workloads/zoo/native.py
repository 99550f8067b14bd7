#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds a .cu program of this folder or of ../compat into a temporary folder with nvcc, then becomes that program."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = {
    "static_cudart": ["-cudart", "static"],
    "static_sums": ["-cudart", "static"],
    # as C++: nvcc would add a registration that needs the runtime library
    "two_contexts": ["-x", "c++", "-cudart", "none"],
}


def libcuda() -> str:
    """The path of the driver's library, as the loader finds it; machines often lack the name that -lcuda looks for."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        sys.exit(f"native.py: no CUDA driver on this machine ({error}); this program needs an NVIDIA GPU")
    return next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    name = parser.parse_args().program
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        sys.exit(f"native.py: {name} needs nvcc to be built and there is none on PATH; install the CUDA toolkit")
    cache = os.environ.get("KERNELS_CACHE")  # the caller's own temporary folder, removed by the caller
    binary = Path(cache or tempfile.mkdtemp(prefix="zoo-")) / name
    if not binary.exists():
        here = Path(__file__).resolve().parent
        source = next(path for folder in (here, here.parent / "compat") if (path := folder / f"{name}.cu").exists())
        part = binary.with_suffix(f".{os.getpid()}")
        command = [nvcc, "-O2", "-arch=native", *PROGRAMS[name], "-o", str(part), str(source), "-Xlinker", libcuda()]
        subprocess.run(command, check=True)
        part.rename(binary)
    os.execv(binary, [str(binary)])


if __name__ == "__main__":
    main()
