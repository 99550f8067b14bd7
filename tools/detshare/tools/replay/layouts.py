# SPDX-License-Identifier: Apache-2.0
"""Sizes and offsets of the driver's structures, from the data that the ABI tables are generated from."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Layouts"]

_DATA = Path(__file__).resolve().parent.parent / "abi" / "data"
_PARAMS = re.compile(r"RS_(?:REQUIRED|OPTIONAL)\((\w+)\)")


@cache
def _data(name: str) -> Any:
    return json.loads((_DATA / f"{name}.json").read_text())


class Layouts:
    """The structures of one table version, such as 580.142. KeyError for what it does not have."""

    def __init__(self, version: str = "580.142") -> None:
        self.version = version
        self._classes = {int(row["num"]): row for row in _data("classes")[version].values()}
        self._uvm = {int(row["nr"]): (name, row["size"]) for name, row in _data("uvm_ioctls")[version].items()}
        self._controls = {int(row["id"]): str(row["name"]) for row in _data("controls")[version]}

    def size(self, struct: str) -> int:
        """Bytes of a structure."""
        return int(_data("structs")[struct][self.version]["size"])

    def offset(self, struct: str, field: str) -> int:
        """Byte offset of a field."""
        for offset, _size, name, _type in _data("structs")[struct][self.version]["fields"]:
            if name == field:
                return int(offset)
        raise KeyError(f"{struct}.{field}")

    def class_name(self, number: int) -> str:
        """Such as NV01_DEVICE_0; the number where it has no name."""
        row = self._classes.get(number)
        return str(row["External Class"]) if row else f"class {number:#x}"

    def params_of_class(self, number: int) -> str | None:
        """The structure of a class's allocation parameters; None: it takes none, or they are not known."""
        row = self._classes.get(number)
        found = _PARAMS.match(str(row["Alloc Param Info"])) if row else None
        return found[1] if found else None

    def control_name(self, number: int) -> str:
        """Such as NV2080_CTRL_CMD_FB_GET_INFO_V2; the number where it has no name."""
        return self._controls.get(number, f"control {number:#x}")

    def uvm_name(self, number: int) -> str:
        """Such as UVM_INITIALIZE."""
        return self._uvm[number][0] if number in self._uvm else f"UVM {number}"

    def uvm_size(self, number: int) -> int:
        """Bytes of a UVM ioctl's parameters."""
        return int(self._uvm[number][1])
