# SPDX-License-Identifier: Apache-2.0
"""Experiments on memory that leaves the GPU and comes back."""
