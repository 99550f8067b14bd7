# SPDX-License-Identifier: Apache-2.0
"""A plain client of /dev/nvidiactl, /dev/nvidiaN and /dev/nvidia-uvm for tests: escapes with the ABI data's layouts."""

from __future__ import annotations

import ctypes
import fcntl
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from detshare.tools.abi.generator import load

TRUTH = Path("/sys/kernel/debug/nvsim")
_NEWEST = {"580.159.04": "580.142"}


@lru_cache(maxsize=1)
def version() -> str:
    """The version whose layouts the loaded driver has."""
    name = Path("/sys/module/nvidia/version").read_text().strip()
    return _NEWEST.get(name, name)


@lru_cache(maxsize=8)
def _data(name: str) -> Any:
    return load(name)[version()] if name != "structs" else load(name)


@lru_cache(maxsize=1)
def _control_numbers() -> dict[str, int]:
    return {c["name"]: c["id"] for c in _data("controls") if c["name"]}


def number(name: str) -> int:
    """A constant, class, control or UVM ioctl by its name."""
    if name in _data("constants"):
        return int(_data("constants")[name])
    if name in _data("classes"):
        return int(_data("classes")[name]["num"])
    if name in _data("uvm_ioctls"):
        return int(_data("uvm_ioctls")[name]["nr"])
    return _control_numbers()[name]


def status(name: str) -> int:
    return int(_data("status")[name])


@lru_cache(maxsize=128)
def _fields(struct: str) -> tuple[int, dict[str, tuple[int, int]]]:
    entry = _data("structs")[struct][version()]
    return entry["size"], {f[2]: (f[0], f[1]) for f in entry["fields"]}


class Block(bytearray):
    """A structure in memory that the kernel may write; members by name, nested ones with dots."""

    struct: str

    @classmethod
    def of(cls, struct: str, **values: int) -> Block:
        block = cls(_fields(struct)[0])
        block.struct = struct
        for name, value in values.items():
            block.put(name, value)
        return block

    def get(self, name: str) -> int:
        offset, size = _fields(self.struct)[1][name]
        return int.from_bytes(self[offset : offset + size], "little")

    def put(self, name: str, value: int, index: int | None = None) -> None:
        offset, size = _fields(self.struct)[1][name]
        if index is not None:
            offset, size = offset + 4 * index, 4
        self[offset : offset + size] = value.to_bytes(size, "little")

    def bytes_of(self, name: str) -> bytes:
        offset, size = _fields(self.struct)[1][name]
        return bytes(self[offset : offset + size])

    def put_bytes(self, name: str, value: bytes) -> None:
        offset = _fields(self.struct)[1][name][0]
        self[offset : offset + len(value)] = value


def address(block: bytearray) -> int:
    """Of a buffer that the caller keeps alive."""
    return ctypes.addressof((ctypes.c_char * len(block)).from_buffer(block))


def request(nr: int, size: int, magic: int = ord("F"), direction: int = 3) -> int:
    return direction << 30 | size << 16 | magic << 8 | nr


def escape(fd: int, name: str, block: bytearray) -> None:
    fcntl.ioctl(fd, request(number(name), len(block)), block, True)


def truth(name: str, gpu: int = 0) -> int:
    """used, peak or objects of a GPU, from the simulator itself."""
    return int((TRUTH / f"gpu{gpu}" / name).read_text())


def totals() -> dict[str, int]:
    return {k: int(v) for k, v in (line.split() for line in (TRUTH / "totals").read_text().splitlines())}


@dataclass
class Rm:
    """A client with a device and a subdevice, on files of its own."""

    ctl: int = -1
    gpu: int = -1
    client: int = 0
    device: int = 0x5C000001
    subdevice: int = 0x5C000002
    next: int = 0x5C000010
    extra: list[int] = field(default_factory=list)

    @classmethod
    def start(cls, *, device: bool = True, minor: int = 0) -> Rm:
        rm = cls(os.open("/dev/nvidiactl", os.O_RDWR), os.open(f"/dev/nvidia{minor}", os.O_RDWR))
        code, rm.client = rm.alloc("NV01_ROOT", 0, 0, root=0)
        assert code == 0
        if device:
            params = Block.of("NV0080_ALLOC_PARAMETERS", deviceId=minor)
            assert rm.alloc("NV01_DEVICE_0", rm.client, rm.device, params) == (0, rm.device)
            params = Block.of("NV2080_ALLOC_PARAMETERS")
            assert rm.alloc("NV20_SUBDEVICE_0", rm.device, rm.subdevice, params) == (0, rm.subdevice)
        return rm

    def close(self) -> None:
        for fd in (self.ctl, self.gpu, *self.extra):
            if fd >= 0:
                os.close(fd)
        self.ctl = self.gpu = -1
        self.extra.clear()

    def handle(self) -> int:
        self.next += 1
        return self.next

    def alloc(
        self,
        klass: str | int,
        parent: int,
        handle: int,
        params: bytearray | None = None,
        *,
        root: int | None = None,
        fd: int | None = None,
    ) -> tuple[int, int]:
        """(status, handle of the new object)"""
        block = Block.of(
            "NVOS64_PARAMETERS",
            hRoot=self.client if root is None else root,
            hObjectParent=parent,
            hObjectNew=handle,
            hClass=klass if isinstance(klass, int) else number(klass),
            pAllocParms=address(params) if params is not None else 0,
        )
        escape(self.ctl if fd is None else fd, "NV_ESC_RM_ALLOC", block)
        return block.get("status"), block.get("hObjectNew")

    def alloc_object(self, klass: str, parent: int, handle: int) -> int:
        """The status of the older call, which takes no parameters."""
        block = Block.of(
            "NVOS05_PARAMETERS", hRoot=self.client, hObjectParent=parent, hObjectNew=handle, hClass=number(klass)
        )
        escape(self.ctl, "NV_ESC_RM_ALLOC_OBJECT", block)
        return block.get("status")

    def free(self, handle: int, *, root: int | None = None, fd: int | None = None) -> int:
        client = self.client if root is None else root
        block = Block.of("NVOS00_PARAMETERS", hRoot=client, hObjectOld=handle)
        escape(self.ctl if fd is None else fd, "NV_ESC_RM_FREE", block)
        return block.get("status")

    def control(
        self,
        target: int,
        command: str | int,
        params: bytearray | None = None,
        *,
        client: int | None = None,
        fd: int | None = None,
    ) -> int:
        block = Block.of(
            "NVOS54_PARAMETERS",
            hClient=self.client if client is None else client,
            hObject=target,
            cmd=command if isinstance(command, int) else number(command),
            params=address(params) if params else 0,
            paramsSize=len(params) if params else 0,
        )
        escape(self.ctl if fd is None else fd, "NV_ESC_RM_CONTROL", block)
        return block.get("status")

    def dup(self, source_client: int, source: int, handle: int, *, parent: int | None = None) -> int:
        block = Block.of(
            "NVOS55_PARAMETERS",
            hClient=self.client,
            hParent=self.device if parent is None else parent,
            hObject=handle,
            hClientSrc=source_client,
            hObjectSrc=source,
        )
        escape(self.ctl, "NV_ESC_RM_DUP_OBJECT", block)
        return block.get("status")

    def share(self, handle: int, kind: str, *, target: int = 0, action: int = 0) -> int:
        block = Block.of("NVOS57_PARAMETERS", hClient=self.client, hObject=handle)
        block.put("sharePolicy.target", target)
        block.put("sharePolicy.accessMask.limbs", 1)
        block.put("sharePolicy.type", number(kind))
        block.put("sharePolicy.action", action)
        escape(self.ctl, "NV_ESC_RM_SHARE", block)
        return block.get("status")

    def export(self, handle: int, carrier: int) -> int:
        """The status of giving it away by the descriptor of a control file."""
        params = Block.of("NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS", fd=carrier)
        for name, value in (("hDevice", self.device), ("hObject", handle)):
            params.put(f"object.data.rmObject.{name}", value)
        return self.control(self.client, "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD", params)

    def take(self, carrier: int, handle: int, *, parent: int | None = None) -> int:
        """The status of taking what such a descriptor carries."""
        params = Block.of("NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS", fd=carrier)
        for name, value in (("hParent", self.device if parent is None else parent), ("hObject", handle)):
            params.put(f"object.data.rmObject.{name}", value)
        return self.control(self.client, "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD", params)

    def memory(
        self, size: int, handle: int | None = None, *, klass: str = "NV01_MEMORY_LOCAL_USER", page: int = 0
    ) -> tuple[int, Block]:
        """(status, parameters after) of memory of `klass`; page: NVOS32_ATTR_PAGE_SIZE."""
        self.last = self.handle() if handle is None else handle
        where = number("NVOS32_ATTR_LOCATION_VIDMEM" if klass.endswith("LOCAL_USER") else "NVOS32_ATTR_LOCATION_PCI")
        attr = page << number("NVOS32_ATTR_PAGE_SIZE_LO") | where << number("NVOS32_ATTR_LOCATION_LO")
        params = Block.of("NV_MEMORY_ALLOCATION_PARAMS", owner=self.client, size=size, attr=attr)
        return self.alloc(klass, self.device, self.last, params)[0], params

    def map(self, handle: int, length: int, fd: int, offset: int = 0) -> int:
        block = Block.of("nv_ioctl_nvos33_parameters_with_fd", fd=fd)
        for name, value in (("hClient", self.client), ("hDevice", self.device), ("hMemory", handle)):
            block.put(f"params.{name}", value)
        block.put("params.offset", offset)
        block.put("params.length", length)
        escape(self.ctl, "NV_ESC_RM_MAP_MEMORY", block)
        return block.get("params.status")

    def open(self, name: str) -> int:
        """Another file, closed with this client."""
        fd = os.open(f"/dev/{name}", os.O_RDWR)
        self.extra.append(fd)
        return fd


class Uvm:
    """A UVM file with one GPU registered."""

    def __init__(self, rm: Rm) -> None:
        self.rm = rm
        self.fd = os.open("/dev/nvidia-uvm", os.O_RDWR)
        assert self.call("UVM_INITIALIZE", Block.of("UVM_INITIALIZE_PARAMS")) == 0
        gid = Block.of("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", flags=2)
        assert rm.control(rm.subdevice, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", gid) == 0
        self.uuid = gid.bytes_of("data")[:16]
        params = Block.of("UVM_REGISTER_GPU_PARAMS", rmCtrlFd=rm.ctl, hClient=rm.client)
        params.put_bytes("gpu_uuid.uuid", self.uuid)
        assert self.call("UVM_REGISTER_GPU", params) == 0

    def close(self) -> None:
        os.close(self.fd)

    def call(self, name: str, params: Block) -> int:
        fcntl.ioctl(self.fd, number(name), params, True)
        return params.get("rmStatus")

    def register_vas(self, handle: int) -> int:
        params = Block.of(
            "UVM_REGISTER_GPU_VASPACE_PARAMS", rmCtrlFd=self.rm.ctl, hClient=self.rm.client, hVaSpace=handle
        )
        params.put_bytes("gpuUuid.uuid", self.uuid)
        return self.call("UVM_REGISTER_GPU_VASPACE", params)

    def external(self, base: int, length: int) -> int:
        params = Block.of("UVM_CREATE_EXTERNAL_RANGE_PARAMS", base=base, length=length)
        return self.call("UVM_CREATE_EXTERNAL_RANGE", params)

    def map(self, base: int, length: int, handle: int) -> int:
        params = Block.of("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", base=base, length=length, gpuAttributesCount=1)
        for name, value in (("rmCtrlFd", self.rm.ctl), ("hClient", self.rm.client), ("hMemory", handle)):
            params.put(name, value)
        params.put_bytes("perGpuAttributes", self.uuid)
        return self.call("UVM_MAP_EXTERNAL_ALLOCATION", params)

    def free(self, base: int, length: int) -> int:
        return self.call("UVM_FREE", Block.of("UVM_FREE_PARAMS", base=base, length=length))

    def migrate(self, base: int, length: int, uuid: bytes | None = None) -> int:
        params = Block.of("UVM_MIGRATE_PARAMS", base=base, length=length)
        params.put_bytes("destinationUuid.uuid", self.uuid if uuid is None else uuid)
        return self.call("UVM_MIGRATE", params)
