# SPDX-License-Identifier: Apache-2.0
"""What the fixture `monitor` gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Monitor:
    """The two programs of Debian's package prometheus."""

    prometheus: str
    promtool: str
