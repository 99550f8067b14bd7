# SPDX-License-Identifier: Apache-2.0
"""Commands that pages show, read by the commands' own parsers."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from pathlib import Path

import click
from builds import ROOT
from pages import BLOCK


def _program(where: str) -> click.Command:
    """What a console script of pyproject.toml runs: the command itself, or the one that its module wraps."""
    name, _, attribute = where.partition(":")
    module = importlib.import_module(name)
    runs = getattr(module, attribute)
    wrapped = (each for each in vars(module).values() if isinstance(each, click.Group))
    return runs if isinstance(runs, click.Command) else next(wrapped)


_SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
PROGRAMS = {name: _program(where) for name, where in _SCRIPTS.items()}
SHELL = ("", "sh", "bash", "console")
"""kinds of blocks that hold commands"""
_END = re.compile(r"(?<!\S)(?:\|\|?|&&?|;|[0-9]?>>?.*)(?!\S)|\s#\s.*|[0-9]?>>?\S+.*")
"""where a command ends: a pipe, a redirection, a comment"""
_CODE = re.compile(r"`([^`\n]+)`")


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """As the command itself would, down to the last group; UsageError where it cannot be meant."""
    if not isinstance(command, click.Group):
        command.make_context(words[0], words[1:], parent=parent)
        return
    context = click.Context(command, parent=parent, info_name=words[0])
    _, rest, _ = command.make_parser(context).parse_args(words[1:])
    name, inner, after = command.resolve_command(context, rest)
    assert name is not None
    assert inner is not None
    parse(inner, [name, *after], context)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def lines(page: Path) -> list[str]:
    """Lines of shell that a page shows: those after a prompt, and all of a block that has none."""
    found = []
    for kind, inside in BLOCK.findall(text_of(page)):
        shown = inside.splitlines() if kind in SHELL else []
        prompts = [line[2:] for line in shown if re.match(r"[$#] \S", line)]
        found += prompts or ([] if kind == "console" else shown)
    return found


def ours(page: Path) -> list[list[str]]:
    """The commands of ours among them, as words."""
    found = []
    for line in lines(page):
        bare = _END.split(line, maxsplit=1)[0].strip()
        words = bare.removeprefix("sudo ").split()
        name = words[0].rpartition("/")[2] if words else ""
        # a synopsis, with its brackets and capitals, is for people; a program's output may begin with its name
        if name in PROGRAMS and ":" not in words[0] and not re.search(r"\[|\||\.\.\.", bare):
            found.append([name, *shlex.split(bare.removeprefix("sudo "))[1:]])
    return found


def spans(page: Path) -> list[list[str]]:
    """Commands of ours in the midst of a sentence or a table, as words, the program's name first."""
    found = []
    for span in _CODE.findall(BLOCK.sub("", text_of(page))):
        words = span.replace("\\|", "|").removeprefix("sudo ").split()
        if words and words[0] in PROGRAMS:
            found.append(words)
        elif len(words) > 1 and words[0] in commands(PROGRAMS["detshare-ctl"]):
            found.append(["detshare-ctl", *words])
    return found


def commands(command: click.Command) -> dict[str, click.Command]:
    """The commands of a group; {} of one that is none."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return {name: one for name, one in found.items() if one is not None}


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def pages() -> list[Path]:
    """README and the pages for users and operators."""
    return [ROOT / "README.md", *sorted((ROOT / "docs" / "use").glob("*.md"))]
