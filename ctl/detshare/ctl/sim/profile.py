# SPDX-License-Identifier: Apache-2.0
"""What the model was taught: figures derived from the results of `detshare bench`, each with the rows it came from.

Made by ``detshare-sim profile docs/results``; nothing in it is typed by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.tenants import lognormal_sigma

__all__ = ["Profile", "Rows", "build", "packaged"]

PACKAGED: Final = "profile-h100.json"
TIERS: Final = (8, 16, 32, 64)
PERIODS: Final = ("a token every 10 ms", "tokens back to back", "a token every 100 ms")


class Rows:
    """The rows of one result, by name. Every look is noted in ``used``: these rows are calibration, not validation."""

    def __init__(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self._rows: dict[str, float] = {row["what"]: float(row["value"]) for row in document["rows"]}
            self.machine: str = document["machine"]
        except OSError as error:
            raise SimError(f"{path}: cannot be read: {error.strerror}; name the folder of the results") from error
        except (ValueError, KeyError, TypeError) as error:
            raise SimError(f"{path}: is no result of detshare bench: {type(error).__name__}: {error}") from error
        self.name = path.stem
        self._path = path
        self.used: list[str] = []

    def __contains__(self, what: str) -> bool:
        return what in self._rows

    def look(self, what: str) -> float:
        """The figure, for validation."""
        try:
            return self._rows[what]
        except KeyError:
            raise SimError(f"{self._path}: has no row {what!r}; next: detshare bench {self.name}") from None

    def take(self, what: str) -> float:
        """The figure, for calibration."""
        value = self.look(what)
        if what not in self.used:
            self.used.append(what)
        return value


@dataclass(frozen=True)
class Profile:
    """Parameters of the model. Slowdowns: how many times longer kernels take while the other's kernels run."""

    machine: str
    switch_us: float
    young: float
    first_end: float
    pair: dict[str, dict[str, float]]
    """decode beside training, by scheme: lc (slowdown), sigma (spread of lc), be (speed while decode is active)"""
    used: dict[str, list[str]]
    """by result: the rows that were used"""

    def to_json(self) -> dict[str, Any]:
        """The file."""
        return {
            "machine": self.machine,
            "switch_us": self.switch_us,
            "young": self.young,
            "first_end": self.first_end,
            "pair": self.pair,
            "used": self.used,
        }


def build(folder: Path) -> Profile:
    """From weights, isolation and pair; SimError where a file or row is missing."""
    weights, isolation, pair = (Rows(folder / f"{name}.json") for name in ("weights", "isolation", "pair"))
    # two equal tenants: after each slice of 2000 us (weight 1) comes one switch
    together = weights.take("kernels 1:1: shares together")
    switch = 2000.0 * (1.0 / together - 1.0)
    alone = isolation.take("LC alone p50")
    p50 = isolation.take("BE 90 ms: MPS: LC p50")
    p99 = isolation.take("BE 90 ms: MPS: LC p99")
    kernel = 1e6 / isolation.take("BE 90 ms: alone")
    base, rate = PERIODS[0], pair.take("BE alone")
    lc = pair.take(f"{base}: alone: token p50")
    schemes: dict[str, dict[str, float]] = {
        "alone": {"lc": 1.0, "sigma": lognormal_sigma(lc, pair.take(f"{base}: alone: token p99")), "be": 1.0}
    }
    names = {"MPS": "MPS", "MPS 50 %": "MPS 50 %", **{f"{n} SMs": f"sweep: {n} SMs" for n in TIERS}}
    for name, row in names.items():
        mine, tail = pair.take(f"{base}: {row}: token p50"), pair.take(f"{base}: {row}: token p99")
        # back to back decode is always active: the background's rate is its speed beside it
        speed = pair.take(f"{PERIODS[1]}: {row}: BE") / rate
        schemes[name] = {"lc": mine / lc, "sigma": lognormal_sigma(mine, tail), "be": min(1.0, speed)}
    rounded = {name: {key: round(value, 5) for key, value in figures.items()} for name, figures in schemes.items()}
    used = {rows.name: rows.used for rows in (weights, isolation, pair)}
    machine = isolation.machine
    return Profile(machine, round(switch, 1), round(alone / p50, 4), round((p99 - p50) / kernel, 4), rounded, used)


def load(path: Path) -> Profile:
    """A profile that `build` made."""
    try:
        return Profile(**json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SimError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise SimError(f"{path}: is no profile: {error}; next: detshare-sim profile docs/results -o {path}") from error


def packaged() -> Profile:
    """The one of an H100 that DetShare brings."""
    with resources.as_file(resources.files("detshare.ctl.sim") / PACKAGED) as path:
        return load(path)
