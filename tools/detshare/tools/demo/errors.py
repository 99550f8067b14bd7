# SPDX-License-Identifier: Apache-2.0
"""The demo's one error."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on: what was asked, what stopped it, what to do next."""

    def __init__(self, asked: str, stopped: str, following: str) -> None:
        super().__init__(f"{asked}: {stopped}\nnext: {following}")
