# SPDX-License-Identifier: Apache-2.0
"""A policy at work, on a thread of its own, with a limit on the time of each hook.

A hook that raises or runs over its limit ends the policy here: what it decided before stands, whoever runs it is told
why, and its thread is left behind. Nobody but that thread waits for a policy.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from detshare.ctl.policy.guard import MOST_ACTIONS
from detshare.ctl.policy.types import HOOKS, Policy, Snapshot

__all__ = ["LIMIT_S", "Answer", "Call", "Host", "overridden"]

LIMIT_S: Final = 0.05
"""processor time of one hook, its actions taken out of whatever it returned"""
WAIT: Final = 4
"""times as long may pass in a hook that waits for something"""
STARVED: Final = 40
"""times as long may pass in one that could run and gets no processor"""
_SLICES: Final = 10
"""of the limit, in which time is counted: a stall of this process or machine counts for two of them"""


class Call(NamedTuple):
    """One hook to call."""

    hook: str
    now: Snapshot
    tenant: str | None
    """None for on_tick"""


@dataclass(slots=True)
class Answer:
    """What a hook returned, unchecked. `seconds`: how long it took."""

    call: Call
    actions: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    problem: str = ""
    """why the policy failed in it"""


class _Abandoned(BaseException):
    """Raised in the thread of a policy that overran its limit, at its next line of Python."""


def overridden(policy: Policy) -> frozenset[str]:
    """Hooks that the policy has of its own; the others need not be called."""
    return frozenset(name for name in HOOKS if getattr(type(policy), name, None) is not getattr(Policy, name))


class Host:
    """Calls the hooks of one policy. For one thread."""

    def __init__(self, policy: Policy, limit_s: float = LIMIT_S) -> None:
        self.policy = policy
        self.hooks = overridden(policy)
        self.failure = ""
        """why it is not called any more"""
        self.slowest = 0.0
        """seconds"""
        self.calls = 0
        self._limit = limit_s
        self._todo: Sequence[Call] = ()
        self._answers: list[Answer] = []
        self._begun = 0
        """number of the call that runs, from 1"""
        self._cpu_begun = 0.0
        """processor time of the thread when that began"""
        self._waits = False
        """it was late for waiting, not for running"""
        self._go = threading.Event()
        self._done = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def ask(self, calls: Sequence[Call]) -> list[Answer]:
        """The answers to all calls, or to those up to one that failed: the last answer says then why."""
        calls = [call for call in calls if call.hook in self.hooks]
        if self.failure or not calls:
            return []
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="policy", daemon=True)
            self._thread.start()
        self._answers, self._begun = [], 0
        self._todo = calls
        self._done.clear()
        self._go.set()
        late = self._wait()
        answers = list(self._answers)
        self.calls += len(answers)
        if late:
            call = calls[min(late, len(calls)) - 1]
            told = "did not return" if self._waits else f"ran for more than {self._limit * 1000:g} ms"
            self.failure = f"{call.hook} {told}" + (f" within {WAIT * self._limit * 1000:g} ms" if self._waits else "")
            answers = [*answers[: late - 1], Answer(call, seconds=self._limit, problem=self.failure)]
            self._over = True
            self.interrupt()
        elif answers and answers[-1].problem:
            self.failure = answers[-1].problem
            self.close()
        self.slowest = max([self.slowest, *(answer.seconds for answer in answers)])
        return answers

    def _wait(self) -> int:
        """0 when all is done, else the number of the call that took too long."""
        part = self._limit / _SLICES
        running, spent = 0, 0.0
        while True:
            began = time.monotonic()
            if self._done.wait(part):
                return 0
            if self._begun != running:
                running, spent = self._begun, 0.0
                continue
            spent += min(time.monotonic() - began, 2 * part)
            if spent >= self._limit and self._is_late(spent):
                return max(1, running)

    def _is_late(self, spent: float) -> bool:
        """Whether a hook that began `spent` seconds ago had its time, on a machine that has others to run too."""
        thread = self._thread
        assert thread is not None
        assert thread.ident is not None
        try:
            used = time.clock_gettime(time.pthread_getcpuclockid(thread.ident)) - self._cpu_begun
            state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it is ending
            return spent >= WAIT * self._limit
        self._waits = used < self._limit
        return not self._waits or spent >= (STARVED if state == "R" else WAIT) * self._limit

    def _run(self) -> None:
        with contextlib.suppress(_Abandoned):
            while True:
                self._go.wait()
                self._go.clear()
                if self._over:
                    return
                answers = self._answers
                for number, call in enumerate(self._todo, 1):
                    self._cpu_begun = time.thread_time()
                    self._begun = number
                    answer = self._call(call)
                    if self._over:
                        return
                    answers.append(answer)
                    if answer.problem:
                        break
                self._done.set()

    def _call(self, call: Call) -> Answer:
        answer = Answer(call)
        began = time.monotonic()
        try:
            hook = getattr(self.policy, call.hook)
            found = hook(call.now) if call.tenant is None else hook(call.now, call.tenant)
            if found is not None:
                answer.actions = list(itertools.islice(found, MOST_ACTIONS + 1))
            if len(answer.actions) > MOST_ACTIONS:
                answer.actions, answer.problem = [], f"{call.hook} returned more than {MOST_ACTIONS} actions"
        except _Abandoned:
            raise
        except BaseException as error:  # noqa: BLE001  SystemExit of a policy does not end its host
            answer.problem = f"{call.hook} raised {type(error).__name__}: {_text(error)}"
        answer.seconds = time.monotonic() - began
        return answer

    def interrupt(self) -> bool:
        """End an abandoned thread at its next line of Python; whether it still lives. Call it again while it does."""
        thread = self._thread
        if thread is None or not thread.is_alive() or thread.ident is None:
            return False
        if self._over:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned))
            self._go.set()
        return True

    def close(self) -> None:
        """No more calls. The thread ends by itself."""
        self._over = True
        self.failure = self.failure or "it was replaced"
        self._go.set()


def _text(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())[:300]
    except Exception:  # noqa: BLE001  a __str__ of the policy's own
        return "(no text)"
