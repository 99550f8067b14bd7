# SPDX-License-Identifier: Apache-2.0
"""Packages, built once for a run of the tests: of this tree, the same under an older number, and of an older tree."""

from __future__ import annotations

import json
import re
import shutil
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
OLDEST: Final = "67aa87eb8d71ed4259a9044808fcb970a649bff5"
"""the first commit with packaging/debian. No version was released before this one, so it stands for the one before."""


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


def renumbered(factory: pytest.TempPathFactory) -> Path:
    """The folder with the same as BEFORE."""
    return once(factory, "renumbered", lambda folder: build(folder / "out", "deb", "--no-lint", "--version", BEFORE))


def older(factory: pytest.TempPathFactory) -> Path:
    """The folder with those of the tree of OLDEST as BEFORE."""

    def make(folder: Path) -> Path:
        tree = checkout(OLDEST, folder / "tree")
        return build(folder / "out", "deb", "--no-lint", "--version", BEFORE, "--root", str(tree))

    return once(factory, "older", make)


def checkout(commit: str, folder: Path) -> Path:
    """The tree of an earlier commit. Skips in a shallow clone, and only there."""
    git = ["git", "-C", ROOT]
    if patience.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True).returncode:
        shallow = patience.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
        why = f"there is no commit {commit[:8]} here"
        pytest.skip(f"{why}: git fetch --unshallow") if shallow.stdout.strip() == "true" else pytest.fail(why)
    patience.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, folder], check=True)
    patience.run(["git", "-C", folder, "checkout", "--quiet", "--detach", commit], check=True)
    wheels = ROOT / "build/vendored"
    if wheels.is_dir():  # those of the same hash are not fetched again
        shutil.copytree(wheels, folder / "build/vendored")
    return folder
