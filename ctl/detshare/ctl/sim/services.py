# SPDX-License-Identifier: Apache-2.0
"""From the load of services to what their replicas need of a GPU, for packing.

A replica has a part of a GPU's time. Its decode steps take so much of it that a token comes within the limit, its
prefills what their tokens cost; both are kept below `FULL` of its part, for arrivals are not even. Where one GPU is too
little for that, the load is divided among replicas.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.fleet import Demand
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS, LlmModel

__all__ = ["Service", "demands", "made", "read"]

COLUMNS: Final = ("name", "model", "rate", "prompt", "answer", "tpot_ms")
FULL: Final = 0.7
MARGIN: Final = 1.25
"""memory for sequences beyond the mean number"""


@dataclass(frozen=True)
class Service:
    """Requests a second, mean tokens, and the time that a token may take."""

    name: str
    model: LlmModel
    rate: float
    prompt: float
    answer: float
    tpot_ms: float

    def part(self, replicas: int) -> float:
        """Of a GPU's time, for one of so many replicas; infinite where a token cannot come in time."""
        rate, limit = self.rate / replicas, self.tpot_ms * 1000
        batch = max(1.0, rate * self.answer * limit / 1e6)
        step = self.model.decode_us(math.ceil(batch), round(batch * (self.prompt + self.answer / 2)))
        if step > limit or batch > self.model.most_sequences:
            return math.inf
        # With little load a step is not always due: then it takes its time once a token.
        steps = min(1e6 / limit, rate * self.answer)
        return (steps * step + rate * self.prompt * self.model.prefill_token_us) / 1e6 / FULL

    def memory_gib(self, replicas: int) -> float:
        """Weights and the sequences that are there at a time."""
        batch = max(1.0, self.rate / replicas * self.answer * self.tpot_ms / 1000)
        tokens = batch * (self.prompt + self.answer) * MARGIN
        return self.model.weights_gib + tokens * self.model.kv_kib / 2**20


def demands(services: Sequence[Service], gpu: Gpu, most_replicas: int = 10_000) -> list[Demand]:
    """Of each replica: the fewest with which it fits on a GPU. SimError where no number of them does."""
    found = []
    for service in services:
        replicas = 1
        while service.part(replicas) > 1.0 or service.memory_gib(replicas) > gpu.memory_gib:
            replicas = max(replicas + 1, replicas * 5 // 4)
            if replicas > most_replicas:
                raise SimError(
                    f"service {service.name}: a token of {service.model.name} cannot come within "
                    f"{service.tpot_ms:g} ms on one GPU, however little it has to do; allow more for tpot_ms"
                )
        sms, memory = service.part(replicas) * gpu.sms, service.memory_gib(replicas)
        name = service.name if replicas == 1 else f"{service.name}/"
        found += [
            Demand(name + (str(index) if replicas > 1 else ""), max(1.0, sms), memory) for index in range(replicas)
        ]
    return found


def made(count: int, seed: int) -> list[Service]:
    """So many made-up services: most have little load, a few have much."""
    random = np.random.default_rng(seed)
    models = list(MODELS.values())
    rates = np.exp(random.normal(math.log(0.2), 1.5, count))
    prompts, answers = random.choice((300, 1000, 2000), count), random.choice((30, 130, 210), count)
    which, limits = random.integers(0, len(models), count), random.choice((30.0, 50.0, 100.0), count)
    return [
        Service(
            f"s{index}",
            models[int(which[index])],
            float(rates[index]),
            float(prompts[index]),
            float(answers[index]),
            float(limits[index]),
        )
        for index in range(count)
    ]


def read(path: Path) -> list[Service]:
    """A CSV with the columns name, model, rate, prompt, answer, tpot_ms; SimError with file, line and reason."""
    found = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise SimError(f"{path}:1: no column {missing[0]!r}; the header must name {', '.join(COLUMNS)}")
            for row in reader:
                if row["model"] not in MODELS:
                    raise SimError(f"{path}:{reader.line_num}: model is {row['model']!r}; use {', '.join(MODELS)}")
                try:
                    numbers = [float(row[name] or "") for name in COLUMNS[2:]]
                except (TypeError, ValueError):
                    raise SimError(f"{path}:{reader.line_num}: {', '.join(COLUMNS[2:])} must be numbers") from None
                if not all(math.isfinite(each) and each > 0 for each in numbers):
                    raise SimError(f"{path}:{reader.line_num}: {', '.join(COLUMNS[2:])} must be above 0")
                found.append(Service(row["name"] or "", MODELS[row["model"]], *numbers))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SimError(f"{path}: cannot be read: {error}; name a CSV file") from error
    if not found:
        raise SimError(f"{path}: names no service")
    return found
