# SPDX-License-Identifier: Apache-2.0
"""``static``: what people have set, and nothing else."""

from __future__ import annotations

from detshare.ctl.policy.types import Policy

__all__ = ["Static"]


class Static(Policy):
    """Rule: none. Classes, weights, slices, quotas and reflexes stay as they were set.

    Source: the class rule of docs/use/scheduling.md, which the mechanisms follow without any policy.
    Limits: whoever is late is late; nothing is predicted and nothing is corrected.
    """

    looks = "never"
