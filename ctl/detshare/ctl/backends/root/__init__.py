# SPDX-License-Identifier: Apache-2.0
"""Backend root: steers programs through the stock driver, on their own descriptors."""
