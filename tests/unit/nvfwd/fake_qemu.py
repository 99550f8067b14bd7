# SPDX-License-Identifier: Apache-2.0
"""A vhost-user front end with a guest of its own: what a hostile one could put into the helper's queue."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any

RAM = 4 << 20
NUM = 8
DESC, AVAIL, USED, DATA = 0x1000, 0x2000, 0x3000, 0x10000
USER = 0x7F00_0000_0000
"""where QEMU would have the guest's memory"""
REQ, REP = struct.Struct("<IiIIQQQ"), struct.Struct("<iIq")
WRITE, NEXT = 2, 1
HELLO, TEXT, OPEN, CLOSE, IOCTL, KERNEL, MMAP, PIN, UNPIN, POLL, STAT = range(1, 12)
_PATIENCE = 20.0


class FakeQemu:
    """A helper that serves us. Its memory is `ram`."""

    def __init__(self, program: Path, *options: str) -> None:
        self.memory = os.memfd_create("ram")
        os.ftruncate(self.memory, RAM)
        self.ram = mmap.mmap(self.memory, RAM)
        self.front, far = socket.socketpair()
        self.back, back_far = socket.socketpair()
        self.kick, self.call = os.eventfd(0), os.eventfd(0)
        self.available = self.seen = 0
        self.mapped: list[tuple[int, int, int]] = []
        with far:
            self.process = subprocess.Popen(
                [program, *options, str(far.fileno())], pass_fds=[far.fileno()], stderr=subprocess.PIPE, text=True
            )
        threading.Thread(target=self._serve_back, daemon=True).start()
        self.tell(21, b"", back_far.fileno())
        back_far.close()
        self.tell(5, struct.pack("<IIQQQQ", 1, 0, 0, RAM, USER, 0), self.memory)
        self.start()

    def start(self) -> None:
        """The device begins: rings are empty."""
        self.ram[AVAIL : AVAIL + 64] = bytes(64)
        self.ram[USED : USED + 256] = bytes(256)
        self.available = self.seen = 0
        self.tell(8, struct.pack("<II", 0, NUM))
        self.tell(10, struct.pack("<II", 0, 0))
        self.tell(9, struct.pack("<IIQQQQ", 0, 0, USER + DESC, USER + USED, USER + AVAIL, 0))
        self.tell(13, bytes(8), self.call)
        self.tell(12, bytes(8), self.kick)

    def stop(self) -> None:
        """The device is reset."""
        self.front.sendall(struct.pack("<III", 11, 1, 8) + bytes(8))
        self._exactly(self.front, 20)

    def tell(self, request: int, payload: bytes, *fds: int, reply: bool = True) -> int:
        """Says it; the answer's number."""
        header = struct.pack("<III", request, 1 | (8 if reply else 0), len(payload))
        socket.send_fds(self.front, [header], list(fds))
        if payload:
            self.front.sendall(payload)
        return struct.unpack("<Q", self._exactly(self.front, 20)[12:])[0] if reply else 0

    @staticmethod
    def _exactly(channel: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            ready, _, _ = select.select([channel], [], [], _PATIENCE)
            assert ready, "the helper does not answer"
            some = channel.recv(size - len(data))
            assert some, "the helper is gone"
            data += some
        return data

    def _serve_back(self) -> None:
        """Answers what the helper asks of QEMU: all mappings are made."""
        with contextlib.suppress(OSError):
            while True:
                header, fds, _, _ = socket.recv_fds(self.back, 12, 1)
                if len(header) < 12:
                    return
                request, _, size = struct.unpack("<III", header)
                payload = self.back.recv(size, socket.MSG_WAITALL) if size else b""
                if request == 9:
                    _, _, at, length, _ = struct.unpack("<8sQQQQ", payload)
                    self.mapped.append((fds[0], at, length))
                self.back.sendall(struct.pack("<IIIQ", request, 5, 8, 0))

    # ---- the guest

    def chain(self, parts: list[tuple[int, int, int]], head: int = 0) -> None:
        """Offers a chain of (address, length, flags); NEXT is set where another part follows."""
        for place, (address, length, flags) in enumerate(parts):
            flags |= NEXT if place + 1 < len(parts) else 0
            at = DESC + (head + place) % NUM * 16
            self.ram[at : at + 16] = struct.pack("<QIHH", address, length, flags, (head + place + 1) % NUM)
        self.offer(head)

    def offer(self, head: int) -> None:
        """Makes a chain available, and rings."""
        at = AVAIL + 4 + self.available % NUM * 2
        self.ram[at : at + 2] = struct.pack("<H", head)
        self.available = (self.available + 1) & 0xFFFF
        self.ram[AVAIL + 2 : AVAIL + 4] = struct.pack("<H", self.available)
        os.eventfd_write(self.kick, 1)

    def used(self) -> int:
        """Waits for the next answer; its length."""
        while True:
            index = struct.unpack_from("<H", self.ram, USED + 2)[0]
            if index != self.seen:
                length: int = struct.unpack_from("<II", self.ram, USED + 4 + self.seen % NUM * 8)[1]
                self.seen = (self.seen + 1) & 0xFFFF
                return length
            ready, _, _ = select.select([self.call], [], [], _PATIENCE)
            assert ready, "a call is not answered"
            os.eventfd_read(self.call)

    def ask(
        self,
        op: int,
        handle: int = -1,
        data: bytes = b"",
        room: int = 0,
        cmd: int = 0,
        a: int = 0,
        b: int = 0,
        c: int = 0,
    ) -> tuple[int, int, bytes]:
        """A whole call: (error, value, what came back)."""
        self.ram[DATA : DATA + REQ.size] = REQ.pack(op, handle, cmd, len(data), a, b, c)
        inward, answer, outward = DATA + 0x1000, DATA + 0x800, DATA + 0x180000
        self.ram[inward : inward + len(data)] = data
        parts = [(DATA, REQ.size, 0), *([(inward, len(data), 0)] if data else []), (answer, REP.size, WRITE)]
        self.chain([*parts, *([(outward, room, WRITE)] if room else [])])
        self.used()
        error, length, value = REP.unpack_from(self.ram, answer)
        return error, value, bytes(self.ram[outward : outward + length])

    def escape(self, handle: int, number: int, block: bytes, nested: bytes = b"") -> tuple[int, bytes]:
        """An ioctl with its parameters behind it: (error, what came back)."""
        data = block + bytes(-len(block) % 8 if nested else 0) + nested + bytes(-len(nested) % 8)
        if not nested:
            data = block + bytes(-len(block) % 8)
        error, _, back = self.ask(IOCTL, handle, data, len(data), number, len(block))
        return error, back

    def stat(self) -> dict[str, int]:
        """What the helper holds."""
        _, _, back = self.ask(STAT, room=64)
        names = ("handles", "maps", "pins", "waits", "descriptors", "replayed")
        wide = ("calls", "refused", "unrecorded", "questions", "pages_written")
        return dict(zip((*names, *wide), struct.unpack("<6I5Q", back), strict=True))

    def end(self) -> tuple[int, dict[str, Any], str]:
        """QEMU goes: (exit code, the helper's last words, all that it said)."""
        self.front.close()
        self.back.close()
        _, text = self.process.communicate(timeout=_PATIENCE)
        last = [json.loads(line) for line in text.splitlines() if line.startswith('{"event"')]
        for fd in (self.kick, self.call, self.memory, *(fd for fd, _, _ in self.mapped)):
            os.close(fd)
        return self.process.returncode, last[-1] if last else {}, text
