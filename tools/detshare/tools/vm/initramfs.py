# SPDX-License-Identifier: Apache-2.0
"""The images a guest starts from, as newc cpio archives: one per kernel, kept in the cache, and a small one per run.

The kernel unpacks archives that follow each other, so a run's own settings are appended to the cached one.
"""

from __future__ import annotations

import io
import lzma
import shutil
import stat
from pathlib import Path

from detshare.tools.vm import cache
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel

_GUEST = Path(__file__).resolve().parent / "guest"
# What the guest needs before it has a root; their dependencies come with them, what is built in is left out.
_MODULES = ("virtio_pci", "virtio_console", "virtio_rng", "9pnet_virtio", "9p", "overlay")


class Archive:
    """A newc archive in memory."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._inode = 1
        self._folders: set[str] = set()

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self._parents(name)
        self._entry(name, stat.S_IFREG | mode, data)

    def link(self, name: str, target: str) -> None:
        self._parents(name)
        self._entry(name, stat.S_IFLNK | 0o777, target.encode())

    def folder(self, name: str) -> None:
        self._parents(f"{name}/")

    def close(self) -> bytes:
        """The archive; nothing may be added after."""
        self._entry("TRAILER!!!", 0, b"")
        self._out.write(bytes(-self._out.tell() % 512))
        return self._out.getvalue()

    def _parents(self, name: str) -> None:
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if path not in self._folders:
                self._folders.add(path)
                self._entry(path, stat.S_IFDIR | 0o755, b"")

    def _entry(self, name: str, mode: int, data: bytes) -> None:
        encoded = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        self._inode += 1
        out = self._out
        out.write(b"070701" + b"".join(b"%08x" % field for field in fields) + encoded)
        out.write(bytes(-out.tell() % 4))
        out.write(data)
        out.write(bytes(-out.tell() % 4))


def busybox() -> Path:
    """The static busybox of this machine."""
    for name in ("busybox-static", "busybox"):
        found = shutil.which(name) or shutil.which(name, path="/bin:/usr/bin")
        if found and b"/lib64/ld-linux" not in Path(found).read_bytes()[:4096]:
            return Path(found).resolve()
    raise VmError("make the guest's initramfs", "there is no static busybox", "as root: apt-get install busybox-static")


def order(kernel: Kernel, wanted: tuple[str, ...]) -> list[Path]:
    """Module files in the order in which they can be inserted."""
    paths: dict[str, Path] = {}
    needs: dict[Path, list[Path]] = {}
    for line in (kernel.modules / "modules.dep").read_text(encoding="utf-8").splitlines():
        head, _, rest = line.partition(":")
        path = Path(head)
        paths[path.name.split(".")[0].replace("-", "_")] = path
        needs[path] = [Path(name) for name in reversed(rest.split())]
    found: list[Path] = []
    for name in wanted:
        if name in paths:
            last = paths[name]
            found += [each for each in (*needs[last], last) if each not in found]
    return [kernel.modules / path for path in found]


def base(kernel: Kernel) -> Path:
    """The cached image of a kernel: busybox, the modules for its root, the guest's scripts."""
    box, scripts = busybox(), sorted(_GUEST.iterdir())
    name = cache.key(
        str(kernel.root), str(box), str(box.stat().st_mtime_ns), cache.key_of_files(_GUEST, scripts), *_MODULES
    )

    def make(stage: Path) -> None:
        archive = Archive()
        archive.file("bin/busybox", box.read_bytes(), 0o755)
        for applet in (
            "sh",
            "mount",
            "mkdir",
            "insmod",
            "cat",
            "cp",
            "switch_root",
            "poweroff",
            "sleep",
            "ln",
            "touch",
        ):
            archive.link(f"bin/{applet}", "busybox")
        for folder in ("dev", "proc", "sys", "low", "up", "new", "keep"):
            archive.folder(folder)
        for script in scripts:
            archive.file("init" if script.name == "init" else f"guest/{script.name}", script.read_bytes(), 0o755)
        names = []
        for path in order(kernel, _MODULES):
            names.append(path.name.removesuffix(".xz"))
            data = path.read_bytes()
            archive.file(f"modules/{names[-1]}", lzma.decompress(data) if path.suffix == ".xz" else data)
        archive.file("modules/order", "".join(f"{name}\n" for name in names).encode())
        stage.write_bytes(archive.close())

    return cache.ensure(f"boot/{kernel.release}-{name}.cpio", make)


def image(kernel: Kernel, settings: str, into: Path) -> Path:
    """The image of one run: the cached one and /settings, a shell file."""
    archive = Archive()
    archive.file("settings", settings.encode())
    with into.open("wb") as out, base(kernel).open("rb") as first:
        shutil.copyfileobj(first, out, 1 << 20)
        out.write(archive.close())
    return into
