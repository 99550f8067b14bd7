# SPDX-License-Identifier: Apache-2.0
"""Requests for a serving engine: when each is due, how many tokens it brings, how many it wants.

Azure's trace of 2023 is a file that its user fetches (Azure/AzurePublicDataset, CC-BY): columns TIMESTAMP,
ContextTokens, GeneratedTokens. The bursty one is synthetic, after the published description of BurstGPT: times between
requests are Gamma, lengths Zipf-like. Shape and exponent here are assumptions, no fit.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

__all__ = ["MOST_PROMPT", "MOST_WANTED", "Request", "azure", "bursty"]

MOST_PROMPT, MOST_WANTED = 2048, 128
"""tokens: longer prompts and answers are cut, so that an answer ends within a cell"""
SHAPE = 0.5
"""of the Gamma distribution: the times between requests vary by 1.4 of their mean; 1 is Poisson"""
EXPONENT = 1.1
"""of the lengths"""
SHORTEST = 16


@dataclass(frozen=True)
class Request:
    """`at`: seconds from the beginning."""

    at: float
    prompt: int
    wanted: int


def _cut(tokens: int, most: int) -> int:
    return max(1, min(most, tokens))


def azure(path: Path, mean_s: float) -> Iterator[Request]:
    """The requests of the file, their times stretched so that their mean distance is `mean_s`; over again at its end.

    :raises OSError, ValueError: no such file, or none of this kind; the text says so.
    """
    with path.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    try:
        times = [datetime.fromisoformat(line["TIMESTAMP"][:26]).timestamp() for line in lines]
        sizes = [(int(line["ContextTokens"]), int(line["GeneratedTokens"])) for line in lines]
    except KeyError as error:
        raise ValueError(f"{path} has no column {error}; it needs TIMESTAMP, ContextTokens, GeneratedTokens") from error
    if len(times) < 2 or times[-1] <= times[0]:
        raise ValueError(f"{path} has no two requests at different times")
    scale = mean_s * (len(times) - 1) / (times[-1] - times[0])
    return _over(times, sizes, scale, mean_s)


def _over(times: list[float], sizes: list[tuple[int, int]], scale: float, mean_s: float) -> Iterator[Request]:
    gaps = [0.0, *((later - earlier) * scale for earlier, later in pairwise(times))]
    at = 0.0
    while True:
        for gap, (prompt, wanted) in zip(gaps, sizes, strict=True):
            at += max(0.0, gap)
            yield Request(at, _cut(prompt, MOST_PROMPT), _cut(wanted, MOST_WANTED))
        at += mean_s


def _zipf(dice: random.Random, least: int, most: int) -> int:
    """From least to most, falling with the exponent; by inversion of the continuous distribution."""
    power = 1.0 - EXPONENT
    low, high = least**power, (most + 1) ** power
    return min(most, int((low + dice.random() * (high - low)) ** (1.0 / power)))


def bursty(seed: object, mean_s: float) -> Iterator[Request]:
    """Without an end, the same ones for the same seed."""
    dice, at = random.Random(f"bursty {seed}"), 0.0
    while True:
        at += dice.gammavariate(SHAPE, mean_s / SHAPE)
        yield Request(at, _zipf(dice, SHORTEST, MOST_PROMPT), _zipf(dice, SHORTEST, MOST_WANTED))


def due(requests: Iterator[Request], held: list[Request], until: float) -> Iterable[Request]:
    """Those that are due by then. `held`: at most one that was taken and is not due yet."""
    while True:
        if not held:
            held.append(next(requests))
        if held[0].at > until:
            return
        yield held.pop()
