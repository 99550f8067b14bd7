# SPDX-License-Identifier: Apache-2.0
"""Programs of published workloads: models built from their configurations with random weights."""
