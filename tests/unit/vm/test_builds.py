# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.vm import builds, toolchain
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
