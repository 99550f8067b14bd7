# SPDX-License-Identifier: Apache-2.0
"""C constants and netlink policies of detshare.ko from its YNL specification, kmod/detshare.yaml."""
