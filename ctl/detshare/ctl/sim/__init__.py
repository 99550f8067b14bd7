# SPDX-License-Identifier: Apache-2.0
"""detshare-sim: GPUs, their lanes and their tenants as a discrete-event model."""
