# SPDX-License-Identifier: Apache-2.0
"""The release command's one error."""

from __future__ import annotations

__all__ = ["ReleaseError"]


class ReleaseError(Exception):
    """Something was not made: what was asked, what stopped it, what to do next. `usage`: it could not be meant."""

    def __init__(self, asked: str, stopped: str, following: str, *, usage: bool = False) -> None:
        super().__init__(f"{asked}: {stopped}\nnext: {following}")
        self.usage = usage
