# SPDX-License-Identifier: Apache-2.0
"""The test bed's one error."""

from __future__ import annotations


class VmError(Exception):
    """Something was not done: what was asked, what stopped it, what to do next. `usage`: it could not be meant."""

    def __init__(self, asked: str, stopped: str, following: str, *, usage: bool = False) -> None:
        super().__init__(f"{asked}: {stopped}\nnext: {following}")
        self.usage = usage
