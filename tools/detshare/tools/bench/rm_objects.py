# SPDX-License-Identifier: Apache-2.0
"""Objects of an RM client of our own, to try what the module builds on when it makes some (client/subdevice.h)."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from detshare.ctl.abi.versions import Abi

__all__ = ["Objects", "objects"]

_PARAMETERS = 256
"""of zeros, more than any class has: a device of GPU 0"""


class Objects:
    """An RM client. `klass` is a name of the driver's headers."""

    def __init__(self, fd: int, abi: Abi) -> None:
        self._fd = fd
        self._abi = abi
        self.client = 0
        status, self.client = self.alloc("NV01_ROOT_CLIENT", 0)
        if status:
            raise OSError(f"the driver gave us no RM client: {abi.status_name(status)}")

    def alloc(self, klass: str, parent: int, handle: int = 0, *, zeros: bool = False) -> tuple[int, int]:
        """NV_ESC_RM_ALLOC, without parameters or with zeros. Status and handle; handle 0: the driver's choice."""
        layout = self._abi.layout("NVOS64_PARAMETERS")
        parameters = (ctypes.c_char * _PARAMETERS)()
        block = layout.pack(
            hRoot=self.client,
            hObjectParent=parent,
            hObjectNew=handle,
            hClass=self._abi.klass(klass),
            pAllocParms=ctypes.addressof(parameters) if zeros else 0,
        )
        self._call("NV_ESC_RM_ALLOC", block)
        return layout.get(block, "status"), layout.get(block, "hObjectNew")

    def free(self, handle: int) -> int:
        """NV_ESC_RM_FREE. Status."""
        layout = self._abi.layout("NVOS00_PARAMETERS")
        block = layout.pack(hRoot=self.client, hObjectOld=handle)
        self._call("NV_ESC_RM_FREE", block)
        return layout.get(block, "status")

    def _call(self, escape: str, block: bytearray) -> None:
        """An RM escape: _IOWR('F', nr, size) (kernel-open/common/inc/nv-ioctl-numbers.h)."""
        number = self._abi.constant("NV_IOCTL_MAGIC") << 8 | self._abi.constant(escape)
        fcntl.ioctl(self._fd, 3 << 30 | len(block) << 16 | number, block, True)


@contextmanager
def objects(abi: Abi) -> Iterator[Objects]:
    """A client on a descriptor of its own, freed at the end. The GPU's node is open meanwhile: devices need that."""
    fd = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
    try:
        gpu = os.open("/dev/nvidia0", os.O_RDWR | os.O_CLOEXEC)
        try:
            yield Objects(fd, abi)
        finally:
            os.close(gpu)
    finally:
        os.close(fd)
