# SPDX-License-Identifier: Apache-2.0
"""Who had the GPU when: runs of programs from the GPU's context-switch log, and what they sum up to."""
