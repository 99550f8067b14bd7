# SPDX-License-Identifier: Apache-2.0
"""A program with one thing that may or may not outlive the driver's checkpoint; {"do": "check"} asks whether it did.

reservation  an empty reservation of addresses: memory can be mapped there afterwards
pinned       host memory that is registered: the GPU reads and writes it
numa         HOST_NUMA memory that is mapped: its bytes are there
exportable   memory of the GPU that could be exported, mapped: its bytes are there
exported     the same, with a descriptor that was made before and is opened afterwards
shared       the same, which another process has mapped all the while: what that one writes afterwards is seen here
"""

from __future__ import annotations

import ctypes
import json
import mmap
import signal
import subprocess
import sys
from typing import Any, Final

from driver import CudaError, Device  # type: ignore[import-not-found]
from workload import Workload, emit, options  # type: ignore[import-not-found]

SIZE: Final = 2 << 20
KINDS: Final = ("reservation", "pinned", "numa", "exportable", "exported", "shared")
DEVICE, HOST_NUMA, PINNED, DESCRIPTOR, READWRITE = 1, 3, 1, 1, 3
PATTERN: Final = 0x5A5AA5A5
WRITTEN: Final = 0x12344321
"""by the other process"""


class Location(ctypes.Structure):
    """CUmemLocation"""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Prop(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Survivor:
    """The thing, made; CudaError."""

    def __init__(self, device: Device, kind: str) -> None:
        self.device, self.kind = device, kind
        self.address, self.fd = ctypes.c_uint64(), ctypes.c_int(-1)
        self.host = mmap.mmap(-1, SIZE)
        if kind == "pinned":
            self.pin()
        else:
            device.call("cuMemAddressReserve", ctypes.byref(self.address), ctypes.c_size_t(SIZE), 0, 0, 0)
        if kind not in ("pinned", "reservation"):
            handle = self.map()
            self.fill()
            if kind in ("exported", "shared"):
                device.call("cuMemExportToShareableHandle", ctypes.byref(self.fd), handle, DESCRIPTOR, 0)
            if kind == "shared":
                self.other = Importer(self.fd.value)

    def pin(self) -> None:
        buffer = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self.host)))
        self.device.call("cuMemHostRegister_v2", buffer, ctypes.c_size_t(SIZE), 2)
        self.device.call("cuMemHostGetDevicePointer_v2", ctypes.byref(self.address), buffer, 0)

    def map(self) -> ctypes.c_uint64:
        numa, shared = self.kind == "numa", self.kind in ("exportable", "exported", "shared")
        place = Location(HOST_NUMA if numa else DEVICE, 0 if numa else self.device.device)
        prop = Prop(PINNED, DESCRIPTOR if shared else 0, place, None, 0)
        handle, size = ctypes.c_uint64(), ctypes.c_size_t(SIZE)
        self.device.call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(prop), ctypes.c_uint64(0))
        self.device.call("cuMemMap", self.address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = Access(Location(DEVICE, self.device.device), READWRITE)
        self.device.call("cuMemSetAccess", self.address, size, ctypes.byref(access), ctypes.c_size_t(1))
        return handle

    def fill(self) -> None:
        self.device.call("cuMemsetD32_v2", self.address, ctypes.c_uint(PATTERN), ctypes.c_size_t(SIZE // 4))
        self.device.call("cuCtxSynchronize")

    def holds(self, pattern: int = PATTERN) -> bool:
        back = (ctypes.c_uint32 * (SIZE // 4))()
        self.device.call("cuMemcpyDtoH_v2", back, self.address, ctypes.c_size_t(SIZE))
        return all(word == pattern for word in back)

    def check(self) -> bool:
        """Whether it is as it was; CudaError where the driver refuses to use it."""
        if self.kind == "reservation":
            self.map()
        if self.kind in ("reservation", "pinned"):
            self.fill()
        if self.kind == "exported":
            handle = ctypes.c_uint64()
            fd = ctypes.c_void_p(self.fd.value)
            self.device.call("cuMemImportFromShareableHandle", ctypes.byref(handle), fd, DESCRIPTOR)
        if self.kind == "shared" and self.holds():
            self.other.write()
            return self.holds(WRITTEN)
        return self.holds()


class Importer:
    """The other process, which has the memory mapped."""

    def __init__(self, fd: int) -> None:
        command = [sys.executable, __file__, "--import", str(fd)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(fd,)
        )
        self._hear()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise CudaError(f"the process that imports ended with {self._process.wait()}")

    def write(self) -> None:
        """Have it write there."""
        assert self._process.stdin is not None
        self._process.stdin.write("write\n")
        self._process.stdin.flush()
        self._hear()


def imported(fd: int) -> None:
    """What that process does: map it, and write there for each line."""
    device = Device()
    address, handle, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(SIZE)
    access = Access(Location(DEVICE, device.device), READWRITE)
    device.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), DESCRIPTOR)
    device.call("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
    device.call("cuMemMap", address, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    device.call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    print("mapped", flush=True)
    for _ in sys.stdin:
        device.call("cuMemsetD32_v2", address, ctypes.c_uint(WRITTEN), ctypes.c_size_t(SIZE // 4))
        device.call("cuCtxSynchronize")
        print("written", flush=True)


def main() -> None:
    """Make it, and answer until the end of the input."""
    parser = options("Something that may outlive the driver's checkpoint.")
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--import", type=int, dest="fd", help="be the other process, with this descriptor")
    args = parser.parse_args()
    if args.fd is not None:
        imported(args.fd)
        return
    work = Workload(args.seconds, args.window)
    survivor = Survivor(Device(), args.kind)
    signal.signal(signal.SIGTERM, _end)  # the next order may never come
    work.ready(kind=args.kind)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        try:
            emit("checked", number=order["number"], ok=survivor.check(), error="")
        except CudaError as error:
            emit("checked", number=order["number"], ok=False, error=str(error))


def _end(_number: int, _frame: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
