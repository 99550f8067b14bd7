# SPDX-License-Identifier: Apache-2.0
"""docs/develop/newcomer.md: each answer is a path that is there."""

from __future__ import annotations

import re

import pytest
from builds import ROOT

ROWS = [
    (question.strip(), answer)
    for question, answer in re.findall(
        r"^\| (.*\?) \| (.*) \|$", (ROOT / "docs/develop/newcomer.md").read_text(), re.MULTILINE
    )
]


def test_there_are_twenty_questions() -> None:
    assert len(ROWS) == 20


@pytest.mark.parametrize(("question", "answer"), ROWS)
def test_each_path_is_there(question: str, answer: str) -> None:
    words = re.findall(r"`([^`]+)`", answer)
    paths = [word for word in words if "/" in word or word == "Kbuild"]
    assert paths, question
    for path in paths:
        assert (ROOT / path).exists(), path
    for name in re.findall(r"`(ds_\w+)`", answer):
        assert any(name in (ROOT / path).read_text() for path in paths)
    beside = [word for word in words if re.fullmatch(r"\w+\.c", word)]
    assert all((ROOT / paths[0]).with_name(word).exists() for word in beside)
