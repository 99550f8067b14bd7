# SPDX-License-Identifier: Apache-2.0
"""python -m detshare.ctl.top: detshare-top where it is not installed."""

from __future__ import annotations

from detshare.ctl.top import main

main(prog_name="detshare-top")
