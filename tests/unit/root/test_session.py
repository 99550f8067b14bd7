# SPDX-License-Identifier: Apache-2.0
"""Controls as the driver gets them: the address of the parameters is that of the caller's buffer, each time."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from detshare.ctl.abi.versions import for_version
from detshare.ctl.rm import session

ABI = for_version("580.159.04")


def test_each_control_reads_and_writes_the_buffer_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = ABI.layout("NVOS54_PARAMETERS")
    seen: list[tuple[int, int, int, bytes]] = []

    def ioctl(_fd: int, _request: int, block: bytearray, _change: bool) -> int:
        client, target, command, address, size = (
            layout.get(block, name) for name in ("hClient", "hObject", "cmd", "params", "paramsSize")
        )
        assert layout.get(block, "status") == 0
        assert bool(address) == bool(size)
        seen.append((client, target, command, ctypes.string_at(address, size)))
        ctypes.memset(address, 0xEE, size)
        layout.put(block, "status", 0x57 if target == 9 else 0)
        return 0

    monkeypatch.setattr(session, "fcntl", SimpleNamespace(ioctl=ioctl))
    file = session.ControlFile(3, ABI)
    one, other = bytearray(b"one!"), bytearray(b"the other")
    assert file.control(1, 2, 3, one) == 0
    one[:] = b"uno!"
    assert file.control(1, 2, 4, one) == 0
    assert file.control(1, 9, 3, other) == 0x57
    assert file.control(1, 2, 3, bytearray()) == 0
    assert file.control(1, 2, 5, one) == 0
    assert seen == [
        (1, 2, 3, b"one!"),
        (1, 2, 4, b"uno!"),
        (1, 9, 3, b"the other"),
        (1, 2, 3, b""),
        (1, 2, 5, b"\xee" * 4),
    ]
    assert one == b"\xee" * 4
    assert other == b"\xee" * 9
