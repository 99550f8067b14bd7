# SPDX-License-Identifier: Apache-2.0
"""An in-process model of the stock driver: strict, deterministic, for tests and machines without a GPU."""
