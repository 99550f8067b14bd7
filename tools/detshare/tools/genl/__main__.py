# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.genl`: write the C files made from kmod/detshare.yaml, or with --check compare them."""

from __future__ import annotations

from detshare.tools.generated import command
from detshare.tools.genl.generator import BadSpec, render

SUMMARY = "Generate constants and netlink policies of detshare.ko from kmod/detshare.yaml."
main = command("genl", "kmod/detshare.yaml", SUMMARY, render, BadSpec)

if __name__ == "__main__":
    main()
