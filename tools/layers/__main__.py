# SPDX-License-Identifier: Apache-2.0
"""`python -m detshare.tools.layers`: one line for each breach of the layers, in the checkout it is called in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from detshare.tools.layers import imports

CHECKS: Final = (imports,)


def main() -> int:
    """Exit code 0 good, 1 breaches found."""
    found = [said for each in CHECKS for said in each.check(Path.cwd())]
    for said in found:
        print(said, file=sys.stderr)
    print(f"layers: {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
