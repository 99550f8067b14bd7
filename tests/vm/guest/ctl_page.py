# SPDX-License-Identifier: Apache-2.0
"""docs/use/module.md: its session with the module, word for word but for the PIDs."""

from __future__ import annotations

import re
import shlex

from tests.unit.pages import LOOKING, shown, steps
from tests.vm.guest.ctl_sched import Daemon, Workers, ctl, daemon
from tests.vm.guest.kmod_tools import Hog
from tests.vm.guest.sched_tools import family, worker

__all__ = ["daemon", "family", "worker"]  # fixtures

PAGE = "use/module.md"
LOOKS = 20
"""what a command shows that only looks may need the daemon's next look"""


def test_the_session_is_true(daemon: Daemon, worker: Workers) -> None:
    told = steps(PAGE)
    limited, member = (command.split()[word] for command, word in ((told[0][0], 2), (told[3][0], 4)))
    # in the page's order of PIDs
    pids = {member: str(worker("nvlatency", "--window", "0.25").pid)}
    holder = Hog()
    try:
        pids[limited] = str(holder.pid)
        assert holder.take(1024)
        play(told, pids)
    finally:
        holder.end()


def play(told: list[tuple[str, list[str]]], pids: dict[str, str]) -> None:
    def here(text: str) -> str:
        return re.sub(r"\b\d+\b", lambda found: pids.get(found[0], found[0]), text)

    for command, lines in told:
        name, *words = shlex.split(here(command))
        assert name == "detshare-ctl"
        wanted = [here(line) for line in lines]

        for _ in range(LOOKS if LOOKING.search(command) else 1):
            said = ctl(*words)
            if said.exit_code == 0 and shown(wanted, said.output):
                break
        else:
            raise AssertionError(f"$ {command}\n{said.output}\nis not\n" + "\n".join(wanted))
