# SPDX-License-Identifier: Apache-2.0
"""``python -m detshare.tools.bench.mix``: the command `detshare bench mix`."""

from __future__ import annotations

from detshare.tools.bench.mix.cli import mix

if __name__ == "__main__":
    mix()
