# SPDX-License-Identifier: Apache-2.0
"""What containers may ask for by name: the devices of section [containers] of the configuration, and what they may be.

`podman run --device detshare.io/gpu=NAME` asks for one; docs/use/containers.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from detshare.ctl.core import classes, sizes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.config_values import CLASSES, Bad, check_flag, shown

__all__ = ["LIBRARIES", "Containers", "Device", "check_device", "check_devices"]

LIBRARIES: Final = ("off", "mounted", "loaded")
"""libdetshare.so is not in the container; lies in it, to be preloaded by who wants to; is in each of its programs"""
MOST_GPUS: Final = 64
# CDI's, but for a digit at the begin, which takes version 0.5.0 of the specification, and for its length
_NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.:-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Device:
    """One of them: which GPUs a container sees, and what stands for all of its programs together."""

    priority: str = "normal"
    """the class"""
    memory: str = ""
    """limit of GPU memory, on each GPU by itself: "20G"; empty: none"""
    weight: int = 0
    """part of the turns; 0: as its class"""
    floor: float = 0.0
    """percent of the time that it has at least; 0: as its class"""
    gpus: tuple[int, ...] = ()
    """numbers of GPUs, as in /dev/nvidia0; empty: all that there are"""
    library: str = LIBRARIES[0]
    reports: bool = False
    """whether its programs can tell the daemon how long their requests take"""

    @property
    def memory_bytes(self) -> int | None:
        """The limit as a number; None: none."""
        return sizes.parse(self.memory) if self.memory else None


_BY_CLASS: Final = {klass: Device(klass) for klass in CLASSES}


@dataclass(frozen=True, slots=True)
class Containers:
    """The section."""

    required: bool = False
    """a container does not start where what its device says cannot be set"""
    devices: Mapping[str, Device] = field(default_factory=lambda: dict(_BY_CLASS))
    """by name; one for each class where none is named"""


def check_devices(value: object) -> dict[str, Device]:
    """Devices by name."""
    if not isinstance(value, dict) or not value:
        raise Bad(f"it is {shown(value)}; each device is a table of its own: [containers.devices.inference-high]")
    return {name: check_device(name, table) for name, table in value.items()}


def check_device(name: str, table: object) -> Device:
    """One device. Bad, with the name and the key below it."""
    if not _NAME.fullmatch(name):
        text = "no device can be called so: a letter, then letters, digits, _ . : -, a letter or digit last, 63 at most"
        raise Bad(text, name)
    if not isinstance(table, dict):
        raise Bad(f"it is {shown(table)}; it is a table: [containers.devices.{name}]", name)
    made: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _CHECKS:
            raise Bad(f"there is no such key; a device takes {', '.join(_CHECKS)}", name, key)
        try:
            made[key] = _CHECKS[key](value)
        except Bad as error:
            raise Bad(str(error), name, key) from error
    return Device(**made)


def _priority(value: object) -> str:
    if not isinstance(value, str) or value not in CLASSES:
        raise Bad(f"it is {shown(value)}; it is a class: {', '.join(CLASSES)}")
    return value


def _memory(value: object) -> str:
    try:
        if isinstance(value, str) and (not value or sizes.parse(value) is not None):
            return value
    except BadRequest:
        pass
    raise Bad(f'it is {shown(value)}; it is a size such as "20G", or "" for no limit')


def _weight(value: object) -> int:
    if value == 0 and not isinstance(value, bool):
        return 0
    try:
        return classes.check_range("weight", value, classes.WEIGHTS)
    except BadRequest:
        first, last = classes.WEIGHTS[0], classes.WEIGHTS[-1]
        raise Bad(f"it is {shown(value)}; it is a whole number from {first} to {last}, or 0 for none") from None


def _floor(value: object) -> float:
    most = 100 * classes.MOST_FLOOR
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise Bad(f"it is {shown(value)}; it is a percentage from 0 to {most:g}")
    return float(value)


def _gpus(value: object) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise Bad(f"it is {shown(value)}; it is a list of numbers such as [0, 1], as in /dev/nvidia0, or [] for all")
    for each in value:
        if isinstance(each, bool) or not isinstance(each, int) or each not in range(MOST_GPUS):
            raise Bad(f"{shown(each)} is no number of a GPU: 0 to {MOST_GPUS - 1}")
    return tuple(dict.fromkeys(value))


def _library(value: object) -> str:
    if not isinstance(value, str) or value not in LIBRARIES:
        raise Bad(f"it is {shown(value)}; it is one of {', '.join(LIBRARIES)}")
    return value


_CHECKS: Final = {
    "priority": _priority,
    "memory": _memory,
    "weight": _weight,
    "floor": _floor,
    "gpus": _gpus,
    "library": _library,
    "reports": check_flag,
}
assert tuple(_CHECKS) == tuple(each.name for each in fields(Device))
