# SPDX-License-Identifier: Apache-2.0
"""serving.py without transformers: an engine that gives each of its requests a token every so often."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads/field"))
import serving  # type: ignore[import-not-found]

STEP = 0.002
"""seconds of a step, in which each request gets a token"""


class Steps:
    def __init__(self) -> None:
        self._open: dict[str, list[int]] = {}

    def submit(self, name: str, prompt: int, wanted: int) -> None:
        self._open[name] = [0, wanted]

    def poll(self, seconds: float) -> list[tuple[str, int]]:
        time.sleep(STEP if self._open else seconds)
        for one in self._open.values():
            one[0] += 1
        said = [(name, have) for name, (have, _) in self._open.items()]
        self._open = {name: one for name, one in self._open.items() if one[0] < one[1]}
        return said


if __name__ == "__main__":
    serving.main(Steps)
