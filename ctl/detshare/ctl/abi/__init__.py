# SPDX-License-Identifier: Apache-2.0
"""Numbers of the NVIDIA driver by version. Knows nothing else."""
