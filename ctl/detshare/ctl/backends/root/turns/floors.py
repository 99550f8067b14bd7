# SPDX-License-Identifier: Apache-2.0
"""Floors of classes: the share of time that a class has at least, kept over restarts of the daemon."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from detshare.ctl.core import classes
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Gpu
from detshare.ctl.core.snapshot import ClassFloor

DEFAULT: Final[Mapping[str, float]] = {"normal": 0.02, "low": 0.02, "idle": 0.01}
"""none for `high`: nobody goes before it"""
_GPUS: Final = "gpus"
"""the key of the file beside those of classes under which floors of single GPUs are; files of older releases lack it"""


class Floors:
    """The floors of one run directory about one driver ("gpu" or "model").

    Those of a single GPU go by its UUID: its number may be another one after the next start of the machine.
    """

    def __init__(self, run_dir: Path, driver: str) -> None:
        self._path = run_dir / f"floors-{driver}.json"
        self._set: dict[str, float] = {}
        self._apart: dict[str, dict[str, float]] = {}
        try:
            entries = json.loads(self._path.read_bytes())
            apart = {gpu: _checked(each) for gpu, each in entries.get(_GPUS, {}).items()}
            self._set, self._apart = _checked(entries), {gpu: each for gpu, each in apart.items() if each}
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, RecursionError, BadRequest):
            self._path.replace(self._path.with_suffix(".unreadable"))

    def table(self) -> Mapping[str, float]:
        """Class -> share of time, 0..1, on each GPU that has none of its own."""
        return {**DEFAULT, **self._set}

    @property
    def apart(self) -> Mapping[str, Mapping[str, float]]:
        """UUID -> class -> share of time, of GPUs that have floors of their own, be they here or not."""
        return self._apart

    def of(self, klass: str, gpu: str = "") -> float:
        """The floor of a class on a GPU, or on those that have none of their own."""
        return self._apart.get(gpu, {}).get(klass, self.table().get(klass, 0.0))

    def rows(self, gpus: Collection[Gpu]) -> tuple[ClassFloor, ...]:
        """All of them for people."""
        numbers = {gpu.uuid: gpu.minor for gpu in gpus}
        alone = [
            ClassFloor(klass, floor, numbers.get(gpu), gpu)
            for gpu, each in self._apart.items()
            for klass, floor in each.items()
        ]
        return (*(ClassFloor(klass, floor) for klass, floor in self.table().items()), *alone)

    def set(self, klass: str, floor: float | None, gpu: str = "") -> None:
        """Set a floor, on one GPU or on those that have none of their own.

        None: on that GPU as on the others; without one as by default, on each. BadRequest where it can be none;
        OSError: nothing was kept.
        """
        table, apart = dict(self._set), {uuid: dict(each) for uuid, each in self._apart.items()}
        if floor is not None:
            (apart.setdefault(gpu, {}) if gpu else table)[klass] = classes.check_floor(floor)
        else:
            for each in [apart.get(gpu, {})] if gpu else [table, *apart.values()]:
                each.pop(klass, None)
        apart = {uuid: each for uuid, each in apart.items() if each}
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps({**table, **({_GPUS: apart} if apart else {})}) + "\n", encoding="utf-8")
        draft.chmod(0o600)
        draft.replace(self._path)
        self._set, self._apart = table, apart


def _checked(entries: Mapping[str, object]) -> dict[str, float]:
    """The floors among the entries of a file. BadRequest, AttributeError."""
    return {klass: classes.check_floor(floor) for klass, floor in entries.items() if klass in classes.CLASSES}
