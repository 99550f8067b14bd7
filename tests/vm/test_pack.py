# SPDX-License-Identifier: Apache-2.0
"""The archive that travels, unpacked elsewhere and run by its own script alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vm.conftest import TOP


@pytest.mark.thorough
def test_the_packed_guest_runs_by_its_own_script(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-P",
        "-m",
        "detshare.tools.vm.cli",
        "pack",
        "--mem",
        "1024",
        str(tmp_path / "nvfwd.tar.xz"),
    ]
    subprocess.run(words, check=True, cwd=TOP)
    subprocess.run(["tar", "-xf", "nvfwd.tar.xz"], check=True, cwd=tmp_path)
    folder = tmp_path / "nvfwd"
    # nothing of the checkout, its cache or its Python is named
    environment = {"PATH": os.environ["PATH"]}
    replay = ["PACK/nvreplay", "PACK/h100-580-runtime-greenctx.nvr"]
    command = [str(folder / "run"), "--recording", str(folder / "recording"), "--out", "said", "--"]
    done = subprocess.run(
        [*command, *replay], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=600
    )
    assert '"calls":521,"accepted":521' in done.stdout, done.stderr
    # six mappings of managed memory, which is refused: so it says itself
    assert done.returncode == 1
    assert '"handles":0,"maps":0,"pins":0,"waits":0' in done.stderr
    assert (tmp_path / "said" / "status").read_text() == "1\n"
    assert "detshare: driver 580.159.04: limits are in force" in (tmp_path / "said" / "kernel.log").read_text()
    usage = subprocess.run([str(folder / "run")], capture_output=True, text=True, check=False)
    assert usage.returncode == 2
    assert "usage: run" in usage.stderr
