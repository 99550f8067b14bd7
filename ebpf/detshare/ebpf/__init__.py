# SPDX-License-Identifier: Apache-2.0
"""detshare.ebpf: loading and reading DetShare's eBPF programs. Their C sources (*.bpf.c) are GPL-2.0-only."""
