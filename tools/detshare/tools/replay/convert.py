# SPDX-License-Identifier: Apache-2.0
"""From a recorded trace to a replay script.

A trace holds calls and mmaps, but neither opens, closes nor the program's own memory. What is missing follows from the
rest: a file carries one mapping and is registered once, so a second use of its number for that is another file; what a
pointer inside parameters pointed to is made up by the few rules below; the UVM blocks that were recorded only in their
first 256 bytes end with values that the calls before them name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from detshare.tools.replay.layouts import Layouts
from detshare.tools.replay.peer import Peer, peer_steps
from detshare.tools.replay.records import Call, Mapping, Record, TraceError
from detshare.tools.replay.script import (
    Buffer,
    Catch,
    Check,
    Close,
    Fix,
    Ioctl,
    Map,
    Open,
    Program,
    Script,
    Step,
    Thing,
    What,
    Where,
)

__all__ = ["convert"]

ALLOC, FREE, CONTROL, DUP = 0x2B, 0x29, 0x2A, 0x34
ALLOC_MEMORY, MAP_MEMORY, UPDATE_MAPPING = 0x27, 0x4E, 0x5E
REGISTER_FD, ALLOC_OS_EVENT = 0xC9, 0xCE
ROOTS = {0x0, 0x1, 0x41}
DEVICE, SUBDEVICE, VASPACE, TSG, CTXSHARE, CHANNEL, USERMODE = 0x80, 0x2080, 0x90F1, 0xA06C, 0x9067, 0xC86F, 0xC661
MEMORY, OS_DESCRIPTOR, OS_EVENT = {0x3E, 0x40, 0x42}, 0x71, 0x79
SIZED = MEMORY | {0x50A0}
MAP_FIXED = 0x10

GET_PROBED_IDS, GET_GID_INFO, GET_CLASS_ENGINEID = 0x214, 0x2080014A, 0x906F0101
GET_BUILD_VERSION, FIFO_GET_CHANNELLIST, GR_GET_INFO = 0x101, 0x80170D, 0x20801201
# where a control's parameters name a GPU by its id
_GPU_ID_AT = {0x202: 0, 0x205: 0, 0x215: 0, 0x13A: 8}
_UVM = "/dev/nvidia-uvm"
_UVM_MM_INITIALIZE, _UVM_REGISTER_GPU, _UVM_REGISTER_VASPACE, _UVM_REGISTER_CHANNEL = 75, 37, 25, 27
_UVM_CREATE_RANGE, _UVM_MAP_EXTERNAL, _UVM_SEMAPHORE_POOL = 73, 33, 68
# status of the UVM calls whose structure the ABI data does not have
_UVM_STATUS_AT = {23: 8, 31: 24, 39: 4, 42: 36, 43: 16, 45: 16, 46: 32, 47: 32, 72: 16}
_STATUS = {
    FREE: ("NVOS00_PARAMETERS", "status"),
    CONTROL: ("NVOS54_PARAMETERS", "status"),
    DUP: ("NVOS55_PARAMETERS", "status"),
    ALLOC_MEMORY: ("nv_ioctl_nvos02_parameters_with_fd", "params.status"),
    MAP_MEMORY: ("nv_ioctl_nvos33_parameters_with_fd", "params.status"),
    UPDATE_MAPPING: ("NVOS56_PARAMETERS", "status"),
    ALLOC_OS_EVENT: ("nv_ioctl_alloc_os_event_t", "Status"),
}
_NAMES = {
    0xC8: "CARD_INFO", 0xC9: "REGISTER_FD", 0xCE: "ALLOC_OS_EVENT", 0xD6: "SYS_PARAMS", 0xD7: "NUMA_INFO",
    FREE: "RM_FREE", DUP: "RM_DUP_OBJECT", ALLOC_MEMORY: "RM_ALLOC_MEMORY", MAP_MEMORY: "RM_MAP_MEMORY",
    UPDATE_MAPPING: "RM_UPDATE_DEVICE_MAPPING_INFO",
}  # fmt: skip
# our own channels' handles and addresses begin behind whatever the program has
_FREE_ADDRESS = 0x40_0000_0000


def _u32(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", data, offset)[0])


def _u64(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<Q", data, offset)[0])


@dataclass(slots=True)
class _State:
    """What the walk over the records has learnt."""

    steps: list[Step] = field(default_factory=list)
    files: dict[int, tuple[int, str]] = field(default_factory=dict)  # descriptor: file number, path
    registered: set[int] = field(default_factory=set)
    file_count: int = 0
    buffer_count: int = 0
    clients: dict[int, int] = field(default_factory=dict)  # recorded handle: number
    linears: dict[int, int] = field(default_factory=dict)  # recorded linear address: number
    maps: list[Mapping] = field(default_factory=list)
    uuid: bytes | None = None
    gpu_id: int | None = None
    last_memory: int = 0
    last_channel: int = 0
    objects: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # client, handle: class, parent
    owned_ranges: list[tuple[int, int]] = field(default_factory=list)
    doorbell: int | None = None
    peers: set[int] = field(default_factory=set)  # stand-ins


class _Converter:
    def __init__(self, records: list[Record], layouts: Layouts) -> None:
        self.records = records
        self.abi = layouts
        self.state = _State()

    # -- files and memory

    def open(self, fd: int, path: str) -> int:
        """A new file in place of whatever had this descriptor."""
        before = self.state.files.get(fd)
        if before is not None:
            self.state.steps.append(Close(before[0]))
        number = self.state.file_count
        self.state.file_count += 1
        self.state.files[fd] = (number, path)
        self.state.steps.append(Open(number, path.removeprefix("/dev/")))
        return number

    def file(self, fd: int, path: str) -> int:
        known = self.state.files.get(fd)
        return known[0] if known is not None and known[1] == path else self.open(fd, path)

    def file_by_fd(self, fd: int, path: str) -> int:
        """A descriptor inside parameters."""
        known = self.state.files.get(fd)
        return known[0] if known is not None else self.open(fd, path)

    def buffer(self, size: int, content: bytes = b"", address: int = 0) -> int:
        index = self.state.buffer_count
        self.state.buffer_count += 1
        self.state.steps.append(Buffer(index, address, size, content))
        return index

    # -- holes that can be anywhere

    def holes(self, where: Where, data: bytes) -> Iterable[Fix]:
        """Handles of clients and the GPU's UUID, wherever they stand."""
        for offset in range(0, len(data) - 3, 4):
            client = self.state.clients.get(_u32(data, offset))
            if client is not None:
                yield Fix(where, Thing.CLIENT, client, offset)
            if self.state.uuid is not None and data[offset : offset + 16] == self.state.uuid:
                yield Fix(where, Thing.UUID, 0, offset)

    # -- calls

    def convert(self) -> None:
        for number, record in enumerate(self.records):
            if isinstance(record, Mapping):
                self.mapping(record)
            elif record.path == _UVM:
                self.uvm(record)
            else:
                self.escape(number, record)

    def mapping(self, record: Mapping) -> None:
        index = len(self.state.maps)
        self.state.maps.append(record)
        file = self.file(record.fd, record.path)
        fixed = bool(record.flags & MAP_FIXED)
        place = (record.address, record.length, record.prot, fixed, record.offset)
        self.state.steps.append(Map(record.seq, index, file, *place))
        if fixed:
            self.state.owned_ranges.append((record.address, record.length))
        if record.path != _UVM:
            # it was opened for this mapping alone
            self.state.steps.append(Close(file))
            del self.state.files[record.fd]

    def start(self, record: Call, name: str, size: int) -> Ioctl:
        block = record.before[:size]
        step = Ioctl(record.seq, name, self.file(record.fd, record.path), record.request, size, block, record.ret)
        step.fixes += self.holes(Where.OUTER, block)
        return step

    def expect(
        self, step: Ioctl, what: What, after: bytes, offset: int, where: Where = Where.OUTER, width: int = 4
    ) -> None:
        value = _u32(after, offset) if width == 4 else _u64(after, offset)
        step.checks.append(Check(where, what, width, offset, value))

    def escape(self, number: int, record: Call) -> None:
        if record.nr == REGISTER_FD:
            known = self.state.files.get(record.fd)
            if known is None or known[1] != record.path or known[0] in self.state.registered:
                self.open(record.fd, record.path)
        name = self.name(record)
        step = self.start(record, name, len(record.before))
        if record.nr in _STATUS:
            self.expect(step, What.STATUS, record.after, self.abi.offset(*_STATUS[record.nr]))
        match record.nr:
            case 0x2B:
                self.alloc(record, step)
            case 0x2A:
                self.control(record, step)
            case 0x34:
                self.dup(record, step)
            case 0x27:
                self.alloc_memory(record, step)
            case 0x4E:
                self.map_memory(number, record, step)
            case 0x5E:
                self.update_mapping(record, step)
            case 0xC9:
                self.state.registered.add(step.file)
                ctl = self.file_by_fd(_u32(record.before, 0), "/dev/nvidiactl")
                step.fixes.append(Fix(Where.OUTER, Thing.FILE, ctl, 0))
            case 0xCE:
                step.fixes.append(Fix(Where.OUTER, Thing.FILE, step.file, 8))
            case _:
                pass
        self.state.steps.append(step)

    def name(self, record: Call) -> str:
        if record.nr == ALLOC:
            return f"RM_ALLOC {self.abi.class_name(_u32(record.before, 12))}"
        if record.nr == CONTROL:
            return f"RM_CONTROL {self.abi.control_name(_u32(record.before, 8))}"
        return _NAMES.get(record.nr, f"escape {record.nr:#x}")

    def alloc(self, record: Call, step: Ioctl) -> None:
        long = len(record.before) == self.abi.size("NVOS64_PARAMETERS")
        struct_name = "NVOS64_PARAMETERS" if long else "NVOS21_PARAMETERS"
        client, parent, handle, klass = struct.unpack_from("<IIII", record.before)
        made = _u32(record.after, 8)
        self.expect(step, What.STATUS, record.after, self.abi.offset(struct_name, "status"))
        if klass in ROOTS and client == 0:
            self.state.clients[made] = len(self.state.clients)
            step.catches.append(Catch(Where.OUTER, Thing.CLIENT, self.state.clients[made], 8))
            return
        self.expect(step, What.HANDLE, record.after, 8)
        params = self.abi.params_of_class(klass)
        if _u64(record.before, 16) and params is not None:
            # a driver that is asked to takes as much as the class has, whatever the recorder saw behind it
            step.nested_at = 16
            step.nested = record.nested_before[: self.abi.size(params)]
            step.fixes += self.holes(Where.NESTED, step.nested)
        if klass in SIZED:
            at = self.abi.offset("NV_MEMORY_ALLOCATION_PARAMS", "size")
            self.expect(step, What.SIZE, record.nested_after, at, Where.NESTED, 8)
        if klass == CTXSHARE:
            at = self.abi.offset("NV_CTXSHARE_ALLOCATION_PARAMETERS", "subctxId")
            self.expect(step, What.ANSWER, record.nested_after, at, Where.NESTED)
        if klass == OS_EVENT:
            at = self.abi.offset("NV0005_ALLOC_PARAMETERS", "data")
            event = self.file_by_fd(_u32(record.nested_before, at), record.path)
            step.fixes.append(Fix(Where.NESTED, Thing.FILE, event, at))
        self.made(client, handle or made, klass, parent)

    def made(self, client: int, handle: int, klass: int, parent: int) -> None:
        self.state.objects[client, handle] = (klass, parent)
        if klass in MEMORY | {OS_DESCRIPTOR}:
            self.state.last_memory = handle
        if klass == CHANNEL:
            self.state.last_channel = handle

    def control(self, record: Call, step: Ioctl) -> None:
        command, size = _u32(record.before, 8), _u32(record.before, 24)
        if not _u64(record.before, 16):
            return
        step.nested_at = 16
        step.nested = record.nested_before[:size]
        step.fixes += self.holes(Where.NESTED, step.nested)
        if command in _GPU_ID_AT and _u32(step.nested, _GPU_ID_AT[command]) == self.state.gpu_id:
            step.fixes.append(Fix(Where.NESTED, Thing.GPU_ID, 0, _GPU_ID_AT[command]))
        match command:
            case 0x214:
                self.state.gpu_id = _u32(record.nested_after, 0)
                step.catches.append(Catch(Where.NESTED, Thing.GPU_ID, 0, 0))
            case 0x2080014A:
                at = self.abi.offset("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", "data")
                self.state.uuid = record.nested_after[at : at + 16]
                step.catches.append(Catch(Where.NESTED, Thing.UUID, 0, at))
            case 0x906F0101:
                for at in (4, 8, 12):
                    self.expect(step, What.ANSWER, record.nested_after, at, Where.NESTED)
            case 0x101:
                for at in (8, 16, 24):
                    self.pointer(step, at, self.buffer(_u32(step.nested, 0) or 256))
            case 0x80170D:
                self.pointer(step, 8, self.buffer(4, struct.pack("<I", self.state.last_channel)))
                self.pointer(step, 16, self.buffer(4))
            case 0x20801201:
                entries = b"".join(struct.pack("<II", i, 0) for i in range(_u32(step.nested, 0)))
                self.pointer(step, 8, self.buffer(len(entries), entries))
            case _:
                pass

    def pointer(self, step: Ioctl, at: int, buffer: int) -> None:
        step.fixes.append(Fix(Where.NESTED, Thing.BUFFER, buffer, at))

    def dup(self, record: Call, step: Ioctl) -> None:
        client, parent, handle, source, what = struct.unpack_from("<IIIII", record.before)
        self.expect(step, What.HANDLE, record.after, 8)
        if source not in self.state.clients:
            raise TraceError(f"record {record.seq} duplicates from client {source:#x}, which the trace does not make")
        klass = self.state.objects.get((source, what), (0, 0))[0]
        self.made(client, handle, klass, parent)

    def alloc_memory(self, record: Call, step: Ioctl) -> None:
        client, parent, handle, klass = struct.unpack_from("<IIII", record.before)
        self.expect(step, What.HANDLE, record.after, 8)
        if klass == OS_DESCRIPTOR:
            address, limit = _u64(record.before, 24), _u64(record.before, 32)
            self.buffer(limit + 1, address=address)
            self.state.owned_ranges.append((address, limit + 1))
        self.made(client, handle, klass, parent)

    def map_memory(self, number: int, record: Call, step: Ioctl) -> None:
        fd = _u32(record.before, 48)
        found = next((r for r in self.records[number + 1 :] if isinstance(r, Mapping) and r.fd == fd), None)
        if found is None:
            raise TraceError(f"record {record.seq} arms descriptor {fd}, which is never mapped after it")
        step.fixes.append(Fix(Where.OUTER, Thing.FILE, self.open(fd, found.path), 48))
        linear = _u64(record.after, 32)
        self.state.linears[linear] = len(self.state.linears)
        step.catches.append(Catch(Where.OUTER, Thing.LINEAR, self.state.linears[linear], 32))
        client, memory = _u32(record.before, 0), _u32(record.before, 8)
        if self.state.objects.get((client, memory), (0, 0))[0] == USERMODE and self.state.doorbell is None:
            self.state.doorbell = len(self.state.maps)

    def update_mapping(self, record: Call, step: Ioctl) -> None:
        old, new = _u64(record.before, 16), _u64(record.before, 24)
        if old in self.state.linears:
            step.fixes.append(Fix(Where.OUTER, Thing.LINEAR, self.state.linears[old], 16))
        for index, mapping in enumerate(self.state.maps):
            if mapping.address == new and not mapping.flags & MAP_FIXED:
                step.fixes.append(Fix(Where.OUTER, Thing.CPU, index, 24))

    def uvm(self, record: Call) -> None:
        size = self.abi.uvm_size(record.nr)
        step = self.start(record, self.abi.uvm_name(record.nr), size)
        name = f"{self.abi.uvm_name(record.nr)}_PARAMS"
        known = _UVM_STATUS_AT.get(record.nr)
        status = self.abi.offset(name, "rmStatus") if known is None else known
        if status + 4 <= len(record.after):
            self.expect(step, What.STATUS, record.after, status)
        else:  # behind what was recorded: every call whose status was recorded was NV_OK
            step.checks.append(Check(Where.OUTER, What.STATUS, 4, status, 0))
        if record.nr == _UVM_MM_INITIALIZE:
            step.fixes.append(Fix(Where.OUTER, Thing.FILE, self.file_by_fd(_u32(record.before, 0), _UVM), 0))
        if record.nr in (_UVM_REGISTER_GPU, _UVM_REGISTER_VASPACE, _UVM_REGISTER_CHANNEL):
            at = self.abi.offset(name, "rmCtrlFd")
            if _u32(record.before, at) != 0xFFFFFFFF:
                ctl = self.file_by_fd(_u32(record.before, at), "/dev/nvidiactl")
                step.fixes.append(Fix(Where.OUTER, Thing.FILE, ctl, at))
        if record.nr in (_UVM_MAP_EXTERNAL, _UVM_SEMAPHORE_POOL):
            self.complete(record, step, name)
        self.state.steps.append(step)

    def complete(self, record: Call, step: Ioctl, name: str) -> None:
        """The end of a block that is longer than what was recorded of it."""
        block = bytearray(step.block.ljust(step.size, b"\0"))
        struct.pack_into("<Q", block, self.abi.offset(name, "gpuAttributesCount"), 1)
        if record.nr == _UVM_MAP_EXTERNAL:
            client = self.client()
            ctl = next(fd for fd, (_, path) in self.state.files.items() if path == "/dev/nvidiactl")
            struct.pack_into("<i", block, self.abi.offset(name, "rmCtrlFd"), ctl)
            struct.pack_into("<I", block, self.abi.offset(name, "hClient"), client)
            struct.pack_into("<I", block, self.abi.offset(name, "hMemory"), self.state.last_memory)
            file = self.state.files[ctl][0]
            step.fixes.append(Fix(Where.OUTER, Thing.FILE, file, self.abi.offset(name, "rmCtrlFd")))
            at = self.abi.offset(name, "hClient")
            step.fixes.append(Fix(Where.OUTER, Thing.CLIENT, self.state.clients[client], at))
        step.block = bytes(block)

    # -- the end

    def client(self) -> int:
        """The recorded handle of the client that has a device."""
        for (client, _handle), (klass, _parent) in self.state.objects.items():
            if klass == DEVICE and client not in self.state.peers:
                return client
        raise TraceError("the trace makes no device: there is nothing to go on with")

    def program(self) -> Program:
        state = self.state
        client = self.client()
        mine = {h: kp for (c, h), kp in state.objects.items() if c == client}
        share = next((h for h, (k, _) in mine.items() if k == CTXSHARE), 0)
        tsg = mine[share][1] if share else next((h for h, (k, _) in mine.items() if k == TSG), 0)
        by_class = {k: h for h, (k, _) in reversed(mine.items())}
        ctl = next(f for f, path in state.files.values() if path == "/dev/nvidiactl")
        gpu = next(f for f, path in state.files.values() if path.startswith("/dev/nvidia0"))
        uvm = next(f for f, path in state.files.values() if path == _UVM)
        if state.doorbell is None or not tsg:
            raise TraceError("the trace maps no doorbell or makes no TSG: there is nothing to go on with")
        return Program(
            client=state.clients[client],
            ctl=ctl,
            gpu=gpu,
            uvm=uvm,
            doorbell=state.doorbell,
            device=by_class[DEVICE],
            subdevice=by_class[SUBDEVICE],
            vaspace=by_class[VASPACE],
            tsg=tsg,
            ctxshare=share,
            next_handle=max(mine) + 16,
            next_address=_FREE_ADDRESS,
        )


def _foreign(records: list[Record]) -> dict[int, list[int]]:
    """Clients that objects are duplicated from and that the trace does not make: their objects."""
    own = {_u32(r.after, 8) for r in records if isinstance(r, Call) and r.nr == ALLOC and _u32(r.before, 0) == 0}
    found: dict[int, list[int]] = {}
    for record in records:
        if isinstance(record, Call) and record.nr == DUP and record.path != _UVM:
            source, what = struct.unpack_from("<II", record.before, 12)
            if source not in own:
                found.setdefault(source, []).append(what)
    return found


def convert(records: list[Record], source: str, version: str = "580.142") -> Script:
    """The script of a trace that was recorded with a driver of `version`'s layout. Raises TraceError."""
    converter = _Converter(records, Layouts(version))
    state = converter.state
    for client, handles in _foreign(records).items():
        peer = Peer(client, handles, records)
        state.clients[client] = len(state.clients)
        state.peers.add(client)
        steps, objects = peer_steps(peer, converter.abi, state.clients[client], state.file_count)
        state.steps += steps
        state.file_count += 2
        state.objects |= objects
    converter.convert()
    return Script(
        source=source,
        steps=state.steps,
        files=state.file_count,
        clients=len(state.clients),
        buffers=state.buffer_count,
        linears=len(state.linears),
        maps=len(state.maps),
        program=converter.program(),
    )
