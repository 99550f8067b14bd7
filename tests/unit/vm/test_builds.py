# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.vm import builds, toolchain
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The make variables of each build that was really made; make is played."""
    seen: list[tuple[str, ...]] = []

    def play(folder: Path, _kernel: Kernel, _asked: str, _paths: str, *variables: str, shown: object) -> None:
        seen.append(variables)
        (folder / "thing.ko").write_text("")

    monkeypatch.setattr(builds, "run_make", play)
    monkeypatch.setattr(builds, "compiler_version", lambda *, newer: "gcc 14" if newer else "gcc 12")
    return seen


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "thing"
    folder.mkdir()
    (folder / "Kbuild").write_text("obj-m := thing.o\n")
    (folder / "thing.c").write_text("one")
    return folder


def test_what_was_checked_is_not_built_again(module: Path, made: list[tuple[str, ...]], tmp_path: Path) -> None:
    kernel = Kernel("6.12", "6.12.0", tmp_path / "kernel")
    checked = builds.build(module, kernel, *toolchain.CHECKED)
    assert builds.build(module, kernel) == checked
    assert (checked / "thing.ko").exists()
    assert made == [toolchain.CHECKED]
    # other sources, another kernel
    (module / "thing.c").write_text("two")
    assert builds.build(module, kernel) != checked
    builds.build(module, Kernel("6.1", "6.1.0", tmp_path / "kernel"))
    assert made == [toolchain.CHECKED, (), ()]


def test_what_was_built_is_still_checked(module: Path, made: list[tuple[str, ...]], tmp_path: Path) -> None:
    kernel = Kernel("6.12", "6.12.0", tmp_path / "kernel")
    builds.build(module, kernel)
    builds.build(module, kernel, *toolchain.CHECKED)
    builds.build(module, kernel, "OTHER=1")
    assert made == [(), toolchain.CHECKED, ("OTHER=1",)]


def test_a_generator_writes_into_the_copy_and_not_beside_the_sources(
    module: Path, made: list[tuple[str, ...]], tmp_path: Path
) -> None:
    kernel = Kernel("6.12", "6.12.0", tmp_path / "kernel")
    text = "import pathlib, sys\npathlib.Path(sys.argv[1], 'table.h').write_text('{}')\n"
    (module / "generate.py").write_text(text.format("one"))
    first = builds.build(module, kernel)
    assert (first / "table.h").read_text() == "one"
    assert not (module / "table.h").exists()
    assert builds.build(module, kernel) == first
    (module / "generate.py").write_text(text.format("two"))
    assert (builds.build(module, kernel) / "table.h").read_text() == "two"
    assert made == [(), ()]


def test_a_generator_that_fails_is_told(module: Path, made: list[tuple[str, ...]], tmp_path: Path) -> None:
    (module / "generate.py").write_text("import sys\nsys.exit('no data')\n")
    with pytest.raises(VmError, match="no data"):
        builds.build(module, Kernel("6.12", "6.12.0", tmp_path / "kernel"))
    assert made == []
