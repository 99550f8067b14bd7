# SPDX-License-Identifier: Apache-2.0
"""``detshare bench``: experiments on a real GPU that steer unmodified programs from outside, as a user would."""
