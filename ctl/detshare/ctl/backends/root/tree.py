# SPDX-License-Identifier: Apache-2.0
"""Reading the objects of one RM client: devices, TSGs with their engine, channels and context shares."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core.snapshot import Kind, Tsg
from detshare.ctl.rm.client import PLACE, NoObject, RmClient, RmError, WrongClient

GAP = 1024
"""so many absent handles in a row end a block: libraries count handles up and reuse freed ones"""
DEEP_GAP = 4096
"""the same where time is no matter: a program may have freed many handles below those of a late context"""
_STEP = 64
_FIRST = 256
MOST = 65536
"""a block is no longer than the part of the handle that libraries count in"""
_ENGINE_OBJECT = re.compile(r"\w+_(COMPUTE|DMA_COPY)_[A-Z]")
_CHANNEL = re.compile(r"\w+_CHANNEL_GPFIFO_[A-Z]")


class Piece(NamedTuple):
    """Memory of a GPU as an object of a client, reached through descriptor `fd` of its owner."""

    gpu: str
    """UUID"""
    address: int
    """where it begins on that GPU; one place, one piece, whoever else has it as an object"""
    fd: int
    client: int
    handle: int


@dataclass(slots=True)
class ObjectTree:
    """What one client owns. `complete` is False where a part could not be read; `notes` say which."""

    tsgs: list[Tsg] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    mps: bool = False
    reached: list[Piece] = field(default_factory=list)
    """memory of a client that reaches from one GPU to another; of others it is not asked"""
    complete: bool = True
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Depth:
    """How far to read: past gaps of `gap` handles, and at least to `known`, the highest handle of an earlier TSG."""

    gap: int = GAP
    known: int = 0


def _block(client: RmClient, start: int, depth: Depth, first: Mapping[int, int] | None = None) -> dict[int, int]:
    """Handle -> class of what exists from `start` on, up to the first long gap. `first`: of the first `_FIRST` handles,
    where that is known."""
    found, position = dict(first or {}), start if first is None else start + _FIRST
    last = max([depth.known if start <= depth.known < start + MOST else start, *found])
    while position < start + MOST and position - last <= depth.gap:
        for handle, klass in client.existing(range(position, position + _STEP)):
            found[handle] = klass
            last = max(last, handle)
        position += _STEP
    return found


def _tsg_below(client: RmClient, parent: int) -> bool:
    try:
        return client.child(parent, "KernelChannelGroupApi") is not None
    except NoObject:
        return False


def _objects(client: RmClient, abi: Abi, depth: Depth) -> tuple[dict[int, int], list[str]]:
    """Handle -> class of every object that can be found, and remarks.

    The library's block of handles is recognised by the first device; the driver names that and the first TSG
    whatever their handles are.
    """
    objects: dict[int, int] = {}
    notes: list[str] = []
    device = client.child(client.handle, "Device")
    if device is None:
        return objects, notes
    base, device_class = device & ~0xFFFF, abi.klass("NV01_DEVICE_0")
    # A client that only asks (NVML's) has devices and no TSG: its first handles are enough to know that.
    first = dict(client.existing(range(base, base + _FIRST)))
    objects = first | dict(client.existing([device]))
    devices = [h for h, klass in objects.items() if klass == device_class]
    if not depth.known and not any(_tsg_below(client, h) for h in devices):
        return objects, notes
    objects |= _block(client, base, depth, first)
    if device not in objects:
        objects |= _block(client, device, depth)
    for parent in [h for h, klass in objects.items() if klass == device_class]:
        for internal in ("Subdevice", "KernelChannelGroupApi"):
            try:
                child = client.child(parent, internal)
            except NoObject:
                continue  # the device was freed while we looked
            if child is not None and child not in objects:
                objects |= _block(client, child & ~0xFFFF, depth)
                if child not in objects:
                    objects |= _block(client, child, depth)
                notes.append(f"handles outside one block (object {child:#x}): some of its objects may be unseen")
    return objects, notes


def _kind(engines: Iterable[str]) -> tuple[Kind, str]:
    """What a TSG is for, from the names of the engines its objects run on: GR decides before its own copy engine."""
    names = sorted(set(engines))
    for prefix, kind in (("GR", Kind.COMPUTE), ("COPY", Kind.COPY)):
        matching = [name for name in names if name.startswith(prefix)]
        if matching:
            return kind, matching[0]
    return Kind.OTHER, names[0] if names else "?"


def read_tree(client: RmClient, abi: Abi, fd: int, depth: Depth) -> ObjectTree:
    """The tree of `client`, reached through descriptor number `fd` of its owner.

    WrongClient if the client is gone. Objects that end while being read are left out.
    """
    tree = ObjectTree()
    objects, tree.notes = _objects(client, abi, depth)
    names = {number: name for name, number in abi.classes.items()}
    of_class: dict[str, list[int]] = defaultdict(list)
    for handle, klass in sorted(objects.items()):
        of_class[names.get(klass, "")].append(handle)
    tree.devices = of_class["NV01_DEVICE_0"]
    tree.mps = bool(of_class["MPS_COMPUTE"])
    tsgs = of_class["KEPLER_CHANNEL_GROUP_A"]
    children: dict[int, list[int]] = defaultdict(list)
    wanted = [h for n, hs in of_class.items() if _CHANNEL.fullmatch(n) or _ENGINE_OBJECT.fullmatch(n) for h in hs]
    wanted += of_class["FERMI_CONTEXT_SHARE_A"] + of_class["NV20_SUBDEVICE_0"] + tsgs
    for handle in wanted:
        try:
            children[client.parent(handle)].append(handle)
        except NoObject:
            objects.pop(handle, None)
    uuids: dict[int, str] = {}
    for tsg in tsgs:
        try:
            found = _read_tsg(client, abi, fd, tsg, objects, children, names, uuids)
        except WrongClient:
            raise
        except NoObject:
            continue  # freed while we looked
        except RmError as error:
            tree.complete = False
            tree.notes.append(f"TSG {tsg:#x}: {error}")
            continue
        tree.tsgs.append(found)
        if found.kind is Kind.OTHER and not found.channels:
            tree.complete = False  # being made just now
    if of_class["NV50_P2P"] and PLACE in abi.controls:
        tree.reached = _pieces(client, fd, of_class["NV01_MEMORY_LOCAL_USER"], children, objects, names, uuids)
    return tree


def _pieces(
    client: RmClient,
    fd: int,
    memory: list[int],
    children: dict[int, list[int]],
    objects: dict[int, int],
    names: dict[int, str],
    uuids: dict[int, str],
) -> list[Piece]:
    """Where memory lies, of what is a GPU's and can be asked."""
    found = []
    for handle in memory:
        try:
            subdevice = _subdevice(client, client.parent(handle), children, objects, names, uuids)
            address = client.address(handle)
        except WrongClient:
            raise
        except RmError:
            continue  # freed while we looked, or of a kind that has no place
        if address is not None and subdevice:
            found.append(Piece(uuids[subdevice], address, fd, client.handle, handle))
    return found


def _subdevice(
    client: RmClient,
    device: int,
    children: dict[int, list[int]],
    objects: dict[int, int],
    names: dict[int, str],
    uuids: dict[int, str],
) -> int:
    """The subdevice below a device, whose GPU `uuids` names then; 0: there is none."""
    below = [h for h in children[device] if h in objects and names.get(objects[h]) == "NV20_SUBDEVICE_0"]
    subdevice = below[0] if below else (client.child(device, "Subdevice") or 0)
    if subdevice and subdevice not in uuids:
        uuids[subdevice] = client.gpu_uuid(subdevice)
    return subdevice


def _read_tsg(
    client: RmClient,
    abi: Abi,
    fd: int,
    tsg: int,
    objects: dict[int, int],
    children: dict[int, list[int]],
    names: dict[int, str],
    uuids: dict[int, str],
) -> Tsg:
    device = client.parent(tsg)
    below = children[tsg]
    channels = tuple(h for h in below if _CHANNEL.fullmatch(names.get(objects.get(h, -1), "")))
    shares = tuple(h for h in below if names.get(objects.get(h, -1)) == "FERMI_CONTEXT_SHARE_A")
    subdevice = _subdevice(client, device, children, objects, names, uuids)
    engines = []
    for channel in channels:
        for target in children[channel]:
            engines.append(abi.engine_name(client.engine(channel, target)))
        if engines:
            break  # the channels of one TSG share its runlist, hence its engine
    kind, engine = _kind(engines)
    return Tsg(
        gpu=uuids.get(subdevice, ""),
        fd=fd,
        client=client.handle,
        handle=tsg,
        device=device,
        subdevice=subdevice,
        tsg_id=client.tsg_id(tsg),
        kind=kind,
        engine=engine,
        channels=channels,
        context_shares=shares,
        slice_us=client.timeslice(tsg),
    )
