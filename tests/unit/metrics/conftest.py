# SPDX-License-Identifier: Apache-2.0
"""Prometheus and promtool: this machine's, else Debian 12's in the test bed's cache. No service is begun."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from monitor import Monitor

from detshare.tools.vm import cache
from detshare.tools.vm.debian import Suite
from detshare.tools.vm.errors import VmError


def _unpack(stage: Path) -> None:
    suite = Suite("bookworm", "main")
    suite.update()
    suite.unpack(["prometheus"], stage)


@pytest.fixture(scope="session")
def monitor() -> Monitor:
    """Skips where there is neither the package nor a mirror to have it from; CI has one."""
    here = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(here):
        return Monitor(*map(str, here))
    try:
        folder = cache.ensure("monitor/prometheus", _unpack) / "usr" / "bin"
    except VmError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs prometheus and promtool: {error}")
    return Monitor(str(folder / "prometheus"), str(folder / "promtool"))
