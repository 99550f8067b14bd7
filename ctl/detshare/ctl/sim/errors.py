# SPDX-License-Identifier: Apache-2.0
"""What stops a simulation."""

from __future__ import annotations

__all__ = ["SimError"]


class SimError(Exception):
    """Says what was asked, what stopped it, and what to do next."""
