# SPDX-License-Identifier: Apache-2.0
"""What answers are printed on."""

from __future__ import annotations

import os
from typing import Final

import rich.console

_WHOLE: Final = 1 << 16
"""columns where no line is cut"""


class Console(rich.console.Console):
    """As wide as COLUMNS where that names a width, else as the terminal; `whole`: or as what is printed, in a pipe."""

    def __init__(self, *, whole: bool = False) -> None:
        told = os.environ.get("COLUMNS", "")
        wide = told.isascii() and told.isdigit() and int(told[:9]) > 0
        environ = {name: value for name, value in os.environ.items() if wide or name != "COLUMNS"}
        super().__init__(highlight=False, _environ=environ)
        if whole and not wide and not self.is_terminal:
            self.width = _WHOLE  # what reads a pipe, grep for one, looks for all of a command
