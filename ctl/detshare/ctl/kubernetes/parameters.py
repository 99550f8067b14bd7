# SPDX-License-Identifier: Apache-2.0
"""What a device class, a claim and its annotations may say of a GPU's use, decoded strictly.

Who writes claims is not trusted with more than the device class gives and the scheduler counted: each says a ceiling
for the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from detshare.ctl.core import classes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.kubernetes import quantity

__all__ = ["API_VERSION", "DRIVER", "KIND", "LANES", "Parameters", "annotated", "decode", "overlaid", "within"]

DRIVER: Final = "gpu.detshare.io"
"""the driver's name, and the prefix of its annotations"""
API_VERSION: Final = f"{DRIVER}/v1"
KIND: Final = "GpuParameters"
LANES: Final = ("temporal",)
"""A container of the spatial lane would need the daemon's pages; CDI does not bring them."""
CLASSES: Final = tuple(classes.CLASSES)
"""highest first"""


@dataclass(frozen=True, slots=True)
class Parameters:
    """None: not said."""

    klass: str | None = None
    weight: int | None = None
    floor: int | None = None
    """thousandths of the time that it has at least"""
    memory: int | None = None
    """bytes on each GPU"""
    lane: str | None = None


def _klass(value: object) -> str:
    if value not in CLASSES:
        raise ValueError(f"{ascii(value)[:40]} is no class: use one of {', '.join(CLASSES)}")
    return str(value)


def _lane(value: object) -> str:
    if value not in LANES:
        raise ValueError(f"{ascii(value)[:40]} is no lane that a pod can have: use {' or '.join(LANES)}")
    return str(value)


def _weight(value: object) -> int:
    return classes.check_range("weight", value, classes.WEIGHTS)


def _floor(value: object) -> int:
    most = 100 * classes.MOST_FLOOR
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{ascii(value)[:40]} is no floor: it is a percentage from 0 to {most:g}")
    return round(10 * value)


def _memory(value: object) -> int:
    size = quantity.parse(value)
    if not 0 < size < 1 << 63:
        raise ValueError(f"{ascii(value)[:40]} is no limit of memory: it is 1 byte or more")
    return size


_READERS: Final = {
    "class": ("klass", _klass),
    "weight": ("weight", _weight),
    "floorPercent": ("floor", _floor),
    "memory": ("memory", _memory),
    "lane": ("lane", _lane),
}
_IN_KEYS: Final = {"class": "class", "weight": "weight", "floor-percent": "floorPercent", "memory": "memory"}
"""annotations; a lane is chosen before the pod begins"""


def decode(value: object, where: str) -> Parameters:
    """The parameters of an opaque configuration. ValueError, which names `where`, for anything that is not known."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: parameters are an object with apiVersion {API_VERSION} and kind {KIND}")
    said = dict(value)
    version, kind = said.pop("apiVersion", None), said.pop("kind", None)
    if (version, kind) != (API_VERSION, KIND):
        raise ValueError(f"{where}: parameters are {ascii(version)[:40]} {ascii(kind)[:40]}, not {API_VERSION} {KIND}")
    return _read(said, where)


def _read(said: Mapping[str, object], where: str) -> Parameters:
    found: dict[str, object] = {}
    for name, value in said.items():
        if name not in _READERS:
            raise ValueError(f"{where}: there is no parameter {ascii(name)[:40]}: there are {', '.join(_READERS)}")
        to, read = _READERS[name]
        try:
            found[to] = read(value)
        except (ValueError, BadRequest) as error:
            raise ValueError(f"{where}: {name}: {error}") from error
    return Parameters(**found)  # type: ignore[arg-type]  # each is read by the reader of its field


def annotated(annotations: Mapping[str, str]) -> Parameters:
    """The parameters that a claim's annotations resize to. ValueError for one of ours that is not known."""
    said: dict[str, object] = {}
    for key, value in annotations.items():
        prefix, _, name = key.partition("/")
        if prefix != DRIVER:
            continue
        if name not in _IN_KEYS:
            known = ", ".join(f"{DRIVER}/{each}" for each in _IN_KEYS)
            raise ValueError(f"there is no annotation {ascii(key)[:60]}: there are {known}")
        said[_IN_KEYS[name]] = _number(value) if name in ("weight", "floor-percent") else value
    return _read(said, "annotations")


def _number(text: str) -> object:
    found = re.fullmatch(r"([0-9]{1,6})(\.[0-9]{1,3})?", text)
    return text if found is None else float(text) if found[2] else int(text)


def overlaid(base: Parameters, over: Parameters) -> Parameters:
    """`base` with what `over` says in its place."""
    said = {each.name: value for each in fields(over) if (value := getattr(over, each.name)) is not None}
    return replace(base, **said)


def within(ceiling: Parameters, asked: Parameters) -> Parameters:
    """`ceiling` with what was asked in its place. ValueError where that is more than the ceiling."""
    most = ceiling.klass or "normal"
    if asked.klass is not None and CLASSES.index(asked.klass) < CLASSES.index(most):
        raise ValueError(f"class {asked.klass} is above {most}: its device class gives no more")
    for name, unit in (("weight", ""), ("floor", " per mille"), ("memory", " bytes")):
        given, value = getattr(ceiling, name), getattr(asked, name)
        if given is not None and value is not None and value > given:
            raise ValueError(f"{name} {value}{unit} is more than the {given}{unit} that were allocated")
    return overlaid(ceiling, asked)
