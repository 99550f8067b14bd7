# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import types

import click
import pytest
from click.testing import CliRunner

from detshare.tools import main


def test_overview_lists_subcommands_without_importing_them() -> None:
    code = (
        "import sys; from detshare.tools.main import detshare; detshare(['--help'], standalone_mode=False);"
        "print([name for name in sys.modules if name.startswith(('detshare.tools.bench', 'detshare.tools.demo'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for word in ("bench ", "demo ", "detshare bench temporal"):
        assert word in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_version_is_the_installed_one() -> None:
    answer = CliRunner().invoke(main.detshare, ["--version"])
    assert answer.exit_code == 0
    assert importlib.metadata.version("detshare") in answer.output


def test_unknown_subcommand_is_bad_usage() -> None:
    assert CliRunner().invoke(main.detshare, ["guess"]).exit_code == 2


@pytest.mark.parametrize("own_example", [True, False])
def test_a_subcommands_help_shows_an_example_once(monkeypatch: pytest.MonkeyPatch, own_example: bool) -> None:
    @click.command(help="Does it.\n\nExample: detshare demo" if own_example else "Does it.")
    def demo() -> None:
        pass

    module = types.ModuleType("detshare.tools.demo")
    module.demo = demo  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "detshare.tools.demo", module)
    answer = CliRunner().invoke(main.detshare, ["demo", "--help"], prog_name="x")
    assert answer.exit_code == 0
    assert answer.output.count("detshare demo") == 1


@pytest.mark.parametrize("name", main.SUBCOMMANDS)
def test_each_subcommands_help_has_one_example(name: str) -> None:
    assert CliRunner().invoke(main.detshare, [name, "--help"], prog_name="detshare").output.count("Example") == 1


def test_a_missing_package_is_named_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    where = main._Subcommand("no_such_package_of_ours", "bench", "", "detshare bench temporal")
    monkeypatch.setitem(main.SUBCOMMANDS, "bench", where)
    answer = CliRunner().invoke(main.detshare, ["bench"])
    assert answer.exit_code == 1
    assert "no_such_package_of_ours" in answer.output
    assert "[bench]" in answer.output


@pytest.mark.parametrize("buffered", [[], ["-u"]])
@pytest.mark.parametrize("words", [["--help"], ["results", "check"]])
def test_a_full_disk_is_told_in_words(monkeypatch: pytest.MonkeyPatch, words: list[str], buffered: list[str]) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = [sys.executable, *buffered, "-c", "from detshare.tools.main import main; main()", *words]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("detshare: write the answer: standard output takes nothing more (No space left")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_error_of_a_file_is_not_told_as_one_of_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(main, "detshare", fail)
    with pytest.raises(OSError, match="No space"):
        main.main()
