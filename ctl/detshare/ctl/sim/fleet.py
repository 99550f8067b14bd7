# SPDX-License-Identifier: Apache-2.0
"""How many GPUs a fleet of tenants needs: packing by SMs and memory."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu

__all__ = ["MOST_GPUS", "Demand", "Packed", "made", "pack", "read"]

MOST_GPUS: Final = 10_000
COLUMNS: Final = ("name", "sms", "memory_gib")


@dataclass(frozen=True)
class Demand:
    """What one tenant needs at all times."""

    name: str
    sms: float
    memory_gib: float


@dataclass(frozen=True)
class Packed:
    """Where each tenant is: the GPU's number, in the order of the demands."""

    places: tuple[int, ...]
    gpus: int
    bound: int
    """no packing needs fewer"""


def read(path: Path) -> list[Demand]:
    """A CSV with the columns name, sms, memory_gib; SimError with file, line and reason."""
    found = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise SimError(f"{path}:1: no column {missing[0]!r}; the header must name {', '.join(COLUMNS)}")
            for row in reader:
                try:
                    sms, memory = float(row["sms"] or ""), float(row["memory_gib"] or "")
                except (TypeError, ValueError):
                    raise SimError(
                        f"{path}:{reader.line_num}: sms is {row['sms']!r} and memory_gib {row['memory_gib']!r}; "
                        "both must be numbers"
                    ) from None
                if not (math.isfinite(sms) and math.isfinite(memory) and sms > 0 and memory >= 0):
                    raise SimError(f"{path}:{reader.line_num}: sms must be above 0 and memory_gib not below 0")
                found.append(Demand(row["name"] or "", sms, memory))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SimError(f"{path}: cannot be read: {error}; name a CSV file") from error
    if not found:
        raise SimError(f"{path}: names no tenant")
    return found


def made(count: int, seed: int, gpu: Gpu) -> list[Demand]:
    """So many made-up tenants: SMs in eighths and memory in GiB, most of them small."""
    random = np.random.default_rng(seed)
    eighths = 1 + np.minimum(15, random.geometric(0.3, count) - 1)
    sms = np.minimum(gpu.sms, eighths * 8)
    memory = np.minimum(gpu.memory_gib, np.round(np.exp(random.normal(math.log(8), 0.9, count)), 1))
    return [Demand(f"t{index}", float(sms[index]), float(memory[index])) for index in range(count)]


def pack(demands: Sequence[Demand], gpu: Gpu, most: int = MOST_GPUS) -> Packed:
    """First fit, the tenant with the largest part of a GPU first. SimError where one does not fit, or all do not."""
    sms = np.array([demand.sms for demand in demands]) / gpu.sms
    memory = np.array([demand.memory_gib for demand in demands]) / gpu.memory_gib
    size = np.maximum(sms, memory)
    if size.max(initial=0.0) > 1.0 + 1e-12:
        worst = demands[int(size.argmax())]
        raise SimError(
            f"tenant {worst.name} needs {worst.sms:g} SMs and {worst.memory_gib:g} GiB; "
            f"a GPU has {gpu.sms} SMs and {gpu.memory_gib:g} GiB"
        )
    bound = max(1, math.ceil(max(sms.sum(), memory.sum()) - 1e-9))
    limit = min(most, len(demands))
    if bound > most:
        raise SimError(f"{len(demands)} tenants need at least {bound} GPUs; {most} are allowed")
    free_sms, free_memory = np.ones(limit), np.ones(limit)
    places = [0] * len(demands)
    used = 0
    for index in np.argsort(-size, kind="stable"):
        fits = (free_sms[: used + 1] >= sms[index] - 1e-9) & (free_memory[: used + 1] >= memory[index] - 1e-9)
        where = int(fits.argmax())
        if not fits[where]:
            raise SimError(f"{len(demands)} tenants do not fit on {most} GPUs; at least {bound} are needed")
        free_sms[where] -= sms[index]
        free_memory[where] -= memory[index]
        places[int(index)] = where
        used = min(max(used, where + 1), limit - 1) if limit > 1 else 0
    return Packed(tuple(places), max(places) + 1, bound)
