# SPDX-License-Identifier: Apache-2.0
"""docs/use/operations.md: its session is run word for word; what needs root, systemd or a GPU our own parsers read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from builds import ROOT
from pages import blocks, play, steps
from shown_commands import PROGRAMS, parse

PAGE = "use/operations.md"
LINES = [line for block in blocks(PAGE, "") for line in block.splitlines()]
OURS = [words for line in LINES if (words := shlex.split(line.removeprefix("sudo ")))[0] in PROGRAMS]


@pytest.mark.e2e
def test_the_session_is_true(tmp_path: Path) -> None:
    assert len(steps(PAGE)) > 25
    play(PAGE, tmp_path)


def test_there_are_commands_of_ours_that_are_not_run() -> None:
    assert len(OURS) > 8


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_a_command_that_is_not_run_can_be_meant(words: list[str]) -> None:
    parse(PROGRAMS[words[0]], words)


def test_a_wrong_command_would_be_found() -> None:
    for line in ("detshare-ctl set-memory 4242", "detshare-ctl nosuch", "detshare run --lane x -- true"):
        words = line.split()
        with pytest.raises(click.UsageError):
            parse(PROGRAMS[words[0]], words)


def test_the_files_that_it_installs_are_here() -> None:
    named = {word for line in LINES for word in line.split() if word.startswith("packaging/")}
    assert named == {f"packaging/{name}" for name in ("detshare.sysusers", "detshare.toml", "detshared.service")}
    assert all((ROOT / name).is_file() for name in named)


def test_the_units_of_other_pages_are_the_same() -> None:
    """Numbers of this page that code has: the lease, its renewal, the length of the log."""
    from detshare.ctl.backends.module import holds
    from detshare.ctl.policy import guard
    from detshare.ctl.policy.decisions import log

    text = " ".join((ROOT / "docs" / PAGE).read_text(encoding="utf-8").split())
    assert f"{holds.LEASE_S} s after the daemon renewed it last (every {holds._RENEW_S:.0f} s)" in text
    assert f"{guard.LONGEST_SHUT_US / 1e6:.0f} s after it was asked for" in text
    assert (log.SEGMENT_BYTES, log.SEGMENTS) == (1 << 20, 8)
    assert "eight segments of 1 MiB at most" in text
    version = re.search(r'PACKAGE_VERSION="(.*)"', (ROOT / "dkms.conf").read_text())
    assert version is not None
    assert f"detshare/{version[1]}" in text
