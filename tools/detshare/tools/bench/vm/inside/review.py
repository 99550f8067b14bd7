# SPDX-License-Identifier: Apache-2.0
"""Guest tests as tricks: each on the module of before the review's mends, then on today's; which of them failed."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from detshare.tools.bench.vm.inside import guest

_PATIENCE_S = 240.0
_HOOKS = Path("/proc/sys/kernel/ftrace_enabled")
_PYTEST = (
    *("-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-o", "addopts=", "-rA", "--tb=no"),
    *("--strict-markers", "--import-mode=importlib"),
)
_OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR) (\S+::.*?)(?: - (.*))?$")


def _load(module: str) -> None:
    """A fresh one; '' is today's."""
    guest.unload()
    # a trick of before may have switched off what all modules hook with
    _HOOKS.write_text("1", encoding="ascii")
    if not module:
        guest.load()
        return
    done = subprocess.run(["insmod", module], capture_output=True, text=True, check=False)
    if done.returncode:
        raise guest.GuestError(f"insmod {module}: {done.stderr.strip()}")


def _play(run: str, case: str, tests: list[str]) -> None:
    """A line for each test; one for all where they do not come to an end."""
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *tests],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
            env={**os.environ, "COLUMNS": "1000"},  # so that a reason is not cut off
        )
    except subprocess.TimeoutExpired:
        guest.say(event="test", run=run, case=case, test=" ".join(tests), outcome="ENDLESS", why=f"{_PATIENCE_S:g} s")
        return
    found = [match.groups() for line in done.stdout.splitlines() if (match := _OUTCOME.match(line))]
    if not found and done.returncode < 0:
        guest.say(
            event="test", run=run, case=case, test=" ".join(tests), outcome="DIED", why=f"signal {-done.returncode}"
        )
    elif not found:
        raise guest.GuestError(f"no test of {case} ran: {done.stdout[-800:]}{done.stderr[-400:]}")
    for outcome, test, why in found:
        guest.say(event="test", run=run, case=case, test=test, outcome=outcome, why=why or "")


def _body() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="example: review --before /mnt/detshare.ko --case 8=tests/vm/guest/kmod_far.py"
    )
    parser.add_argument("--before", required=True, help="the module of before")
    parser.add_argument("--case", action="append", required=True, help="NAME=TEST[ TEST...]")
    parser.add_argument(
        "--now-only", action="append", default=[], help="NAME of one that the module of before is not asked"
    )
    asked = parser.parse_args()
    # today's first: a trick that works may leave the guest in any state
    for run, module in (("now", ""), ("before", asked.before)):
        for each in asked.case:
            case, _, tests = each.partition("=")
            if module and case in asked.now_only:
                continue
            _load(module)
            _play(run, case, tests.split())
        if not module:
            guest.say(event="left", **guest.settled(5.0))


if __name__ == "__main__":
    guest.main(_body)
