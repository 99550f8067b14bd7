# SPDX-License-Identifier: Apache-2.0
"""detshare-trace: what the observers of detshare.ebpf see, for people."""
