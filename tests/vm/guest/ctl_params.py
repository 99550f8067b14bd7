# SPDX-License-Identifier: Apache-2.0
"""Allocation parameters as a CUDA program gives them, for the driver's version, from the recorded structures."""

from __future__ import annotations

import json
import re
import struct
from importlib.resources import files
from typing import Any

from detshare.ctl.abi.layout import Field, Layout
from detshare.ctl.abi.versions import Abi

_MEMORY_FLAGS = {0x40: 0x1C101, 0x3E: 0xC001, 0x50A0: 0x8C415}
"""class -> flags that libcuda gave (recorded)"""
_MEMORY_ATTR = {0x40: 0x18000000, 0x3E: 0x3A000000}
_MEMORY_SIZE = {0x40: 1 << 16, 0x3E: 1 << 12, 0x50A0: 1 << 21}
_CODES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def _data(name: str) -> Any:
    return json.loads(files("detshare.tools.abi").joinpath("data", name).read_text(encoding="utf-8"))


def outer(abi: Abi, name: str) -> Layout:
    """An escape's outer block; the control plane's own tables have only the ones it needs itself."""
    entry = _data("structs.json")[name][abi.table]
    fields = {field: Field(at, size, _CODES[size][1], 1) for at, size, field, _ in entry["fields"] if size in _CODES}
    return Layout(name, entry["size"], fields)


class Params:
    """Alloc parameters by class number."""

    def __init__(self, abi: Abi) -> None:
        self._structs = {name: each[abi.table] for name, each in _data("structs.json").items() if abi.table in each}
        self._of: dict[int, str] = {}
        for each in _data("classes.json")[abi.table].values():
            found = re.search(r"\((\w+)\)", each["Alloc Param Info"])
            if found and found[1] in self._structs:
                self._of[int(each["num"])] = found[1]

    def of(self, klass: int, client: int, handle: int, *, engine: int, gpu: int, size: int = 0) -> bytearray:
        """The parameters; empty for a class without. `size`: of memory; 0: a usual one."""
        name = self._of.get(klass)
        if name is None or klass in (0, 1, 0x41):
            return bytearray()
        fields = {field[2]: field for field in self._structs[name]["fields"]}
        block = bytearray(self._structs[name]["size"])

        def put(field: str, value: int) -> None:
            at, size, _, kind = fields[field]
            size //= int(kind.partition("[")[2].partition("]")[0] or 1)
            struct.pack_into(_CODES[size], block, at, value)

        match name:
            case "NV0080_ALLOC_PARAMETERS":
                put("deviceId", gpu)
                put("hClientShare", client)
            case "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS":
                put("engineType", engine)
            case "NV_CHANNEL_ALLOC_PARAMS":
                put("gpFifoEntries", 1024)
            case "NVB0B5_ALLOCATION_PARAMETERS":
                put("version", 1)
                put("engineType", engine)
            case "NV_MEMORY_ALLOCATION_PARAMS":
                put("owner", client)
                put("flags", _MEMORY_FLAGS.get(klass, 0))
                put("attr", _MEMORY_ATTR.get(klass, 0))
                put("size", size or _MEMORY_SIZE.get(klass, 1 << 16))
            case "NV_CONFIDENTIAL_COMPUTE_ALLOC_PARAMS":
                put("hClient", client)
            case "NV0005_ALLOC_PARAMETERS":
                put("hParentClient", client)
                put("hClass", klass)
        return block
