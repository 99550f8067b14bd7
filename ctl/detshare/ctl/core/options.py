# SPDX-License-Identifier: Apache-2.0
"""Command line options that several commands have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from detshare.ctl.core.rundir import default_run_dir

F = TypeVar("F", bound=Callable[..., Any])
RUN_DIR: Final = click.Path(path_type=Path, file_okay=False, readable=False)
"""who may use the socket passes through its folder, and may not list it (mode 0711)"""


def run_dir(text: str) -> Callable[[F], F]:
    """--run-dir, with `text` as its help."""
    return click.option(
        "--run-dir",
        type=RUN_DIR,
        default=default_run_dir,
        show_default="DETSHARE_RUN_DIR or /run/detshare",
        help=text,
    )


class Finite(click.FloatRange):
    """A range of numbers; click's own lets NaN through, which compares as neither too small nor too large."""

    kind = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            bounds = f" from {self.min:g} to {self.max:g}" if self.min is not None and self.max is not None else ""
            self.fail(f"{value!r} is no {self.kind}{bounds}", param, ctx)
        return float(number)


class Seconds(Finite):
    """A range of seconds."""

    kind = "number of seconds"
