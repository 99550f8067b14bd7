# SPDX-License-Identifier: Apache-2.0
"""The boards' layout, from runtime/board.json to C and Python."""
