# SPDX-License-Identifier: Apache-2.0
"""Programs with a context each, alive at once: none waits for events in the place of others' calls."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from pathlib import Path

from tests.patience import until
from tests.vm.guest.fwd_recorded import MAPPINGS, PROGRAM, SCRIPT, held, host, kernel_log

PROGRAMS = 8
ENTRIES = 2
"""of the queue, that a question for events takes until it is answered"""
QUEUE = 1024
"""entries of the queue; questions take half of them at most"""
USUAL = 64
"""entries of a queue, where QEMU is not asked for more"""


def events(said: Path) -> list[str]:
    return [json.loads(line)["event"] for line in said.read_text().splitlines()]


def test_many_programs_live_at_once(tmp_path: Path) -> None:
    before = held()
    with contextlib.ExitStack() as stack:
        programs: list[subprocess.Popen[bytes]] = []
        for number in range(PROGRAMS):
            said = tmp_path / str(number)
            with said.open("wb") as out:
                programs.append(
                    stack.enter_context(subprocess.Popen([PROGRAM, SCRIPT, "--touch", "--keep"], stdout=out))
                )
            stack.callback(programs[-1].kill)
            until(lambda said=said: "ready" in events(said), said=lambda number=number: f"program {number + 1}")
        now = host()
        assert now["maps"] == PROGRAMS * MAPPINGS
        # else this shows nothing
        assert now["waits"] * ENTRIES > USUAL
        for number in range(PROGRAMS):
            touched = [json.loads(line) for line in (tmp_path / str(number)).read_text().splitlines()][-2]
            assert (touched["event"], touched["wrong"], touched["maps"]) == ("touched", 0, MAPPINGS + 1)
    until(lambda: held() == before)


def test_polls_take_half_of_the_queue_and_are_then_refused() -> None:
    before = held()
    most = QUEUE // 2 // ENTRIES
    files = [os.open("/dev/nvidiactl", os.O_RDWR) for _ in range(most + 10)]
    try:
        refused = []
        for number, file in enumerate(files):
            asked = select.poll()
            asked.register(file, select.POLLIN)
            if asked.poll(0):
                refused.append(number)
        # calls go on
        assert host()["waits"] == most
        assert refused == list(range(most, most + 10))
        assert f"a poll is refused: the queue has room for {most} files" in kernel_log()
    finally:
        for file in files:
            os.close(file)
    until(lambda: held() == before)
