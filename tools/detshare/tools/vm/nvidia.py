# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own driver: Debian's nvidia-open-kernel-dkms, unmodified, built for a cached kernel as dkms would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detshare.tools.vm import builds, cache, kernels, toolchain
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.say import step

PACKAGE = "nvidia-open-kernel-dkms"


@dataclass(frozen=True)
class Branch:
    """A driver branch: the suite that carries it (component contrib) and the kernel series that it is built for.

    `besides`: series that it is built for when a run asks for it.
    """

    suite: str
    kernel: str
    besides: tuple[str, ...] = ()


BRANCHES = {
    "nvidia-535": Branch("bookworm", "6.1"),
    "nvidia-550": Branch("trixie-backports", "6.12", (kernels.DEBUG,)),
}


@dataclass(frozen=True)
class Driver:
    """A built driver. `needs`: modules of the kernel that must be inserted before."""

    version: str
    nvidia: Path
    uvm: Path
    needs: tuple[str, ...]


def check(name: str, series: str) -> None:
    """VmError, usage, when that driver is not for that kernel."""
    if series not in (BRANCHES[name].kernel, *BRANCHES[name].besides):
        raise VmError(
            f"load {name} into kernel {series}",
            f"Debian builds {name} for kernel {BRANCHES[name].kernel}",
            f"use --kernel {BRANCHES[name].kernel}, or --driver sim, which loads into any",
            usage=True,
        )


def driver(name: str, kernel: Kernel, *, update: bool = False) -> Driver:
    """The cached driver for that kernel, fetched and built when it is missing (about 100 s with two CPUs)."""
    check(name, kernel.series)
    folder = (
        f"driver/{name}-{kernel.release}-{cache.key(str(kernel.root), toolchain.compiler_version(newer=kernel.newer))}"
    )
    if update:
        suite = Suite(BRANCHES[name].suite, "contrib")
        suite.update()
        known = cache.root() / folder
        with cache.lock(folder):
            if known.exists() and _info(known)["version"] != suite.package(PACKAGE).version:
                cache.remove(known)
    made = cache.ensure(folder, lambda stage: _build(name, kernel, stage))
    info = _info(made)
    return Driver(str(info["version"]), made / "nvidia.ko", made / "nvidia-uvm.ko", tuple(info["needs"]))


def given(folder: Path, kernel: Kernel) -> Driver:
    """The driver whose modules somebody built for that kernel."""
    files = [folder / "nvidia.ko", folder / "nvidia-uvm.ko"]
    for file in files:
        built_for = (builds.said(file, "vermagic") if file.is_file() else "").partition(" ")[0]
        if built_for != kernel.release:
            raise VmError(
                f"load {file} into {kernel.release}",
                f"it is built for {built_for}" if built_for else "there is no such module",
                f"build it with SYSSRC={kernel.common} SYSOUT={kernel.headers}",
            )
    needs = dict.fromkeys(each for file in files for each in builds.depends(file) if each != "nvidia")
    return Driver(builds.said(files[0], "version"), files[0], files[1], tuple(needs))


def _info(folder: Path) -> dict[str, Any]:
    loaded = json.loads((folder / "info.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def _build(name: str, kernel: Kernel, stage: Path) -> None:
    asked = f"build {name} for {kernel.release}"
    suite = Suite(BRANCHES[name].suite, "contrib")
    suite.update()
    version = suite.package(PACKAGE).version
    package = stage / "package"
    suite.unpack([PACKAGE], package)
    sources = next((package / "usr" / "src").glob("nvidia-*/Kbuild"), None)
    if sources is None:
        raise VmError(asked, f"{PACKAGE} {version} holds no sources", "report it; the package's layout has changed")
    command = [
        *("make", "-C", str(sources.parent), f"-j{os.cpu_count()}", "modules"),
        *(f"SYSSRC={kernel.common}", f"SYSOUT={kernel.headers}", f"KERNEL_UNAME={kernel.release}"),
        # what shows pictures needs a display, and peermem needs InfiniBand; the kernel has neither
        "NV_EXCLUDE_KERNEL_MODULES=nvidia-drm nvidia-modeset nvidia-peermem",
        *toolchain.programs(newer=kernel.newer),
    ]
    log_file = stage / "build.log"
    label = f"building NVIDIA's driver {version} for {kernel.release} (100 s with two CPUs)"
    with step(label), log_file.open("w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        text = log_file.read_text(encoding="utf-8", errors="replace")
        kept = cache.root() / f"{name}-{kernel.release}.log"
        shutil.copy2(log_file, kept)
        raise VmError(asked, toolchain.failure(text, 20), f"read {kept}")
    needs: list[str] = []
    for file in ("nvidia.ko", "nvidia-uvm.ko"):
        # dkms drops debug information too; the code stays as it is
        shutil.copy2(sources.parent / file, stage / file)
        subprocess.run(["strip", "--strip-debug", str(stage / file)], check=True)
        needs += [each for each in builds.depends(stage / file) if each not in ("nvidia", *needs)]
    info = {"version": version, "needs": needs}
    (stage / "info.json").write_text(json.dumps(info) + "\n", encoding="utf-8")
    cache.remove(package)
