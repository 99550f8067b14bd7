# SPDX-License-Identifier: Apache-2.0
"""Beside the field: published workloads under other ways to share a GPU and under ours, in one run."""
