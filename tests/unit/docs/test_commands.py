# SPDX-License-Identifier: Apache-2.0
"""README and docs/use: what they show of our commands can be meant, and what can run without a GPU does."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import click
import pytest
from builds import ROOT
from click.testing import CliRunner
from pages import BLOCK, play, steps
from shown_commands import PROGRAMS, commands, options, ours, pages, parse, spans, text_of

import detshare
from tests.patience import run

CTL = PROGRAMS["detshare-ctl"]
SHOWN = [(page, words) for page in pages() for words in ours(page)]
SPANS = [(page, words) for page in pages() for words in spans(page)]
COMMANDS = ROOT / "docs" / "use" / "commands.md"
MOST_WORDS = 1300


def name(value: object) -> str | None:
    if isinstance(value, Path):
        return str(value.relative_to(ROOT))
    return " ".join(value) if isinstance(value, list) else None


def test_there_are_commands_to_look_at() -> None:
    assert len(SHOWN) > 60
    assert len(SPANS) > 60
    assert {words[0] for _, words in SHOWN} >= {"detshare", "detshare-ctl", "detshare-sim", "detshare-top", "detshared"}


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=name)
def test_a_command_that_is_shown_can_be_meant(page: Path, words: list[str]) -> None:
    try:
        parse(PROGRAMS[words[0]], words)
    except click.BadParameter as error:
        if not re.search(r"'.*' does not exist", error.message):  # a file of the reader's, which is not here
            raise


@pytest.mark.parametrize(("page", "words"), SPANS, ids=name)
def test_a_command_within_a_sentence_has_such_a_verb_and_such_options(page: Path, words: list[str]) -> None:
    command, rest = PROGRAMS[words[0]], words[1:]
    while commands(command) and rest and re.fullmatch(r"[a-z][a-z|-]+", rest[0]):
        names = rest[0].split("|")
        assert set(names) <= set(commands(command)), words
        command, rest = commands(command)[names[0]], rest[1:]
    after = rest.index("--") if "--" in rest else len(rest)
    asked = {option for word in rest[:after] for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", word)}
    assert asked - {"--help", "--version"} <= options(command) | options(PROGRAMS[words[0]]), words


def test_what_is_wrong_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```\nsudo detshare-ctl set-memory 4242  # too few\ndetshare-ctl nosuch | cat\n```\n`set-sm 7 --no`\n"
    )
    assert ours(page) == [["detshare-ctl", "set-memory", "4242"], ["detshare-ctl", "nosuch"]]
    for words in ours(page):
        with pytest.raises(click.UsageError):
            parse(PROGRAMS[words[0]], words)
    with pytest.raises(AssertionError):
        test_a_command_within_a_sentence_has_such_a_verb_and_such_options(page, spans(page)[0])


@pytest.mark.parametrize("command", sorted(commands(CTL)))
def test_each_command_has_its_help_and_its_line(command: str) -> None:
    said = CliRunner().invoke(CTL, [command, "--help"])
    assert said.exit_code == 0
    assert re.search(rf"(?<![\w-]){command}(?![\w-])", text_of(COMMANDS)), f"commands.md does not name {command}"


@pytest.mark.e2e
def test_the_readmes_session_is_true(tmp_path: Path) -> None:
    assert len(steps("../README.md")) > 8
    play("../README.md", tmp_path)


@pytest.mark.parametrize("page", pages(), ids=name)
def test_the_python_of_a_page_is_python_and_names_what_there_is(page: Path) -> None:
    for source in (inside for kind, inside in BLOCK.findall(text_of(page)) if kind == "python"):
        tree = ast.parse(source)
        named = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "detshare"
        }
        assert {each for each in named if not hasattr(detshare, each)} == set()


@pytest.mark.parametrize("page", pages(), ids=name)
def test_the_configuration_of_a_page_is_understood(page: Path) -> None:
    for kind, inside in BLOCK.findall(text_of(page)):
        if kind == "toml" or inside.startswith("["):
            tomllib.loads(inside)


def test_make_shows_each_target_that_says_what_it_does() -> None:
    said = [line.partition(":")[0] for line in text_of(ROOT / "Makefile").splitlines() if re.match(r"\S+:.* ## ", line)]
    shown = run(["make", "-s", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == said
    assert len(said) > 15


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").split()) <= MOST_WORDS
