# SPDX-License-Identifier: Apache-2.0
"""What programs use of the driver API, with the module and without."""

from __future__ import annotations

import json
import subprocess

from claims.box import Box, helper, tell

PROGRAMS = (("apis",), ("apis", "ipc"), ("apis", "export"), ("vectoradd",))
MOST_S = 40.0


def programs(box: Box, *, module: bool) -> None:
    box.load(module=module)
    step = "programs" if module else "programs-alone"
    for name, *words in PROGRAMS:
        command = [str(box.programs / name), *words]
        before = helper()
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_S)
            said, code, error = done.stdout, done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            said, code, error = (late.stdout or b"").decode(), -1, f"not within {MOST_S:g} s"
        refused = helper()["refused"] - before["refused"]
        tell(step, program=" ".join((name, *words)), code=code, error=error[-400:], refused=refused,
             lines=[json.loads(line) for line in said.splitlines() if line.startswith("{")])  # fmt: skip
