# SPDX-License-Identifier: Apache-2.0
"""The recorder in a program and the observer beside it agree on every object; storms of calls are counted exactly."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from detshare.tools.bench.ebpf import native, objects

_CLIENT = """
import ctypes, fcntl, os, struct
def call(file, escape, block):
    fcntl.ioctl(file, 3 << 30 | len(block) << 16 | ord('F') << 8 | escape, block)
def alloc(file, root, parent, handle, number, params=b""):
    held = ctypes.create_string_buffer(params, max(1, len(params)))
    block = bytearray(48)
    struct.pack_into("<IIII", block, 0, root, parent, handle, number)
    if params:
        struct.pack_into("<QQI", block, 16, ctypes.addressof(held), 0, len(params))
    call(file, 0x2B, block)
    return struct.unpack_from("<I", block, 8)[0], struct.unpack_from("<I", block, 40)[0]
def free(file, root, handle):
    block = bytearray(struct.pack("<IIII", root, root, handle, 0))
    call(file, 0x29, block)
    return struct.unpack_from("<I", block, 12)[0]
file, other = (os.open("/dev/nvidiactl", os.O_RDWR) for _ in range(2))
root, status = alloc(file, 0, 0, 0, 0x41)
assert status == 0
second, status = alloc(other, 0, 0, 0, 0x41)
assert status == 0
for handle in (0x5C000001, 0x5C000002):
    assert alloc(file, root, root, handle, 0xCB33, struct.pack("<I", root))[1] == 0
assert alloc(file, root, 0x999, 0x5C000003, 0x80)[1] != 0
assert free(file, root, 0x5C000001) == 0
free(file, root, 0x77)
os.close(other)
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Lines of the measurement."""
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(objects, "say", lambda event, **fields: lines.append({"event": event, **fields}))
    return lines


def test_both_have_the_same_births_and_deaths(said: list[dict[str, Any]]) -> None:
    objects.recorded_run("client", [sys.executable, "-S", "-c", _CLIENT], 60.0)
    (line,) = (each for each in said if each["event"] == "compared")
    assert (line["births"], line["recorded_births"]) == (4, 4)
    assert (line["freed"], line["recorded_freed"]) == (2, 2)
    assert [line[f"{name}_differ"] for name in ("births", "frees", "deaths")] == [0, 0, 0]
    assert (line["calls"], line["odd"], line["lost"], line["notes"]) == (7, 0, 0, [])


@pytest.mark.parametrize("kind", ["client", "child", "refused"])
def test_a_storm_makes_as_many_calls_as_it_says(kind: str) -> None:
    done = subprocess.run([native.path("storm"), kind, "101", "3"], capture_output=True, text=True, check=True)
    line = json.loads(done.stdout)
    assert (line["objects"], line["calls"]) == (101, 3 + 2 * 101)


def test_a_storm_is_counted_exactly_and_what_a_small_ring_lost_is_said(
    said: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "STORM_QUICK", 503)
    objects.storm(True)
    rows = objects.rows(said)
    assert [row.what for row in rows if row.ok is False and not row.what.startswith("fastest storm")] == []
    assert {line["born"] for line in said if line["event"] == "storm"} == {503, 0}
