# SPDX-License-Identifier: Apache-2.0
"""Selecting programs as people name them: by PID, by job, by container, by command."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from detshare.ctl.core import jobs
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import ProcessId

_CONTAINER = re.compile(r"[0-9a-f]{12,64}")
_JOB = "job:"
WHOLE_ID = 64
"""digits of a container's id that leave nothing open"""
_MOST_PID = 4_194_304  # PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h)


class Named(Protocol):
    """What a process is known by: an Opener, a Program."""

    @property
    def id(self) -> ProcessId: ...
    @property
    def command(self) -> str: ...
    @property
    def container(self) -> str: ...


class By(StrEnum):
    """What a WHO names."""

    PID = "pid"
    CONTAINER = "container"
    COMMAND = "command"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed WHO. `pid` is 0 unless `by` is PID or JOB, where it is one of the ranks."""

    text: str
    by: By
    pid: int = 0
    job: str = ""
    """of that rank (jobs.of); empty: it is none"""

    def matches(self, opener: Named) -> bool:
        """Whether it means this process."""
        if self.by is By.PID:
            return opener.id.pid == self.pid
        if self.by is By.JOB:
            return bool(self.job) and jobs.of(opener.id.pid) == self.job
        if self.by is By.CONTAINER:
            return opener.container.startswith(self.text)
        return fnmatch.fnmatchcase(opener.command, self.text)


def parse(who: str) -> Selector:
    """The Selector of a WHO: digits are a PID, `job:` and a PID all ranks of that one's job, 12 to 64 hex digits a
    container id, the rest a command pattern.

    A pattern without * ? [ matches anywhere in the command line. BadRequest where it is empty or no PID can be so
    large; a container id of digits alone must be given with at least 13 of them.
    """
    text = who.strip()
    if not text or "\0" in text or len(text) > 4096:
        raise BadRequest(f"WHO {who[:40]!r} is empty or too long: give a PID, a container id or a command pattern")
    if re.fullmatch(r"(job:)?[0-9]{1,12}", text):
        digits = text.removeprefix(_JOB)
        pid = int(digits)
        if not 0 < pid <= _MOST_PID:
            raise BadRequest(f"{digits} is no PID: they run from 1 to {_MOST_PID}")
        return Selector(text, By.PID, pid) if digits == text else Selector(text, By.JOB, pid, jobs.of(pid))
    if text.startswith(_JOB):
        raise BadRequest(f"{text[:40]!r} names no job: give the PID of one of its ranks, as in job:4242")
    if re.fullmatch(r"[-+][0-9]+", text):
        raise BadRequest(f"{text} is no PID: they run from 1 to {_MOST_PID}")
    if _CONTAINER.fullmatch(text):
        return Selector(text, By.CONTAINER)
    return by_command(text)


def by_command(pattern: str) -> Selector:
    """The Selector of a command pattern, whatever else it might be read as."""
    return Selector(pattern if re.search(r"[*?\[]", pattern) else f"*{pattern}*", By.COMMAND)
