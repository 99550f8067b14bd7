# SPDX-License-Identifier: Apache-2.0
"""detshared with the driver's checkpoint beside the model backend, which has no processes of its own to confuse."""

from __future__ import annotations

import sys

from detshare.ctl.backends.spatial import lanes
from detshare.ctl.daemon import detshared

lanes._PROCESSES = ("model",)  # type: ignore[misc]
sys.exit(detshared.main())
