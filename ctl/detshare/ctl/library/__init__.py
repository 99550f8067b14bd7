# SPDX-License-Identifier: Apache-2.0
"""What Python programs use: a typed client and a context manager, exported by the top package."""
