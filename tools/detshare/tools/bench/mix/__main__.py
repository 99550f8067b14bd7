# SPDX-License-Identifier: Apache-2.0
"""``python -m detshare.tools.bench.mix [NAME] ...``: the commands of the mixes, `mix` unless another one is named.

They need less than all of `detshare bench` does: nothing of guests or of other experiments is imported.
"""

from __future__ import annotations

import sys

from detshare.tools.bench.mix.cli import COMMANDS, mix

if __name__ == "__main__":
    named = {str(command.name): command for command in COMMANDS}
    command = named.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command is not None:
        del sys.argv[1]
    (command or mix)(prog_name=f"detshare bench {(command or mix).name}")
