# SPDX-License-Identifier: Apache-2.0
"""The release command: what it reads, what it stages, and that the same tree gives the same bytes."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.tools import manpages
from detshare.tools.release import __main__ as release
from detshare.tools.release import changes, completions, debian, versions
from detshare.tools.release.errors import ReleaseError
from tests.debian import packages, roots
from tests.unit.builds import ROOT

CHANGES = """\
# Changes

## 0.2.0 - 2026-12-01

- `detshare-ctl` does this, at some length, so that the line is longer than a line of Debian's changelog may be,
  and goes on.
- And that.

## 0.1.0 - 2026-11-25

- First.
"""


def test_a_changelog_is_read_and_becomes_debians() -> None:
    entries = changes.read(CHANGES)
    assert [(each.version, each.day, len(each.items)) for each in entries] == [
        ("0.2.0", date(2026, 12, 1), 2),
        ("0.1.0", date(2026, 11, 25), 1),
    ]
    assert entries[0].epoch == 1796083200
    text = changes.debian(entries)
    assert max(len(line) for line in text.splitlines() if not line.startswith(" -- ")) <= 80
    assert text.startswith("detshare (0.2.0) unstable; urgency=medium\n\n  * detshare-ctl does this,")
    assert "\n  * First.\n\n -- DetShare maintainers <" in text
    assert "  Tue, 01 Dec 2026 00:00:00 +0000\n" in text


@pytest.mark.parametrize("text", ["# Changes\n", "## 0.1.0 - 2026-02-30\n\n- x\n"])
def test_a_changelog_that_says_no_version_and_day_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md"):
        changes.read(text)


def places(folder: Path) -> Path:
    for name in versions.PLACES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_another_version_is_written_to_all_places(tmp_path: Path) -> None:
    versions.write(places(tmp_path), "0.3.0~rc2")
    said = versions.said(tmp_path)
    assert said.pop("pyproject.toml") == "0.3.0rc2"
    assert set(said.values()) == {"0.3.0~rc2"}


@pytest.mark.parametrize("version", ["", "1", "0.1.0-1", "../x", "0.1.0 "])
def test_a_word_that_is_no_version_is_bad_usage(tmp_path: Path, version: str) -> None:
    with pytest.raises(ReleaseError) as caught:
        versions.write(places(tmp_path), version)
    assert caught.value.usage


def test_places_that_do_not_agree_stop_a_release(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    path = places(tmp_path) / "dkms.conf"
    path.write_text(path.read_text().replace('PACKAGE_VERSION="', 'PACKAGE_VERSION="9'))
    answer = CliRunner().invoke(release.main, ["deb", "--root", str(tmp_path), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 1
    assert "dkms.conf says 9" in answer.output


def test_what_is_missing_for_a_build_is_named_with_the_line_for_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "packaging/debian", tree / "debian")
    control = tree / "debian/control"
    control.write_text(control.read_text().replace("clang,", "clang,\n no-such-tool (>= 3) | other,", 1))
    with pytest.raises(ReleaseError, match=r"apt-get install .*no-such-tool"):
        debian.build(tree, 0, tmp_path / "log")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ReleaseError, match=r"apt-get install .*dpkg-dev"):
        debian.build(tree, 0, tmp_path / "log")


def test_each_command_completes_in_each_shell(tmp_path: Path) -> None:
    made = completions.write(tmp_path)
    assert len(made) == 3 * len(manpages.PROGRAMS)
    script = (tmp_path / "bash-completion/completions/detshare-top").read_text()
    assert "_DETSHARE_TOP_COMPLETE=bash_complete" in script
    assert (tmp_path / "zsh/vendor-completions/_detshared").read_text().startswith("#compdef detshared")


def sums(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.suffix != ".log"
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.build(tmp_path_factory.mktemp("made") / "out", "wheel", "sdist")


@pytest.mark.e2e
@pytest.mark.rest
def test_a_wheel_has_the_product_and_no_more(made: Path) -> None:
    wheel = next(made.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        # where a wheel for one kind of machine has what is Python alone
        by_name = {each.partition("/purelib/")[2] or each: each for each in archive.namelist()}
        names = set(by_name)
        text = {name: archive.read(each).decode() for name, each in by_name.items() if name.endswith(".py")}
        scripts = archive.read(
            next(each for name, each in by_name.items() if name.endswith("entry_points.txt"))
        ).decode()
    tools = {name for name in names if name.startswith("detshare/tools/")}
    assert tools == {"detshare/tools/__init__.py", "detshare/tools/main.py"}
    assert {"detshare/runtime/libdetshare.so", "detshare/runtime/rck.ptx"} <= names
    assert "detshare-vm" not in scripts
    assert "slo-aware" in scripts
    known = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in text}
    for name, code in text.items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("detshare"):
                module = node.module or ""
                # a folder without __init__ is a package too
                there = module in known or any(each.startswith(f"{module}.") for each in known)
                assert there, f"{name} imports {module}, which the wheel has not"


@pytest.mark.e2e
@pytest.mark.rest
def test_a_wheel_is_built_from_the_source_archive_alone(made: Path, tmp_path: Path) -> None:
    with tarfile.open(next(made.glob("*.tar.gz"))) as archive:
        assert {each.uid for each in archive} == {0}
        archive.extractall(tmp_path)
    tree = next(tmp_path.iterdir())
    from detshare.tools.release import python, vendored

    vendored.bring(ROOT / "packaging/vendored.txt", tree / "vendored", ROOT / "build/vendored")
    again = python.wheel(tree, tmp_path / "out", 1)
    with zipfile.ZipFile(again) as new, zipfile.ZipFile(next(made.glob("*.whl"))) as old:
        assert sorted(new.namelist()) == sorted(old.namelist())


@pytest.mark.thorough
def test_lintian_finds_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    built = packages.debs(tmp_path_factory)
    if shutil.which("lintian") is None:
        roots.install(["lintian"])
    found = [*built.glob("*.dsc"), *built.glob("*.deb")]
    assert len(found) == 1 + len(packages.NAMES)
    assert [said for each in found if (said := debian.lint(each))] == []


@pytest.mark.thorough
def test_the_same_tree_gives_the_same_bytes(
    made: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {**sums(made), **sums(packages.debs(tmp_path_factory))}
    elsewhere = tmp_path / "a much longer name of a folder".replace(" ", "-") / "checkout"
    made_here = {str(ROOT): {"build", ".venv"}, str(ROOT / "docs"): {"results"}}
    shutil.copytree(ROOT, elsewhere, ignore=lambda folder, _names: made_here.get(folder, set()) | {"__pycache__"})
    shutil.copytree(ROOT / "build/vendored", elsewhere / "build/vendored")
    for path in elsewhere.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (time.time(), 1))
    old = os.umask(0o077)
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        monkeypatch.setenv("LC_ALL", "C")
        monkeypatch.setenv("TMPDIR", str(elsewhere.parent))
        packages.build(tmp_path / "again", "--no-lint", "--root", str(elsewhere))
    finally:
        os.umask(old)
    second = sums(tmp_path / "again")
    first.pop("SHA256SUMS"), second.pop("SHA256SUMS")
    assert second == first
