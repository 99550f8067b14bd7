# SPDX-License-Identifier: Apache-2.0
"""Generic netlink with detshare.ko: kmod/detshare.yaml in Python."""

from __future__ import annotations

from detshare.ctl.core import private

private.prefer()  # of pyroute2
