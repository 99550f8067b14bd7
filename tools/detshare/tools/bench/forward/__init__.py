# SPDX-License-Identifier: Apache-2.0
"""What a packed guest saw of detshare.ko on a real GPU: read, and judged."""
