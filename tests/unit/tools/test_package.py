# SPDX-License-Identifier: Apache-2.0
"""What is installed from a wheel is what the checkout has."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from detshare.ctl.core import native
from detshare.tools.release import versions

TOP = Path(__file__).resolve().parents[3]
PARTS = ("ctl", "runtime", "ebpf")
"""what a wheel has, but for the command `detshare` of tools"""


def tracked() -> list[Path]:
    if not (TOP / ".git").exists():
        pytest.skip("this is no checkout: there is no list of its files")
    command = ["git", "-C", str(TOP), "ls-files", "-z", "--", *(f"{part}/detshare" for part in PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Path(name) for name in done.stdout.split("\0") if name]


def test_every_file_of_a_package_that_is_no_python_is_package_data() -> None:
    with (TOP / "pyproject.toml").open("rb") as file:
        patterns: dict[str, list[str]] = tomllib.load(file)["tool"]["setuptools"]["package-data"]

    def packed(path: Path) -> bool:
        package = ".".join(path.parent.parts[1:])
        return any(fnmatch(path.name, each) for each in (*patterns["*"], *patterns.get(package, ())))

    others = [path for path in tracked() if path.suffix not in (".py", ".md")]
    assert Path("runtime/detshare/runtime/rck.ptx") in others
    assert [str(path) for path in others if not packed(path)] == []


def test_the_parts_of_a_checkout_are_found_from_the_folder_of_one() -> None:
    code = "import detshare.runtime, detshare.ebpf, detshare.tools as last; print(last.__file__)"
    words = [sys.executable, "-P", "-S", "-c", code]
    done = subprocess.run(words, env={"PYTHONPATH": str(TOP / "ctl")}, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(TOP / "tools/detshare/tools/__init__.py"), done.stderr


def test_the_c_of_a_part_is_found_in_a_checkout_and_in_a_wheel(tmp_path: Path) -> None:
    module = tmp_path / "ebpf/detshare/ebpf/build.py"
    module.parent.mkdir(parents=True)
    assert native.folder(str(module), "objects.bpf.c") == tmp_path / "ebpf"
    packed = tmp_path / "lib/detshare/ebpf"
    packed.mkdir(parents=True)
    (packed / "objects.bpf.c").touch()
    assert native.folder(str(packed / "build.py"), "objects.bpf.c") == packed


def test_every_place_says_the_version_that_is_packed() -> None:
    with (TOP / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert versions.said(TOP) == dict.fromkeys(versions.PLACES, version)
