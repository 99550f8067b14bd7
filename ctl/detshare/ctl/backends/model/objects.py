# SPDX-License-Identifier: Apache-2.0
"""What the RM server keeps: open file descriptions, clients, and objects in a tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.model.gpu import Channel, GpuModel, ModelTsg

CONTROL_PATH = "/dev/nvidiactl"


class Kind(Enum):
    """The kinds of object that the model gives a meaning. OTHER: kept in the tree, answers no control."""

    CLIENT = auto()
    DEVICE = auto()
    SUBDEVICE = auto()
    TSG = auto()
    CONTEXT_SHARE = auto()
    CHANNEL = auto()
    COMPUTE = auto()
    COPY = auto()
    MPS = auto()
    PEERS = auto()
    MEMORY = auto()
    OTHER = auto()


PARENTS: dict[Kind, frozenset[Kind]] = {
    Kind.DEVICE: frozenset({Kind.CLIENT}),
    Kind.SUBDEVICE: frozenset({Kind.DEVICE}),
    Kind.TSG: frozenset({Kind.DEVICE}),
    Kind.CONTEXT_SHARE: frozenset({Kind.TSG}),
    Kind.CHANNEL: frozenset({Kind.DEVICE, Kind.TSG}),
    Kind.COMPUTE: frozenset({Kind.CHANNEL}),
    Kind.COPY: frozenset({Kind.CHANNEL}),
    Kind.MPS: frozenset({Kind.CLIENT}),
    Kind.PEERS: frozenset({Kind.CLIENT}),
}
"""the driver's resource list (parents of each class)"""

_NAMES = (
    (re.compile(r"NV01_ROOT"), Kind.CLIENT),
    (re.compile(r"NV01_DEVICE_0$"), Kind.DEVICE),
    (re.compile(r"NV20_SUBDEVICE_0$"), Kind.SUBDEVICE),
    (re.compile(r"KEPLER_CHANNEL_GROUP_A$"), Kind.TSG),
    (re.compile(r"FERMI_CONTEXT_SHARE_A$"), Kind.CONTEXT_SHARE),
    (re.compile(r"\w+_CHANNEL_GPFIFO_[A-Z]$"), Kind.CHANNEL),
    (re.compile(r"\w+_COMPUTE_[A-Z]$"), Kind.COMPUTE),
    (re.compile(r"\w+_DMA_COPY_[A-Z]$"), Kind.COPY),
    (re.compile(r"MPS_COMPUTE$"), Kind.MPS),
    (re.compile(r"NV50_P2P$"), Kind.PEERS),
    (re.compile(r"NV01_MEMORY_LOCAL_USER$"), Kind.MEMORY),
)

_INTERNAL = {
    "RmClientResource": Kind.CLIENT,
    "Device": Kind.DEVICE,
    "Subdevice": Kind.SUBDEVICE,
    "KernelChannelGroupApi": Kind.TSG,
    "KernelChannel": Kind.CHANNEL,
    "KernelCtxShareApi": Kind.CONTEXT_SHARE,
    "MpsApi": Kind.MPS,
}


def kinds_by_class(abi: Abi) -> dict[int, Kind]:
    """External class number -> kind, for the classes that the ABI tables name."""
    return {number: kind for name, number in abi.classes.items() for pattern, kind in _NAMES if pattern.match(name)}


def kinds_by_internal_class(abi: Abi) -> dict[int, Kind]:
    """NVOC class id (as GET_CHILD_HANDLE takes it) -> kind."""
    prefix = "__nvoc_class_id_"
    return {abi.constants[prefix + name]: kind for name, kind in _INTERNAL.items() if prefix + name in abi.constants}


class OpenFile:
    """An open file description of a /dev/nvidia* node; descriptors of several processes may refer to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.references = 1
        self.control: OpenFile | None = None
        """the /dev/nvidiactl file that NV_ESC_REGISTER_FD tied it to"""

    @property
    def is_control(self) -> bool:
        return self.path == CONTROL_PATH

    @property
    def minor(self) -> int | None:
        """N of /dev/nvidiaN, else None."""
        match = re.fullmatch(r"/dev/nvidia(\d+)", self.path)
        return int(match[1]) if match else None


class Node:
    """An object of a client: the client itself, a device, a channel group, memory, ..."""

    def __init__(self, client: Client, parent: Node | None, handle: int, klass: int, kind: Kind) -> None:
        self.client = client
        self.parent = parent
        self.handle = handle
        self.klass = klass
        self.kind = kind
        self.children: dict[int, Node] = {}
        self.gpu: GpuModel | None = parent.gpu if parent else None
        self.tsg: ModelTsg | None = None
        self.channel: Channel | None = None
        self.engine = 0
        """NV2080_ENGINE_TYPE of a compute or copy object"""
        self.address: int | None = None
        """where memory of a GPU begins; that of a duplicate is the original's"""
        self.shared = False
        """RM_SHARE was called on it: other processes may duplicate it"""

    def below(self) -> Iterator[Node]:
        """Every object under this one, children before their parents."""
        for child in list(self.children.values()):
            yield from child.below()
            yield child


class Client:
    """An RM client: usable through the file it was made on, and through no other."""

    def __init__(self, handle: int, klass: int, file: OpenFile, pid: int) -> None:
        self.handle = handle
        self.file = file
        self.pid = pid
        self.root = Node(self, None, handle, klass, Kind.CLIENT)
        self.objects: dict[int, Node] = {handle: self.root}
