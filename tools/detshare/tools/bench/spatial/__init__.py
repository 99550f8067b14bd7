# SPDX-License-Identifier: Apache-2.0
"""Experiments on the runtime: what the spatial lane does, beside time-slicing, MPS and the temporal lane."""
