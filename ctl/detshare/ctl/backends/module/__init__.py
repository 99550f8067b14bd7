# SPDX-License-Identifier: Apache-2.0
"""Backend kmod: steers programs through the kernel module."""
