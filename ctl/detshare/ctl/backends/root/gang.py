# SPDX-License-Identifier: Apache-2.0
"""Several programs off their GPUs at one moment: all are made ready, then the driver is told from a thread each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Final

from detshare.ctl.backends.root.actuator import Actuator
from detshare.ctl.backends.root.looking import FAILURES
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Program, TsgChange

__all__ = ["MOST", "together"]

MOST: Final = 64
"""programs: each has a thread, and duplicates of its descriptors, for as long as the driver needs"""


def together(
    actuator: Actuator, programs: Sequence[Program], leave: Callable[[ProcessId], None]
) -> tuple[dict[ProcessId, list[TsgChange]], float]:
    """Pause them, after each was told to `leave` its turns.

    Those that are off, and the seconds from the first one's call of the driver until the last one's answer.

    Who is not among them runs as before: one alone tells why it cannot be paused. What is no refusal of the driver is
    raised, and all run again.
    """
    changes: dict[ProcessId, list[TsgChange]] = {}
    switches: dict[ProcessId, Callable[[], None]] = {}
    try:
        with ExitStack() as stack:
            for program in programs:
                try:
                    leave(program.id)
                    made = stack.enter_context(actuator.ready(program.id, program.tsgs))
                except FAILURES:
                    _let(actuator, program.id)
                else:
                    changes[program.id], switches[program.id] = made
            with ThreadPoolExecutor(max(1, len(switches)), "gang") as pool:
                begun = time.monotonic()
                answers = {process: pool.submit(switch) for process, switch in switches.items()}
            seconds = time.monotonic() - begun
        for process, answer in answers.items():
            try:
                answer.result()
            except FAILURES:
                del changes[process]
                _let(actuator, process)
    except BaseException:
        for program in programs:
            _let(actuator, program.id)
        raise
    return changes, seconds


def _let(actuator: Actuator, process: ProcessId) -> None:
    with suppress(*FAILURES):
        actuator.resume(process)
