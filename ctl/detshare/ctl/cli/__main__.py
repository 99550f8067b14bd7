# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.ctl.cli` is detshare-ctl."""

from __future__ import annotations

from detshare.ctl.cli.main import main

main()
