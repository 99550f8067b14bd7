# SPDX-License-Identifier: Apache-2.0
"""The resource manager: makes, duplicates and frees objects, and validates every question as the driver does."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.model.controls import Controls, make_controls
from detshare.ctl.backends.model.gpu import GpuModel
from detshare.ctl.backends.model.objects import PARENTS, Client, Kind, Node, OpenFile, kinds_by_class

GENERATED_OBJECT_BASE = 0xCAF00000
"""where the driver's own handles begin for objects allocated with handle 0"""


_NO_CLIENT = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Object handle is not valid [NV_ERR_INVALID_OBJECT_HANDLE] (0x00000033) "
    "returned from serverGetClientUnderLock(&g_resServ, pArgs->hClient, &pClient) @ rmapi_deprecated_control.c:108"
)
"""of a control that names no client"""
_NO_ENGINE_OBJECT = (
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Requested object not found [NV_ERR_OBJECT_NOT_FOUND] (0x00000057) "
    "returned from kchannelGetClassEngineID_HAL(pGpu, pKernelChannel, pParams->hObject, &pParams->classEngineID, "
    "&pParams->classID, &rmEngineType) @ kernel_channel.c:2965"
)
"""of a question for the engine of an object that the channel has not"""


class RmServer:
    """One driver's clients and objects.

    Methods answer with an RM status as the ioctl would; OSError where the ioctl itself fails.
    """

    def __init__(self, abi: Abi, gpus: Sequence[GpuModel]) -> None:
        self.abi = abi
        self.gpus = list(gpus)
        self.clients: dict[int, Client] = {}
        self.kernel_log: list[str] = []
        """what the driver writes into the kernel log, a line each"""
        self.no_engine_object = _NO_ENGINE_OBJECT
        self.next_client = 0
        """index of the next client handle; settable, to test the wrap at 2^20"""
        self._base = abi.constant("RS_CLIENT_HANDLE_BASE")
        self._max = abi.constant("RS_CLIENT_HANDLE_MAX")
        self._kinds = kinds_by_class(abi)
        self._controls: Controls = make_controls(self)

    # -- files

    def open(self, path: str) -> OpenFile:
        return OpenFile(path)

    def share_file(self, file: OpenFile) -> OpenFile:
        """One more descriptor of the same open file (dup, fork, pidfd_getfd)."""
        self._check_open(file)
        file.references += 1
        return file

    def close(self, file: OpenFile) -> None:
        """Close one descriptor; with the last, every client made on that file is freed."""
        self._check_open(file)
        file.references -= 1
        if file.references == 0:
            for client in [c for c in self.clients.values() if c.file is file]:
                self._free_client(client)

    def register(self, file: OpenFile, control: OpenFile) -> None:
        """NV_ESC_REGISTER_FD: objects may then be made through `file` with clients of `control`."""
        self._check_open(file)
        self._check_open(control)
        if file.control is not None or not control.is_control or control.control is not None:
            raise OSError(errno.EINVAL, "NV_ESC_REGISTER_FD refused")
        file.control = control

    # -- objects

    def alloc(
        self,
        file: OpenFile,
        root: int,
        parent: int,
        handle: int,
        klass: int,
        *,
        engine: int = 0,
        gpu: int = 0,
        pid: int = 0,
    ) -> tuple[int, int]:
        """NV_ESC_RM_ALLOC. Returns (status, handle of the new object).

        `engine` (NV2080_ENGINE_TYPE) and `gpu` (device instance) stand for the class's allocation parameters.
        """
        self._check_open(file)
        status = self.abi.status
        if klass in (0, 1) or self._kinds.get(klass) is Kind.CLIENT:
            return self._new_client(file, handle, pid)
        client = self._client(file, root)
        if client is None:
            return self._refused(root), 0
        above = client.objects.get(parent)
        kind = self._kinds.get(klass, Kind.OTHER)
        if above is None:
            return status("NV_ERR_OBJECT_NOT_FOUND"), 0
        if kind in PARENTS and above.kind not in PARENTS[kind]:
            return status("NV_ERR_INVALID_OBJECT_PARENT"), 0
        if handle == 0:
            handle = next(h for h in range(GENERATED_OBJECT_BASE, 1 << 32) if h not in client.objects)
        elif handle in client.objects:
            return status("NV_ERR_INSERT_DUPLICATE_NAME"), 0
        if kind is Kind.DEVICE and not 0 <= gpu < len(self.gpus):
            return status("NV_ERR_INVALID_ARGUMENT"), 0
        node = Node(client, above, handle, klass, kind)
        if kind is Kind.DEVICE:
            node.gpu = self.gpus[gpu]
        if kind is Kind.MEMORY and node.gpu is not None:
            node.address = node.gpu.place()
        self._bind(node, engine)
        client.objects[handle] = node
        above.children[handle] = node
        return status("NV_OK"), handle

    def free(self, file: OpenFile, root: int, handle: int) -> int:
        """NV_ESC_RM_FREE: the object and all below it. An unknown handle is no error, as in the driver."""
        self._check_open(file)
        client = self._client(file, root)
        if client is None:
            return self._refused(root)
        node = client.objects.get(handle)
        if node is client.root:
            self._free_client(client)
        elif node is not None:
            self._free_node(node)
        return self.abi.status("NV_OK")

    def share(self, file: OpenFile, root: int, handle: int) -> int:
        """NV_ESC_RM_SHARE with a policy that lets every process duplicate the object."""
        self._check_open(file)
        client = self._client(file, root)
        if client is None:
            return self._refused(root)
        if handle not in client.objects:
            return self.abi.status("NV_ERR_OBJECT_NOT_FOUND")
        client.objects[handle].shared = True
        return self.abi.status("NV_OK")

    def dup(
        self, file: OpenFile, root: int, parent: int, handle: int, source_client: int, source: int
    ) -> tuple[int, int]:
        """NV_ESC_RM_DUP_OBJECT. Only the destination is validated against `file`; the source must be of the
        same process or shared."""
        self._check_open(file)
        status = self.abi.status
        giver = self.clients.get(source_client)
        if root not in self.clients or giver is None:
            return status("NV_ERR_INVALID_OBJECT_HANDLE"), 0
        client = self._client(file, root)
        if client is None:
            return status("NV_ERR_INVALID_CLIENT"), 0
        origin, above = giver.objects.get(source), client.objects.get(parent)
        if origin is None or above is None:
            return status("NV_ERR_OBJECT_NOT_FOUND"), 0
        if handle == 0:
            handle = next(h for h in range(GENERATED_OBJECT_BASE, 1 << 32) if h not in client.objects)
        elif handle in client.objects:
            return status("NV_ERR_INSERT_DUPLICATE_NAME"), 0
        if not (origin.shared or giver.pid == client.pid):
            return status("NV_ERR_INSUFFICIENT_PERMISSIONS"), 0
        node = Node(client, above, handle, origin.klass, origin.kind)
        node.tsg, node.engine, node.address = origin.tsg, origin.engine, origin.address
        if node.kind is Kind.TSG and node.tsg is not None:
            node.tsg.references += 1
            node.tsg.logged_pid = client.pid
        client.objects[handle] = node
        above.children[handle] = node
        return status("NV_OK"), handle

    def control(
        self,
        file: OpenFile,
        client: int,
        target: int,
        command: int,
        params: bytearray,
        *,
        admin: bool = True,
    ) -> int:
        """NV_ESC_RM_CONTROL with a buffer whose length is the parameter size."""
        self._check_open(file)
        if not file.is_control:
            raise OSError(errno.EINVAL, "NV_ESC_RM_CONTROL is for /dev/nvidiactl only")
        if client not in self.clients:
            self.kernel_log.append(_NO_CLIENT)
        owner = self._client(file, client)
        if owner is None:
            return self.abi.status("NV_ERR_INVALID_CLIENT")
        node = owner.objects.get(target)
        if node is None:
            return self.abi.status("NV_ERR_OBJECT_NOT_FOUND")
        entry = self._controls.get(command)
        if entry is None or entry.kind is not node.kind:
            return self.abi.status("NV_ERR_NOT_SUPPORTED")
        if len(params) != entry.size:
            return self.abi.status("NV_ERR_INVALID_ARGUMENT")
        if entry.admin and not admin:
            return self.abi.status("NV_ERR_INSUFFICIENT_PERMISSIONS")
        return entry.run(node, params)

    def owns(self, file: OpenFile, client: int) -> bool:
        """What Descriptor.owns asks: silent whatever the answer."""
        self._check_open(file)
        return self._client(file, client) is not None

    # -- counters

    @property
    def resources(self) -> int:
        """Objects alive, clients included."""
        return sum(len(client.objects) for client in self.clients.values())

    def clients_of(self, file: OpenFile) -> list[Client]:
        return [client for client in self.clients.values() if client.file is file]

    # -- inside

    @staticmethod
    def _check_open(file: OpenFile) -> None:
        if file.references <= 0:
            raise OSError(errno.EBADF, "file is closed")

    def _client(self, file: OpenFile, handle: int) -> Client | None:
        client = self.clients.get(handle)
        if client is None or client.file not in (file, file.control):
            return None
        return client

    def _refused(self, handle: int) -> int:
        """Status of any call but a control that names a client which is not this file's, or is not at all."""
        return self.abi.status("NV_ERR_INVALID_CLIENT" if handle in self.clients else "NV_ERR_INVALID_OBJECT_HANDLE")

    def _new_client(self, file: OpenFile, handle: int, pid: int) -> tuple[int, int]:
        if not file.is_control:
            raise OSError(errno.EINVAL, "clients are made on /dev/nvidiactl only")
        if handle == 0:
            while self._base + self.next_client in self.clients:
                self.next_client = (self.next_client + 1) % self._max
            handle = self._base + self.next_client
            self.next_client = (self.next_client + 1) % self._max
        elif handle in self.clients:
            return self.abi.status("NV_ERR_INSERT_DUPLICATE_NAME"), 0
        self.clients[handle] = Client(handle, self.abi.klass("NV01_ROOT_CLIENT"), file, pid)
        return self.abi.status("NV_OK"), handle

    def _bind(self, node: Node, engine: int) -> None:
        """Tie a new object to the hardware it stands for."""
        pid = node.client.pid
        if node.kind is Kind.TSG:
            assert node.gpu is not None
            node.tsg = node.gpu.new_tsg(engine or self.abi.constant("NV2080_ENGINE_TYPE_GR0"), pid)
        elif node.kind is Kind.CHANNEL:
            assert node.gpu is not None
            assert node.parent is not None
            # a channel right below a device gets a group of its own
            gr0 = self.abi.constant("NV2080_ENGINE_TYPE_GR0")
            node.tsg = node.parent.tsg or node.gpu.new_tsg(engine or gr0, pid)
            node.channel = node.gpu.new_channel(node.tsg)
        elif node.kind in (Kind.COMPUTE, Kind.COPY):
            node.engine = engine or self.abi.constant("NV2080_ENGINE_TYPE_GR0")
        if node.tsg is None and node.parent is not None:
            node.tsg = node.parent.tsg

    def _free_node(self, node: Node) -> None:
        for each in [*node.below(), node]:
            self._unbind(each)
            del each.client.objects[each.handle]
        if node.parent is not None:
            del node.parent.children[node.handle]

    @staticmethod
    def _unbind(node: Node) -> None:
        if node.channel is not None:
            node.channel.tsg.gpu.free_channel(node.channel)
        owns = node.kind is Kind.TSG or (
            node.kind is Kind.CHANNEL and node.parent is not None and node.parent.kind is Kind.DEVICE
        )
        if owns and node.tsg is not None:
            node.tsg.gpu.release_tsg(node.tsg)

    def _free_client(self, client: Client) -> None:
        for node in client.root.below():
            self._unbind(node)
        client.objects.clear()
        del self.clients[client.handle]
