# SPDX-License-Identifier: Apache-2.0
"""Python packages that a distribution's package of DetShare brings, since the distribution has none that serve.

They lie in a folder of ours, so that no other program meets them. A wheel and a checkout have no such folder.
"""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["FOLDER", "prefer"]

FOLDER: Final = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "private"))
"""detshare/private, beside detshare/ctl"""


def prefer(folder: str = FOLDER) -> None:
    """From now on this process imports from there first. Idempotent; nothing where there is no such folder."""
    if os.path.isdir(folder) and folder not in sys.path:
        sys.path.insert(0, folder)
