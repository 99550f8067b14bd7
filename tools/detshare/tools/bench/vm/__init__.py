# SPDX-License-Identifier: Apache-2.0
"""Experiments with detshare.ko in guests. The modules here run on the host; those of `inside` run in the guest."""
