# SPDX-License-Identifier: Apache-2.0
"""The test bed: stock Debian kernels in QEMU over the host's own root, for kernel modules that the host cannot load."""
