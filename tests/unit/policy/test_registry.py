# SPDX-License-Identifier: Apache-2.0
"""Policies are named by an entry point or a file, and their parameters are checked before they decide anything."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from detshare.ctl.core.errors import ControlError
from detshare.ctl.policy import registry

MINE = '''
from __future__ import annotations
from dataclasses import dataclass
from detshare.ctl.policy.types import Policy

class Mine(Policy):
    """Rule: mine.

    Limits: many.
    """
    @dataclass(frozen=True)
    class Params:
        count: int = 3
        share: float = 0.5
        eager: bool = False
        word: str = "train"
        limit: float | None = None

        def __post_init__(self):
            if self.count > 10:
                raise ValueError(f"count is {self.count}; 10 at most")
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


def test_every_shipped_policy_can_be_had_and_says_its_rule():
    known = {each.name: each for each in registry.known()}
    assert list(registry.SHIPPED) == list(known)[: len(registry.SHIPPED)]
    for name in registry.SHIPPED:
        assert known[name].problem == ""
        assert known[name].rule
        loaded = registry.load(name)
        assert loaded.rule == known[name].rule


def test_entry_points_are_those_of_the_registry():
    path = next(parent for parent in Path(__file__).parents if (parent / "pyproject.toml").exists()) / "pyproject.toml"
    made = tomllib.loads(path.read_text())["project"]["entry-points"][registry.GROUP]
    assert made == registry.SHIPPED


def test_parameters_are_typed(mine):
    given = {"count": "7", "share": "1e-2", "eager": "true", "word": "a=b", "limit": "2"}
    loaded = registry.load(mine, given)
    params = loaded.policy.params
    assert (params.count, params.share, params.eager, params.word, params.limit) == (7, 0.01, True, "a=b", 2.0)
    assert loaded.params == given
    assert loaded.rule == "mine."
    assert registry.describe_params(type(loaded.policy))[:2] == (("count", "int", "3"), ("share", "float", "0.5"))


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"count": "x"}, "count='x' is not a whole number"),
        ({"count": "3.5"}, "not a whole number"),
        ({"share": "nan"}, "not a number"),
        ({"eager": "perhaps"}, "not true or false"),
        ({"count": "11"}, "10 at most"),
        ({"cuont": "3"}, "no parameter 'cuont'; it takes count (int, 3)"),
    ],
)
def test_a_wrong_parameter_is_told(mine, params, why):
    with pytest.raises(ControlError) as caught:
        registry.load(mine, params)
    assert caught.value.usage
    assert why in caught.value.stopped


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = (", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1", "defines 0 subclasses"),
        (MINE + "class Other(Policy):\n    pass\n", "defines 2 subclasses"),
        (MINE.replace("class Params:", "class Params:\n        need: int\n"), "it needs need"),
        ("from detshare.ctl.policy.types import Policy\nclass A(Policy):\n    tick_us = -1\n", "its tick_us is -1"),
        ("from detshare.ctl.policy.types import Policy\nclass A(Policy):\n    Params = 3\n", "Params is no dataclass"),
        (
            "from detshare.ctl.policy.types import Policy\n"
            "class A(Policy):\n    def __init__(self):\n        raise OSError('gone')\n",
            "A() raised OSError: gone",
        ),
    ],
)
def test_a_file_that_is_no_policy_is_told(tmp_path, text, why):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    with pytest.raises(ControlError) as caught:
        registry.load(str(path))
    assert why in caught.value.stopped
    assert caught.value.next_step


def test_one_of_two_in_a_file_can_be_named(tmp_path):
    path = tmp_path / "two.py"
    path.write_text(MINE + "class Other(Policy):\n    def __init__(self):\n        super().__init__()\n")
    assert type(registry.load(f"{path}:Other").policy).__name__ == "Other"
    with pytest.raises(ControlError, match="called Third; it has Mine, Other"):
        registry.load(f"{path}:Third")


def test_a_file_is_read_anew_each_time(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    registry.load(str(path))
    path.write_text(MINE.replace("count: int = 3", "count: int = 4   "))
    assert registry.load(str(path)).policy.params.count == 4


def test_there_is_no_such_name_or_file():
    with pytest.raises(ControlError, match="there are slo-aware, tpot-first"):
        registry.load("nosuch")
    for path, private in (("/srv/none.py", ""), ("/tmp/none.py", "/tmp"), ("/var/tmp/a/none.py:A", "/var/tmp")):
        with pytest.raises(ControlError, match="no Python file") as refused:
            registry.load(path)
        assert (f"the service has a {private} of its own" in refused.value.next_step) is bool(private)
