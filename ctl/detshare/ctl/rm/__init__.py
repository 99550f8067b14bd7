# SPDX-License-Identifier: Apache-2.0
"""Talking to NVIDIA's resource manager (RM) over descriptors of /dev/nvidiactl."""
