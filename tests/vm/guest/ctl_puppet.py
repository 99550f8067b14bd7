# SPDX-License-Identifier: Apache-2.0
"""The puppeteer of ctl_puppet: real processes that open, ioctl and fork on request."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess

_REQUEST = struct.Struct("=6I")
_ANSWER = struct.Struct("=iII")
_NOWHERE = 0xFFFFFFFF
_OPEN, _CLOSE, _IOCTL, _FORK, _NAME, _TAKE = range(6)
_SECONDS = 600.0  # of one that hangs


class Puppet:
    """One process. Every method but kill raises OSError with the errno that the process got."""

    def __init__(self, pid: int, sock: socket.socket, child: subprocess.Popen[bytes] | None) -> None:
        self.pid = pid
        self._sock = sock
        self._child = child

    @staticmethod
    def binary() -> str:
        """The compiled puppet; the host's test says where it is."""
        return os.environ["DETSHARE_PUPPET"]

    @classmethod
    def start(cls, command: str, pid: int | None = None) -> Puppet:
        """A process whose command line is `command`; with `pid`, under that number, which must be free."""
        with _Door() as door:
            env = {"PUPPET": door.name} | ({} if pid is None else {"PUPPET_PID": str(pid)})
            child = subprocess.Popen(command.split(), executable=cls.binary(), env=env, close_fds=True)
            if pid is None:
                return cls(child.pid, door.accept(), child)
            if child.wait():
                raise RuntimeError(f"no process could be started as PID {pid}")
            return cls(pid, door.accept(), None)

    def _ask(
        self, op: int, fd: int = 0, number: int = 0, outer: bytes = b"", nested: bytes = b"", at: int | None = None
    ) -> tuple[int, bytes, bytes]:
        head = _REQUEST.pack(op, fd, number, _NOWHERE if at is None else at, len(outer), len(nested))
        self._sock.sendall(head + outer + nested)
        return self._answer()

    def _answer(self) -> tuple[int, bytes, bytes]:
        result, outer, nested = _ANSWER.unpack(self._read(_ANSWER.size))
        blocks = self._read(outer), self._read(nested)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result, *blocks

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise ConnectionError(f"process {self.pid} ended")
            data += more
        return data

    def open(self, path: str) -> int:
        """The new descriptor's number in the process."""
        return self._ask(_OPEN, outer=path.encode())[0]

    def close(self, fd: int) -> None:
        self._ask(_CLOSE, fd)

    def take(self, pid: int, fd: int) -> int:
        """A duplicate of another process's descriptor; its number in this one."""
        return self._ask(_TAKE, fd, pid)[0]

    def ioctl(self, fd: int, request: int, outer: bytes, nested: bytes, at: int | None) -> tuple[bytes, bytes]:
        """The blocks as the driver left them; `at`: where in `outer` the pointer to `nested` belongs."""
        return self._ask(_IOCTL, fd, request, outer, nested, at)[1:]

    def name(self, comm: str) -> None:
        self._ask(_NAME, outer=comm.encode())

    def fork(self) -> Puppet:
        """A child with the same open files."""
        with _Door() as door:
            pid = self._ask(_FORK, outer=door.name.encode())[0]
            child = Puppet(pid, door.accept(), None)
        child._answer()
        return child

    def kill(self) -> None:
        """SIGKILL, and wait until nothing is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self._sock.close()


class _Door:
    """A socket that one new puppet connects to."""

    _count = 0

    def __enter__(self) -> _Door:
        _Door._count += 1
        self.name = f"detshare-puppet-{os.getpid()}-{_Door._count}"
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind("\0" + self.name)
        self._sock.listen(1)
        self._sock.settimeout(_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def accept(self) -> socket.socket:
        sock, _ = self._sock.accept()
        sock.settimeout(_SECONDS)
        return sock
