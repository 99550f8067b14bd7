# SPDX-License-Identifier: Apache-2.0
"""Which GPU a checkpointed process comes back to: the pairs that a restore is given."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Gpu

__all__ = ["chosen", "pairs", "raw", "target", "unfit"]


def chosen(gpus: Sequence[Gpu], text: str) -> Gpu | None:
    """The GPU of a number, that of its device node, or of the beginning of a UUID; None where it is not just one."""
    number = int(text) if text.isdecimal() and len(text) < 10 else None
    found = [gpu for gpu in gpus if (gpu.uuid.startswith(text) if number is None else gpu.minor == number)]
    return found[0] if len(found) == 1 and text else None


def target(gpus: Sequence[Gpu], text: str) -> Gpu:
    """As `chosen`. BadRequest: no such GPU."""
    if (new := chosen(gpus, text)) is None:
        listed = ", ".join(f"{each.minor} ({each.uuid})" for each in gpus) or "none"
        raise BadRequest(f"migrate takes one GPU, its number or the beginning of its UUID; there are: {listed}")
    return new


def unfit(gpus: Sequence[Gpu], old: str, new: Gpu) -> str:
    """Why memory of GPU `old` cannot come back on `new`; empty where it can. The driver takes the same chip only."""
    before = next((gpu for gpu in gpus if gpu.uuid == old), None)
    if before is None:
        return f"it is not known which GPU {old} is"
    if before.uuid == new.uuid:
        return f"it is on GPU {new.minor} already"
    if before.name != new.name:
        return f"GPU {new.minor} is a {new.name}, it is on a {before.name}: the driver restores onto the same chip only"
    return ""


def pairs(gpus: Sequence[Gpu], old: str, new: str) -> list[str]:
    """OLD=NEW of every GPU, as the driver wants each that was checkpointed: the two change places."""
    places = {old: new, new: old}
    return [f"{gpu.uuid}={places.get(gpu.uuid, gpu.uuid)}" for gpu in gpus]


def raw(name: str) -> bytes:
    """The 16 bytes of a GPU's UUID. ValueError."""
    return uuid.UUID(name.removeprefix("GPU-")).bytes
