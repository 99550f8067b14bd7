# SPDX-License-Identifier: Apache-2.0
"""Standard streams that are closed or full: what detshare-vm opens must not take their place."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTHING = "from detshare.tools.vm import cli, prepare; prepare.plan = lambda *_, **__: []; cli.main()"
"""detshare-vm, whose `prepare` has all that it wants"""


def detshare_vm(words: str, streams: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {words} {streams}', "sh", sys.executable, "-c", NOTHING]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", ["--help", "prepare --json", "clean"])
@pytest.mark.parametrize(
    ("streams", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_an_answer_that_cannot_be_written_is_told(words: str, streams: str, why: str) -> None:
    done = detshare_vm(words, streams)
    assert done.returncode == 1
    assert done.stderr.startswith(f"detshare-vm: write the answer: standard output takes nothing more ({why})\nnext: ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("streams", ["2>&-", "<&-", "<&- 2>&-"])
def test_without_the_others_the_answer_is_the_same(streams: str) -> None:
    done = detshare_vm("prepare --json", streams)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_what_is_said_never_goes_to_standard_output_instead() -> None:
    said = "import sys; from detshare.tools.vm import cli, say; cli.hold_standard_streams(); say.warn('a word')"
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", said]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
