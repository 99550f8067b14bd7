# SPDX-License-Identifier: Apache-2.0
"""What `detshare bench` takes for a number."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from detshare.tools.bench.cli import bench


def numbers(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each option that is a number, behind the words of its command."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from numbers(inner, (*words, name))
    for each in command.params:
        if isinstance(each.type, click.types.FloatParamType | click.types.IntParamType):
            yield (*words, each.opts[0])


ALL = list(numbers(bench))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_what_is_no_number_is_refused(words: tuple[str, ...]) -> None:
    for value in ("nan", "-nan", "inf", "-inf", "1e999", "much"):
        done = CliRunner().invoke(bench, [*words, value], prog_name="detshare bench")
        assert done.exit_code == 2, value
        assert f"Invalid value for '{words[-1]}'" in done.output
        assert f"Try 'detshare bench {' '.join(words[:-1])} --help'" in done.output


def test_it_says_what_may_be_given() -> None:
    assert len(ALL) > 100
    done = CliRunner().invoke(bench, ["temporal", "--seconds", "nan"])
    assert "'nan' is no number of seconds from 0.5 to 60" in done.output
