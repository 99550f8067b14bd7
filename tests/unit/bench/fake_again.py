# SPDX-License-Identifier: Apache-2.0
"""again.py without a GPU: the same loop over bytes that the CPU makes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools/detshare/tools/bench/workloads/mix"))
import again  # type: ignore[import-not-found]


def pieces() -> Iterator[bytes]:
    for number in range(30):
        time.sleep(0.002)
        yield number.to_bytes(2, "little")


again.KINDS = dict.fromkeys(again.KINDS, lambda: (pieces, ""))
again.main()
