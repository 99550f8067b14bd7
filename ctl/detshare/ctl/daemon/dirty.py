# SPDX-License-Identifier: Apache-2.0
"""What programs write, for who asks the daemon: GET /v1/dirty/PID?after=N. Watched where `daemon.dirty` says so."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web

from detshare.ctl.core.snapshot import Check
from detshare.ctl.daemon.api import SERVICE, HttpError
from detshare.ctl.rm import nvml
from detshare.ebpf.dirty_watch import DirtyWatch
from detshare.ebpf.errors import EbpfError

log = logging.getLogger("detshared.dirty")

_MOST_PID = 4_194_304


class Dirty:
    """The watch of one daemon; `wanted` False: there is none."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._watch: DirtyWatch | None = None
        self._problem: EbpfError | None = None

    async def open(self) -> None:
        """Begins to watch. Where that cannot be, the rest of the daemon goes on without."""
        if not self._wanted:
            return
        try:
            self._watch = await asyncio.to_thread(lambda: DirtyWatch(devices=nvml.architectures()))
        except EbpfError as error:
            self._problem = error
            log.warning("what programs write is not watched: %s", error)

    def tell(self, pid: int, after: int = -1) -> dict[str, Any]:
        """The answer of the API. `watching` False: `why`."""
        if self._watch is None:
            why = "daemon.dirty is not set" if self._problem is None else self._problem.why
            return {"watching": False, "why": why}
        epochs = [each.to_json() for each in self._watch.epochs(pid, after)]
        return {
            "watching": True,
            "interval": self._watch.interval,
            "epochs": epochs,
            "partial": self._watch.notes(),
        }

    def doctor(self) -> list[Check]:
        """A line where it was wanted."""
        if self._problem is not None:
            return [Check("dirty", False, f"not watched: {self._problem.why}", self._problem.advice)]
        if self._watch is None:
            return []
        notes = self._watch.notes()
        return [Check("dirty", True if not notes else None, "; ".join(notes) or "what programs write is watched")]

    async def close(self) -> None:
        """Idempotent."""
        if self._watch is not None:
            await asyncio.to_thread(self._watch.close)


def add(app: web.Application) -> None:
    """Routes of this module."""
    app.router.add_get("/v1/dirty/{pid}", _show)


async def _show(request: web.Request) -> web.Response:
    asked = f"dirty {request.match_info['pid'][:20]}"
    numbers = []
    for text, least in ((request.match_info["pid"], 1), (request.query.get("after", "-1"), -1)):
        digits = text.removeprefix("-")
        if not (digits.isdecimal() and digits.isascii() and len(digits) < 16 and int(text) >= least):
            raise HttpError(400, asked, f"{text[:20]!r} is no number from {least}")
        numbers.append(int(text))
    if numbers[0] > _MOST_PID:
        raise HttpError(400, asked, f"{numbers[0]} is no PID")
    return web.json_response(request.app[SERVICE].dirty.tell(*numbers))
