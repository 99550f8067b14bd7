# SPDX-License-Identifier: Apache-2.0
"""docs/use/module.md: its session with the module, word for word but for the PIDs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from tests.patience import until
from tests.unit.pages import LOOKING, shown, steps
from tests.vm.guest.ctl_sched import Daemon, Workers, ctl, daemon
from tests.vm.guest.kmod_tools import Hog
from tests.vm.guest.sched_tools import family, worker

__all__ = ["daemon", "family", "worker"]  # fixtures

PAGE = "use/module.md"


@pytest.fixture
def holder() -> Iterator[Hog]:
    made = Hog()
    yield made
    made.end()


def test_the_session_is_true(daemon: Daemon, worker: Workers, holder: Hog) -> None:
    told = steps(PAGE)
    limited, member = (re.search(r"(\d+)", command[0])[1] for command in (told[0], told[3]))  # type: ignore[index]
    pids = {limited: str(holder.pid), member: str(worker("nvlatency", "--window", "0.25").pid)}
    assert holder.take(1024)

    def here(text: str) -> str:
        return re.sub(r"\b\d+\b", lambda found: pids.get(found[0], found[0]), text)

    for command, lines in told:
        name, *words = shlex.split(here(command))
        assert name == "detshare-ctl"
        wanted = [here(line) for line in lines]

        def true(words: list[str] = words, wanted: list[str] = wanted) -> bool:
            said = ctl(*words)
            print(said.output)  # shown by pytest where the test fails
            return said.exit_code == 0 and shown(wanted, said.output)

        if LOOKING.search(command):
            until(true)
        else:
            assert true(), command
