# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl: see and steer the GPU programs of this machine."""

from __future__ import annotations

from detshare.ctl.cli import held
from detshare.ctl.cli.app import main

__all__ = ["held", "main"]
