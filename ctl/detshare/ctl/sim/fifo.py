# SPDX-License-Identifier: Apache-2.0
"""A tenant that nobody disturbs, without events: kernels one after the other, whatever each takes."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["fifo"]


def fifo(asked: Any, us: Any) -> Any:
    """When each kernel ends: launched at ``asked`` (never going back), ``us`` long, in order, never idle with work.

    An end is the longest way to it: some kernel's launch and all kernels from that one on.
    """
    asked, us = np.asarray(asked, dtype=float), np.asarray(us, dtype=float)
    done = np.cumsum(us)
    return np.maximum.accumulate(asked - (done - us)) + done
