# SPDX-License-Identifier: Apache-2.0
"""What other threads ask of the engine's, in the order in which they asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from detshare.ctl.core.errors import ControlError

__all__ = ["Commands"]

T = TypeVar("T")


@dataclass(slots=True)
class _Command(Generic[T]):
    do: Callable[[], T]
    done: Future[T]


class Commands:
    """`ask` may be called by any thread, all else by one."""

    def __init__(self) -> None:
        self._waiting: deque[_Command[Any]] = deque()

    def ask(self, do: Callable[[], T], over: bool) -> Future[T]:
        """`over`: nobody works them off any more."""
        command: _Command[T] = _Command(do, Future())
        if over:
            command.done.set_exception(ControlError("ask the policy", "detshared is stopping", "start it again"))
        else:
            self._waiting.append(command)
        return command.done

    def obey(self) -> None:
        """Do what people asked."""
        while self._waiting:
            command = self._waiting.popleft()
            if not command.done.set_running_or_notify_cancel():
                continue  # who asked gave up before it began
            try:
                command.done.set_result(command.do())
            except Exception as error:  # noqa: BLE001  told to who asked
                command.done.set_exception(error)
