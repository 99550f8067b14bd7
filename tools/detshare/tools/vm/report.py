# SPDX-License-Identifier: Apache-2.0
"""What a person is told about a run that did not simply end with its command's exit code."""

from __future__ import annotations

from pathlib import Path

from detshare.tools.vm.machine import TIMED_OUT, Outcome
from detshare.tools.vm.say import warn

_TAIL = 40  # lines of the kernel log when time ran out or the guest vanished
_BEFORE = 10  # lines before the first fault
_MOST = 400  # lines from there on


def excerpt(outcome: Outcome) -> list[str]:
    """The lines of the kernel log that matter for this outcome."""
    if outcome.splat_at is not None:
        start = max(0, outcome.splat_at - _BEFORE)
        lines = outcome.log[start : start + _MOST]
        left = len(outcome.log) - start - len(lines)
        return [*lines, f"... and {left} lines more"] if left > 0 else lines
    return outcome.log[-_TAIL:]


def report(outcome: Outcome, log: Path | None) -> None:
    """Tells on stderr why the exit code is not the command's, with the kernel log; nothing when it is."""
    if outcome.trouble is None:
        return
    warn(outcome.trouble)
    what = "the kernel log from the fault on" if outcome.splat_at is not None else "the end of the kernel log"
    warn(f"{what}:")
    for line in excerpt(outcome):
        print_line(line)
    whole = f"the whole kernel log is in {log}" if log is not None else "for the whole kernel log: --log FILE"
    warn(f"{outcome.trouble}\nnext: {whole}" + ("; for more time: --timeout S" if outcome.status == TIMED_OUT else ""))


def print_line(line: str) -> None:
    """One line of the kernel log on stderr, with nothing in it that a terminal would obey."""
    shown = "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in line)
    warn(f"| {shown}")
