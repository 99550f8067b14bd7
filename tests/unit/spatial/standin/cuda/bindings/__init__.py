# SPDX-License-Identifier: Apache-2.0
"""A stand-in: see driver.py."""
