# SPDX-License-Identifier: Apache-2.0
"""What the guest's tests of detshare.ko share: raw calls, memory hogs, the module's answers and the driver's truth."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.netlink import genl
from tests.patience import until

MIB = 1 << 20
NO_MEMORY = 0x51  # NV_ERR_NO_MEMORY
INVALID_CLIENT = 0x23  # NV_ERR_INVALID_CLIENT
RM_ALLOC, RM_FREE, REGISTER_FD = 0x2B, 0x29, 0xC9
NV01_ROOT, NV01_ROOT_CLIENT = 0x0, 0x41

MODULE = os.environ.get("DETSHARE_VM_MODULE_KO", "")
CLIENTS = Path(os.environ.get("DETSHARE_NVCLIENT", "."))
LEAKS = Path("/sys/kernel/debug/detshare")
TRUTH = Path("/sys/kernel/debug/nvsim/gpu0")

PID, CGROUP, TENANT = genl.DETSHARE_KIND_PID, genl.DETSHARE_KIND_CGROUP, genl.DETSHARE_KIND_TENANT


def ioctl(file: int, number: int, block: bytearray) -> None:
    fcntl.ioctl(file, (3 << 30) | (len(block) << 16) | (ord("F") << 8) | number, block)


def make_client(file: int, root_class: int = NV01_ROOT_CLIENT) -> int:
    block = bytearray(48)
    struct.pack_into("<I", block, 12, root_class)
    ioctl(file, RM_ALLOC, block)
    client, status = struct.unpack_from("<I", block, 8)[0], struct.unpack_from("<I", block, 40)[0]
    assert status == 0
    return int(client)


def free_client(file: int, client: int) -> None:
    block = bytearray(struct.pack("<IIII", client, client, client, 0))
    ioctl(file, RM_FREE, block)
    assert struct.unpack_from("<I", block, 12)[0] == 0


def bind(file: int, control: int) -> None:
    """From here on the driver takes the control file in the place of that file."""
    ioctl(file, REGISTER_FD, bytearray(struct.pack("<i", control)))


def row(message: Any) -> dict[str, Any]:
    """Attributes by short name; those that may come several times become lists."""
    found: dict[str, Any] = {}
    for name, value in message["attrs"]:
        short = name.split("_A_", 1)[1].split("_", 1)[1].lower()
        if short in ("hook",) or (name.startswith("DETSHARE_A_TENANT_") and short == "pid"):
            found.setdefault(short, []).append(value)
        else:
            found[short] = value
    return found


def vctxs(family: genl.DetShare, pid: int | None = None) -> list[dict[str, Any]]:
    return [row(message) for message in family.vctx_get(pid)]


def truth(name: str = "used", gpu: int = 0) -> int:
    return int((TRUTH.parent / f"gpu{gpu}" / name).read_text())


def leak(name: str) -> int:
    return int((LEAKS / name).read_text())


class Hog:
    """An nvalloc: a process that holds video memory as told."""

    program = "nvalloc"

    def __init__(self, *options: str, **named: Any) -> None:
        self.process = subprocess.Popen(
            [CLIENTS / self.program, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **named
        )
        self.ready = self._answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def say(self, line: str) -> dict[str, Any]:
        return self.say_all([line])[0]

    def say_all(self, lines: list[str]) -> list[dict[str, Any]]:
        """Their answers; all lines and all answers have to fit into a pipe, 64 KiB."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()
        return [self._answer() for _ in lines]

    def take(self, mib: int) -> bool:
        """Asks for so much; False: refused as the driver refuses."""
        answer = self.say(str(mib * MIB))
        assert answer["status"] in (0, NO_MEMORY)
        return bool(answer["status"] == 0)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def family() -> Iterator[genl.DetShare]:
    with genl.DetShare() as made:
        yield made


@pytest.fixture
def hog() -> Iterator[Callable[..., Hog]]:
    """hog(...): a Hog that ends with the test; after it nothing may be left."""
    made: list[Hog] = []

    def make(*options: str, **named: Any) -> Hog:
        made.append(Hog(*options, **named))
        return made[-1]

    yield make
    for each in made:
        each.end()
    until(lambda: truth() == 0 and leak("objects") == 0 and leak("shadows") == 0 and leak("clients") == 0)


def load(**parameters: object) -> None:
    subprocess.run(["insmod", MODULE, *(f"{name}={value}" for name, value in parameters.items())], check=True)


def unload() -> None:
    subprocess.run(["rmmod", "detshare"], check=True)
