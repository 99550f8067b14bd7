# SPDX-License-Identifier: Apache-2.0
"""Probes: small experiments under one way to share the GPU, a class each."""
