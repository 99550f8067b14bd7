# SPDX-License-Identifier: Apache-2.0
"""docs/use/troubleshooting.md, walked: each message is made to happen here, or by another test, or it is said why not.

What is made here is looked at as a person sees it: the words of the page stand in it, and its next step beside them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import made_daemon
import made_machine
import made_tools
import made_values
import pytest
from elsewhere import ELSEWHERE, NOT_HERE
from stage import DOCTOR, MADE, Stage, makes
from troubles import ROOT, entries, matches, sources, words

ENTRIES = entries()
STATUSES = ("EPERM from a GPU program's first calls", "401", "408")
"""what another program or protocol says, not ours"""
DOCTORS = [message for entry in ENTRIES for message in entry.doctors]
MESSAGES = [message for entry in ENTRIES for message in entry.messages]
assert {each.makes for each in (made_daemon, made_machine, made_tools, made_values)} == {makes}  # they filled MADE


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="detshare-"))
    monkeypatch.setenv("DETSHARE_BOARD_DIR", str(folder / "boards"))
    with monkeypatch.context() as patch:
        yield Stage(folder, patch)
    shutil.rmtree(folder)


def test_every_message_is_walked_once() -> None:
    walked = [*MADE, *ELSEWHERE, *NOT_HERE]
    assert len(set(walked)) == len(walked)
    assert sorted(set(MESSAGES) - set(walked)) == []
    assert sorted(set(walked) - set(MESSAGES)) == []


@pytest.mark.parametrize("message", [*ELSEWHERE, *NOT_HERE])
def test_the_words_of_what_is_not_made_here_are_those_of_the_sources(message: str) -> None:
    if message not in STATUSES:
        assert [each for each in words(message, finely=True) if each not in sources()] == []


def test_each_row_has_a_next_step() -> None:
    assert [entry.name for entry in ENTRIES if not entry.cure] == []


@pytest.mark.parametrize("message", MADE)
def test_a_mistake_is_named_as_the_page_has_it(message: str, stage: Stage) -> None:
    said = MADE[message](stage)
    assert matches(message, said), said


@pytest.mark.parametrize("message", DOCTORS)
def test_doctor_knows_what_the_page_says_it_does(message: str, stage: Stage) -> None:
    DOCTOR.clear()
    MADE[message](stage)
    assert any(matches(message, line) for line in DOCTOR), DOCTOR


def test_the_page_says_of_many_that_doctor_knows_them() -> None:
    assert len(DOCTORS) > 15, DOCTORS


@pytest.mark.parametrize("message", ELSEWHERE)
def test_another_test_makes_it(message: str) -> None:
    for each in ELSEWHERE[message].split(", "):
        path, _, name = each.partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE), each


def test_most_are_made_here() -> None:
    assert len(MADE) > 2 * (len(ELSEWHERE) + len(NOT_HERE)), (len(MADE), len(ELSEWHERE), len(NOT_HERE))
    assert all(len(reason) > 20 for reason in NOT_HERE.values())


def test_a_message_that_nobody_says_would_be_found() -> None:
    assert not matches("there is no process P", "there is a process 5")
    assert [each for each in words("the daemon wants coffee (WHY)") if each not in sources()]
