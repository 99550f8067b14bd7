# SPDX-License-Identifier: Apache-2.0
"""The packages of this tree, built once for a run of the tests: what users get, and the same under an older number."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import patience
from tests.debian.roots import install
from tests.unit.builds import ROOT, once

NAMES: Final = ("detshare", "detshare-dkms", "detshare-bench")
BEFORE: Final = "0.0.9"
"""a number below any that the tree has: stands for the version before"""


def build(out: Path, *words: str) -> Path:
    """`make deb` into a folder, with options of the release command. What its build lacks is installed, or it skips."""
    command = [sys.executable, "-m", "detshare.tools.release", "--json", "--out", str(out), *words]
    done = patience.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 1 and (lacking := re.search(r": not installed: (.+)$", done.stderr, re.MULTILINE)):
        install(lacking[1].split(", "))
        done = patience.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["made"]
    return out


def debs(factory: pytest.TempPathFactory) -> Path:
    """The folder with the packages of this tree."""
    return once(factory, "debs", lambda folder: build(folder / "out", "deb", "--no-lint"))


def older(factory: pytest.TempPathFactory) -> Path:
    """The folder with the same as BEFORE."""
    return once(factory, "older", lambda folder: build(folder / "out", "deb", "--no-lint", "--version", BEFORE))
