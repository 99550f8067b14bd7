# SPDX-License-Identifier: Apache-2.0
"""Commands of who is not root: the daemon's folder lets them pass through, and cannot be listed."""

from __future__ import annotations

import os
import pwd
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.patience import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
NOBODY = pwd.getpwnam("nobody").pw_uid
# it becomes that user by itself: this interpreter may lie where nobody else can read it
CODE = """
import os, sys
from detshare.ctl.cli import main, top
from detshare.ctl import oneshot
from detshare.runtime.run import run
os.setgroups([])
os.setresgid(*3 * [int(sys.argv[1])])
os.setresuid(*3 * [int(sys.argv[1])])
{"detshare-ctl": main.main, "detshare-top": top.main, "run": run}[sys.argv[2]](sys.argv[3:])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """As the unit of systemd makes /run/detshare."""
    with tempfile.TemporaryDirectory(prefix="detshare-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


def as_nobody(command: str, *words: str) -> CompletedProcess[str]:
    return run([sys.executable, "-c", CODE, str(NOBODY), command, *words], capture_output=True, text=True, cwd="/")


def test_a_command_gets_as_far_as_the_socket(folder: Path) -> None:
    done = as_nobody("detshare-ctl", "--run-dir", str(folder), "log-level")
    assert done.returncode == 1
    assert f"none answers on {folder}/detshared.sock" in done.stderr


@pytest.mark.parametrize(("command", "words"), [("detshare-ctl", ["ps"]), ("detshare-top", ["--once"])])
def test_who_may_not_use_the_socket_is_told_so(folder: Path, command: str, words: list[str]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "detshared.sock"))
        (folder / "detshared.sock").chmod(0o660)
        listener.listen()
        done = as_nobody(command, "--run-dir", str(folder), *words)
    assert done.returncode == 1
    assert f"belongs to another user (you are uid {NOBODY})" in done.stderr


def test_a_program_starts_under_detshare_run(folder: Path) -> None:
    done = as_nobody("run", "--run-dir", str(folder), "--", "id", "-u")
    assert (done.returncode, done.stdout) == (0, f"{NOBODY}\n"), done.stderr
