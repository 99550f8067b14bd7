# SPDX-License-Identifier: Apache-2.0
"""detshare.tools: what is used beside the daemon: ABI generator, benchmarks, results of measurements, demo."""

from __future__ import annotations

from detshare.ctl.core import private

private.prefer()  # of pynvml
