# SPDX-License-Identifier: Apache-2.0
"""Floors of classes: the share of time that a class has at least, kept over restarts of the daemon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detshare.ctl.core import classes
from detshare.ctl.core.backend import BadRequest

DEFAULT: Final[Mapping[str, float]] = {"normal": 0.02, "low": 0.02, "idle": 0.01}
"""none for `high`: nobody goes before it"""


class Floors:
    """The floors of one run directory about one driver ("gpu" or "model")."""

    def __init__(self, run_dir: Path, driver: str) -> None:
        self._path = run_dir / f"floors-{driver}.json"
        self._set: dict[str, float] = {}
        try:
            entries = json.loads(self._path.read_bytes())
            self._set = {k: classes.check_floor(floor) for k, floor in entries.items() if k in classes.CLASSES}
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, RecursionError, BadRequest):
            self._path.replace(self._path.with_suffix(".unreadable"))

    def table(self) -> Mapping[str, float]:
        """Class -> share of time, 0..1."""
        return {**DEFAULT, **self._set}

    def of(self, klass: str) -> float:
        """The floor of a class."""
        return self.table().get(klass, 0.0)

    def set(self, klass: str, floor: float | None) -> None:
        """Set a floor, None: as by default. BadRequest where it can be none; OSError: nothing was kept."""
        table = {k: f for k, f in self._set.items() if k != klass}
        if floor is not None:
            table[klass] = classes.check_floor(floor)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(table) + "\n", encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(self._path)
        self._set = table
