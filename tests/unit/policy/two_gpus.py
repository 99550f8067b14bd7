# SPDX-License-Identifier: Apache-2.0
"""detshared over a model machine with two GPUs."""

from __future__ import annotations

import sys

from detshare.ctl.backends.model import live
from detshare.ctl.core.driver import Gpu
from detshare.ctl.daemon import detshared

GPUS = tuple(Gpu(f"GPU-{n}a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a", n, "Model H100", f"0000:0{n}:00.0") for n in (0, 1))


class TwoGpus(live.LiveModel):
    def __init__(self) -> None:
        super().__init__(gpus=GPUS)


if __name__ == "__main__":
    live.LiveModel = TwoGpus  # type: ignore[misc]
    sys.exit(detshared.main())
