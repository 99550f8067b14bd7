# SPDX-License-Identifier: Apache-2.0
"""Bytecode of the checkout's Python, made before a guest runs it.

A guest sees the checkout read-only under a tmpfs: what it compiles is gone with it, and made again by the next, ten
times slower than here. It is made whatever PYTHONDONTWRITEBYTECODE says: that is about what importing leaves behind.
"""

from __future__ import annotations

import compileall
import contextlib

from detshare.tools.vm import checkout


def compile_ahead() -> None:
    """Bytecode of all files that have none of their own; as good as nothing to do where all is there.

    What cannot be compiled, or written to, is left: who imports it says why, or compiles it for itself.
    """
    for folder in checkout.packages():
        with contextlib.suppress(OSError):
            compileall.compile_dir(folder, quiet=2)
