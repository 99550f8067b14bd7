# SPDX-License-Identifier: Apache-2.0
"""One small program per way to use CUDA, for the adoption experiment; each is run by its path."""
