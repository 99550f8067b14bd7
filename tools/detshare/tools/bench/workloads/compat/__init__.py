# SPDX-License-Identifier: Apache-2.0
"""Programs with a fixed output, one for each way of using CUDA; each is run by its path."""
