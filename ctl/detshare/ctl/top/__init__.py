# SPDX-License-Identifier: Apache-2.0
"""The screen of detshare-top: every GPU program of this machine, live, with keys to steer it."""
