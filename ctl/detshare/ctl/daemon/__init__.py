# SPDX-License-Identifier: Apache-2.0
"""The daemon detshared: one loop over a backend, its API and its metrics."""
