# SPDX-License-Identifier: Apache-2.0
"""Generates what our code knows of the driver's ABI from data read out of the driver's own headers."""
