# SPDX-License-Identifier: Apache-2.0
"""The commands detshare-ctl and detshare-top."""
