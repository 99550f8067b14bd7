# SPDX-License-Identifier: Apache-2.0
"""The sources that the simulator's generator writes: what the data has, and the same each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from detshare.tools.abi.generator import load
from detshare.tools.vm import builds, checkout

NAMES = ("abi_tables.c", "abi_tables.h", "answers.c")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(checkout.NVSIM / "generate.py"), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("--check",), ("a", "b")])
def test_bad_usage_is_said(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_build_gets_what_the_generator_writes(tmp_path: Path) -> None:
    assert run(str(tmp_path)).returncode == 0
    cached = builds.generated(checkout.NVSIM)
    assert cached is not None
    for folder in (tmp_path, cached):
        assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert all((tmp_path / name).read_bytes() == (cached / name).read_bytes() for name in NAMES)
    assert builds.generated(checkout.NVSIM) == cached


def test_every_control_and_class_of_the_newest_version_has_a_row(tmp_path: Path) -> None:
    run(str(tmp_path))
    text = (tmp_path / "abi_tables.c").read_text()
    rows = {int(number, 16) for number in re.findall(r"^\t\{ (0x\w+), KIND_", text, re.MULTILINE)}
    assert {control["id"] for control in load("controls")["580.142"]} <= rows
    assert {each["num"] for each in load("classes")["580.142"].values()} <= rows
