# SPDX-License-Identifier: Apache-2.0
"""Measurements of the observers (detshare.ebpf) on a real GPU: objects, cost, dirty memory, births for backend root."""
