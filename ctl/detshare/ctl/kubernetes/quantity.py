# SPDX-License-Identifier: Apache-2.0
"""Quantities of the Kubernetes API: "8Gi", "500M", "1e9", "30"."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

__all__ = ["parse", "text"]

_QUANTITY: Final = re.compile(
    r"([0-9]{1,20}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)
_SCALES: Final = {
    "": Fraction(1),
    **{unit: Fraction(10) ** power for unit, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def parse(value: object) -> int:
    """The whole number of a quantity that is not negative, rounded up as the API rounds. ValueError for others."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{ascii(value)[:40]} is no quantity: write 8Gi, 500M or 30")
    unit = found[2] or ""
    scale = _SCALES[unit] if unit in _SCALES else Fraction(10) ** int(unit[1:])
    return math.ceil(Fraction(found[1].rstrip(".")) * scale)


def text(size: int) -> str:
    """A number of bytes as a quantity, exact, in the largest binary unit."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)
