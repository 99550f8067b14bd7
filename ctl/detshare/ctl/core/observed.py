# SPDX-License-Identifier: Apache-2.0
"""What is known of a program beside the driver: its calls to CUDA as seen from outside, its requests as it tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["REPORTED", "SOURCE", "Grid", "Observed", "Requests"]

SOURCE: Final = "eBPF"
REPORTED: Final = "reported"


@dataclass(frozen=True, slots=True)
class Grid:
    """How often kernels of one grid and block were launched. Nobody timed them."""

    blocks: int
    threads: int
    """of a block; 0: set by a call of its own"""
    launches: int


@dataclass(frozen=True, slots=True)
class Observed:
    """Calls of one program since it was first seen; refused ones too."""

    launches: int = 0
    graph_launches: int = 0
    copies: int = 0
    copied_bytes: int = 0
    """of a batch of copies nothing"""
    fills: int = 0
    waits: int = 0
    """for a stream, an event or a context"""
    wait_ms: float = 0.0
    launches_per_s: float = 0.0
    """over the last second; two digits, as the next"""
    graph_launches_per_s: float = 0.0
    blocks: int = 0
    """grid of the kernels that were launched most in the last second that had launches; 0: none was"""
    grids: tuple[Grid, ...] = ()
    """what is launched most, at most 16"""
    partial: tuple[str, ...] = ()
    """why some of its calls are not counted; empty: all are"""
    source: str = SOURCE


@dataclass(frozen=True, slots=True)
class Requests:
    """How long the requests of a program took lately. Percentiles are at most 2 % too high where it reported them."""

    count: int
    """in the window"""
    seconds: float
    """length of the window: longer where few requests come"""
    p50_s: float
    p99_s: float
    age_s: float
    """since the last one"""
    total: int
    """so far"""
    source: str = REPORTED
