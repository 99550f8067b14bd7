# SPDX-License-Identifier: Apache-2.0
"""Generic netlink with detshare.ko: kmod/detshare.yaml in Python."""
