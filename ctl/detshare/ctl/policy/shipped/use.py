# SPDX-License-Identifier: Apache-2.0
"""GPU time that was used, also between two looks that say how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from detshare.ctl.policy.types import TenantView

__all__ = ["Use"]

SILENT_US: Final = 2_000_000.0
"""nothing is taken for used any more of who is said to have used nothing for so long"""


@dataclass
class Use:
    """GPU time of one tenant: what was said last and, while its gate is open, as much as before. Microseconds."""

    said: float
    at: float
    """since when it is taken for used: when that was said, or its gate opened"""
    paid: float
    """so far"""
    base: float = 0.0
    """paid at that time"""
    rate: float = 0.0
    opens: bool = True
    """its gate, at the last look"""

    @classmethod
    def from_now(cls, now_us: float, view: TenantView) -> Use:
        """What was used before is paid."""
        return cls(view.used_us, now_us, view.used_us, view.used_us)

    def look(self, now_us: float, view: TenantView) -> float:
        """What is to be paid since the last look; less than nothing where too much was taken for used."""
        before, opened = self.paid, view.gate_open and not self.opens
        if view.used_us != self.said:
            if view.gate_open and self.opens and now_us > self.at:
                self.rate = min(1.0, max(0.0, view.used_us - max(self.said, self.base)) / (now_us - self.at))
            self.said = self.base = self.paid = view.used_us
            self.at = now_us
        elif opened:
            self.base, self.at = self.paid, now_us
        elif not view.active or (view.gate_open and now_us - self.at > SILENT_US):
            self.base = self.paid = self.said
        elif view.gate_open:
            self.paid = self.base + self.rate * (now_us - self.at)
        self.opens = view.gate_open
        return self.paid - before
