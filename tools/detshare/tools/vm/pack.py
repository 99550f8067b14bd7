# SPDX-License-Identifier: Apache-2.0
"""One archive with all that a forwarding guest needs, for a machine with a GPU and without a package registry."""

from __future__ import annotations

import importlib.util
import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path

from detshare.tools.machine import commit
from detshare.tools.replay.conformance import TRACES
from detshare.tools.replay.convert import convert
from detshare.tools.replay.records import read
from detshare.tools.replay.run import build as build_clients
from detshare.tools.vm import builds, checkout, emulator, forward, initramfs, kernels, qemu, trixie
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.say import step

MOST = 45 << 20
"""bytes of the archive"""
TRACE = "h100-580-runtime-greenctx"
_HERE, _WORK, _OUT = "@here@", "@work@", "@out@"
_KHZ = 987654321
_SETTINGS = {
    "HOST": "detshare-vm", "SHARES": "", "MODULES": "", "MODULES_AT": "", "ORDER": "driver-first", "TTY": "no",
    "DRIVER_NEEDS": "", "DRIVER_OPTIONS": "", "FAKEGPU_KO": "", "WINDOW": "", "MODULE_OPTIONS": "",
}  # fmt: skip
_CHANNELS = {"log": "kernel.log", "control": "control", "out": "stdout", "err": "stderr"}


def words(kernel: kernels.Kernel, memory: int, cpus: int) -> list[str]:
    """QEMU's command line as the entry script reads it: a word a line, places by name."""
    numbers = {name: nr for nr, name in enumerate(("log", *qemu.PORTS), 10)}
    machine = qemu.Machine(memory, cpus, tsc_khz=_KHZ)
    found = qemu.arguments(kernel, Path(f"{_WORK}/image"), machine, numbers, 9)
    at = next(place for place, word in enumerate(found) if word.endswith(emulator.PROGRAM))
    options = found[at + 1 :]
    while options[0] == "-L":
        del options[:2]
    root = f"{_HERE}/qemu"
    replaced = {
        str(kernels.bootable(kernel)): f"{_HERE}/vmlinuz",
        "socket,id=nvfwd,fd=9": f"socket,id=nvfwd,path={_WORK}/socket",
        **{
            f"socket,id={name},fd={nr}": f"file,id={name},path={_OUT}/{_CHANNELS[name]}" for name, nr in numbers.items()
        },
    }
    start = [f"{root}/ld.so", "--library-path", f"{root}/lib", f"{root}/{emulator.PROGRAM}", "-L", f"{root}/firmware"]
    return [*start, *(replaced.get(word, word).replace(str(_KHZ), "@khz@") for word in options)]


def _qemu(into: Path) -> None:
    root = trixie.folder()
    (into / "lib").mkdir(parents=True)
    (into / "firmware").mkdir()
    shutil.copy2(trixie.loader(root).resolve(), into / "ld.so")
    shutil.copy2(root / "usr" / "bin" / emulator.PROGRAM, into)
    for path in trixie.needed(root):
        shutil.copy2(path.resolve(), into / "lib" / path.name)
    for name in trixie.FIRMWARE_FILES:
        found = [place for place in root.glob(f"usr/share/*/{name}") if place.exists()]
        if found:
            shutil.copy2(found[0].resolve(), into / "firmware" / name)


def _module(path: Path, into: Path) -> None:
    """Without what only debuggers read."""
    done = subprocess.run(["strip", "-g", "-o", str(into / path.name), str(path)], capture_output=True, check=False)
    if done.returncode:
        raise VmError(f"strip {path.name}", done.stderr.decode().strip(), "as root: apt-get install binutils")


def _programs(into: Path) -> None:
    for source in sorted((checkout.NVFWD / "programs").glob("*.c")):
        # -rdynamic: what a program has by libc's name comes before libc for libcuda too
        command = [
            "cc",
            "-std=gnu11",
            "-O2",
            "-rdynamic",
            "-pthread",
            "-o",
            str(into / source.stem),
            str(source),
            "-ldl",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise VmError(f"build {source.stem}", done.stderr.strip(), "as root: apt-get install gcc libc6-dev")
    for name in ("nvreplay", "nvalloc", "nvsteer"):
        shutil.copy2(build_clients() / name, into)
    trace = TRACES / f"{TRACE}.jsonl.gz"
    forward.write_recording(trace, into / "recording")
    (into / f"{TRACE}.nvr").write_bytes(convert(read(trace), TRACE).pack())


def _python(into: Path) -> None:
    """The claims, and the package that they need of others'."""
    leave = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(checkout.NVFWD / "claims", into / "python" / "claims", ignore=leave)
    found = importlib.util.find_spec("pyroute2")
    if found is None or not found.submodule_search_locations:
        raise VmError("pack pyroute2", "it is not installed", "make setup")
    shutil.copytree(found.submodule_search_locations[0], into / "python" / "pyroute2", ignore=leave)


def _fill(folder: Path, kernel: kernels.Kernel, memory: int, cpus: int) -> None:
    _qemu(folder / "qemu")
    shutil.copy2(kernel.image, folder / "vmlinuz")
    shutil.copy2(initramfs.base(kernel), folder / "base.cpio")
    shutil.copy2(initramfs.busybox(), folder / "busybox")
    shutil.copy2(forward.build(), folder / forward.NAME)
    for source in (builds.build(checkout.NVFWD, kernel), builds.build(checkout.MODULE, kernel)):
        for path in source.glob("*.ko"):
            _module(path, folder)
    _programs(folder)
    lines = [f"{name}='{value}'\n" for name, value in _SETTINGS.items()]
    (folder / "settings").write_text("".join(lines), encoding="utf-8")
    (folder / "qemu.words").write_text("\n".join(words(kernel, memory, cpus)) + "\n", encoding="utf-8")
    for name in ("run", "first", "claims", "watch.py"):
        shutil.copy2(Path(__file__).with_name("packed") / name, folder / name)
    _python(folder)
    (folder / "commit").write_text(commit() + "\n", encoding="utf-8")


def pack(out: Path, kernel: kernels.Kernel, memory: int, cpus: int) -> int:
    """Writes the archive, a folder `nvfwd` in a tar.xz; its bytes. VmError where it becomes too large to travel."""
    with tempfile.TemporaryDirectory(prefix="detshare-pack-") as place:
        folder = Path(place, "nvfwd")
        folder.mkdir()
        _fill(folder, kernel, memory, cpus)
        tar = Path(place, "nvfwd.tar")
        subprocess.run(["tar", "-C", place, "--owner=0", "--group=0", "-cf", str(tar), "nvfwd"], check=True)
        with step(f"packing {tar.stat().st_size >> 20} MiB"):
            data = lzma.compress(tar.read_bytes(), preset=6)
        if len(data) > MOST:
            raise VmError(f"pack {out}", f"it has {len(data)} bytes, {MOST} can travel", "leave something out")
        out.write_bytes(data)
    return len(data)
