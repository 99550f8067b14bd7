# SPDX-License-Identifier: Apache-2.0
"""What this part raises: what was asked, what stopped it, what to do next."""

from __future__ import annotations


class EbpfError(Exception):
    """Something about eBPF that this machine, or our rights on it, did not allow."""

    def __init__(self, asked: str, why: str, advice: str) -> None:
        super().__init__(f"{asked}: {why}; {advice}")
        self.asked, self.why, self.advice = asked, why, advice
