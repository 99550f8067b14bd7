# SPDX-License-Identifier: Apache-2.0
"""detshare.tools.layers: who may know whom in the sources, and whether it is so."""
