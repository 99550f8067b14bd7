# SPDX-License-Identifier: Apache-2.0
"""What an observer outside a program, which asks neither the program nor the driver, saw of its calls to CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SOURCE", "Grid", "Observed"]

SOURCE: Final = "eBPF"


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
