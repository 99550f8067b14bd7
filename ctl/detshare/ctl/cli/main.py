# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl: see and steer the GPU programs of this machine."""

from __future__ import annotations

from detshare.ctl.cli import app, cdi, completion, config, dirty, held, page, policy, pool, support, version
from detshare.ctl.cli.command import main

__all__ = [
    "app", "cdi", "completion", "config", "dirty", "held", "main", "page", "policy", "pool", "support", "version",
]  # fmt: skip
