# SPDX-License-Identifier: Apache-2.0
"""Kernels: image, modules and headers in one tree of the cache, ready to boot and to build against.

Debian's own, and `debug`, built from Debian's sources with checks that stock kernels lack.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.vm import cache, compiler, debug
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError

# series as on the command line -> Debian suite that has kernels of that series
SERIES = {"6.1": "bookworm", "6.12": "bookworm-backports", "7.3": "trixie-backports"}
NEWER = ("7.3",)
"""Those that Debian 13 builds: their build tools need its libraries, and their modules its compiler."""
DEFAULT = "6.12"
DEBUG = "debug"
NAMES = (*SERIES, DEBUG)


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache. `series` is a name of NAMES, `release` what uname -r says in the guest."""

    series: str
    release: str
    root: Path

    @property
    def image(self) -> Path:
        """The bzImage."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """What the guest sees as /lib/modules/RELEASE."""
        return self.root / "lib" / "modules" / self.release

    @property
    def newer(self) -> bool:
        """Whether modules for it are built with Debian 13's compiler."""
        return self.series in NEWER

    @property
    def headers(self) -> Path:
        """For make -C."""
        return self.root / "usr" / "src" / f"linux-headers-{self.release}"

    @property
    def common(self) -> Path:
        """The architecture-independent headers, SYSSRC of NVIDIA's build."""
        if self.series == DEBUG:
            return self.headers
        return self.root / "usr" / "src" / f"linux-headers-{self.release.removesuffix('-amd64')}-common"


def kernel(series: str, *, update: bool = False) -> Kernel:
    """The cached kernel of that series, fetched when it is missing; `update`: the suite's newest."""
    if series == DEBUG:
        return Kernel(series, *debug.tree(update=update))
    if series not in SERIES:
        raise VmError(f"use kernel {series}", "unknown series", f"choose one of {', '.join(NAMES)}", usage=True)
    pointer = cache.root() / "kernel" / series
    if update or not pointer.exists():
        with cache.lock(f"kernel-{series}"):
            if update or not pointer.exists():
                _fetch(series, pointer)
    target = pointer.resolve()
    return Kernel(series, target.name, target)


def cached(series: str) -> bool:
    """Whether that kernel is there already."""
    return debug.folder().exists() if series == DEBUG else (cache.root() / "kernel" / series).exists()


def bootable(kernel: Kernel) -> Path:
    """What QEMU starts fastest: the kernel unpacked here, for the guest would need 3 s for it."""
    data = kernel.image.read_bytes()
    # Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length
    sectors = data[0x1F1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    payload = data[(sectors + 1) * 512 + offset :][:length]
    if payload.startswith(b"\xfd7zXZ\0"):
        unpack: Callable[[bytes], bytes] = lzma.LZMADecompressor().decompress
    elif payload.startswith(b"\x1f\x8b"):
        unpack = zlib.decompressobj(31).decompress
    else:
        return kernel.image

    def make(stage: Path) -> None:
        stage.write_bytes(unpack(payload))

    return cache.ensure(f"boot/vmlinux-{kernel.release}-{cache.key(payload)}", make)


def _fetch(series: str, pointer: Path) -> None:
    suite = Suite(SERIES[series], "main")
    suite.update()
    release = newest(series, suite.names(f"linux-image-{series}."))
    if release is None:
        raise VmError(
            f"fetch kernel {series}",
            f"Debian {suite.name} has none of that series any more",
            "report it; the table SERIES of detshare.tools.vm.kernels needs another suite or series",
        )
    final = cache.root() / "kernel" / release

    def make(stage: Path) -> None:
        names = _parts(suite, [f"linux-image-{release}", f"linux-headers-{release}"])
        suite.unpack(names, stage)
        _settle(stage, release, final)
        if series in NEWER:
            compiler.adapt(stage / "usr" / "lib")
        packages = {name: suite.package(name).version for name in names}
        (stage / "packages.json").write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")

    cache.ensure(f"kernel/{release}", make)
    link = pointer.with_name(f".part-{series}")
    link.unlink(missing_ok=True)
    link.symlink_to(release)
    os.replace(link, pointer)


def newest(series: str, names: list[str]) -> str | None:
    """The newest release of that series that these image packages are for."""
    form = re.compile(rf"linux-image-({re.escape(series)}\.[^-]*(?:-\d+)?)-amd64")
    found = [match[1] for name in names if (match := form.fullmatch(name))]
    last = max(found, key=lambda version: [int(digits) for digits in re.findall(r"\d+", version)], default=None)
    return last and f"{last}-amd64"


def _parts(suite: Suite, names: list[str]) -> list[str]:
    """The packages, and those of the same kernel that they depend on: newer ones split image and modules."""
    found: dict[str, None] = {}
    while names:
        name = names.pop()
        if name not in found:
            found[name] = None
            names += [each for each in suite.package(name).depends if re.match(r"linux-[a-z]+-\d", each)]
    return sorted(found)


def _settle(stage: Path, release: str, final: Path) -> None:
    """Makes the unpacked tree work where it will lie: absolute paths, module dependencies."""
    usr_lib = stage / "usr" / "lib" / "modules"
    if usr_lib.is_dir() and not (stage / "lib").exists():
        (stage / "lib").symlink_to("usr/lib")
    image = stage / "boot" / f"vmlinuz-{release}"
    if not image.exists():
        image.parent.mkdir(exist_ok=True)
        image.symlink_to(f"../usr/lib/modules/{release}/vmlinuz")
    for makefile in (stage / "usr" / "src").glob("linux-headers-*/Makefile"):
        text = makefile.read_text(encoding="utf-8")
        makefile.write_text(
            re.sub(r"(?<![\w.])/usr/(src|lib)/linux-", rf"{final}/usr/\1/linux-", text), encoding="utf-8"
        )
    for file in (stage / "usr" / "src").rglob("*"):
        if file.is_symlink() and os.readlink(file).startswith("/usr/"):
            target = os.readlink(file)
            file.unlink()
            file.symlink_to(f"{final}{target}")
    modules = stage / "lib" / "modules" / release
    common = f"linux-headers-{release.removesuffix('-amd64')}-common"  # bcc looks for headers there
    for name, folder in (("build", f"linux-headers-{release}"), ("source", common)):
        (modules / name).unlink(missing_ok=True)
        (modules / name).symlink_to(final / "usr" / "src" / folder)
    depmod = shutil.which("depmod") or shutil.which("depmod", path="/usr/sbin:/sbin")
    if depmod is None:
        raise VmError("index the kernel's modules", "depmod is missing", "as root: apt-get install kmod")
    done = subprocess.run([depmod, "-b", str(stage), release], capture_output=True, text=True, check=False)
    if done.returncode:
        raise VmError("index the kernel's modules", done.stderr.strip(), "check the free space of the cache folder")
