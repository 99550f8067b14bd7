# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko tells by multicast, as events for people."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from pyroute2.netlink.exceptions import NetlinkError

from detshare.ctl.core import sizes
from detshare.ctl.core.driver import NotAllowed
from detshare.ctl.core.snapshot import Event
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.errors import ModuleAbsent, told
from detshare.ctl.netlink.glance import Glance, glance, messages
from detshare.ctl.netlink.records import DENIALS, KINDS, EventRow, reasons, record

NAMES: Final = {
    genl.DETSHARE_CMD_VCTX_NEW: "vctx-new",
    genl.DETSHARE_CMD_VCTX_GONE: "vctx-gone",
    genl.DETSHARE_CMD_TSG_NEW: "tsg-new",
    genl.DETSHARE_CMD_TSG_GONE: "tsg-gone",
    genl.DETSHARE_CMD_REFUSED: "refused",
    genl.DETSHARE_CMD_LIMIT_CHANGED: "limit-changed",
    genl.DETSHARE_CMD_DRIVER_UP: "driver-up",
    genl.DETSHARE_CMD_DRIVER_DOWN: "driver-down",
    genl.DETSHARE_CMD_KICK: "kick",
    genl.DETSHARE_CMD_QUIET: "quiet",
    genl.DETSHARE_CMD_GATED: "gated",
    genl.DETSHARE_CMD_OPENED: "opened",
    genl.DETSHARE_CMD_PAUSED: "paused",
    genl.DETSHARE_CMD_RESUMED: "resumed",
    genl.DETSHARE_CMD_LEASE_ENDED: "lease-ended",
    genl.DETSHARE_CMD_DENIED: "denied",
}
FREQUENT: Final = frozenset({"kick", "quiet", "gated", "opened", "paused", "resumed"})
"""events that turns make many times a second"""
ACTIVITY: Final = frozenset({"kick", "quiet"})
"""those of the group `activity`"""
_FREQUENT: Final = {command: name for command, name in NAMES.items() if name in FREQUENT}
_BUFFER: Final = 4 << 20
"""bytes of events that may wait while nobody reads"""
_PATIENCE_S: Final = 0.2
_MOST_ABSENT: Final = 1000
_MOST: Final = 1 << 16
"""bytes of one reading, which is one message of the kernel"""
_AT_ONCE: Final = 2000
"""readings in one go: who drains what never ends has to return at times"""


class Numbers:
    """Which numbers of a group have not come. Two processors may send in another order than they took their numbers."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._absent: dict[int, float] = {}
        self._skipped = 0

    def take(self, number: int, now: float) -> None:
        """An event came, at `now` (monotonic seconds)."""
        if self._last is None or number > self._last:
            first = number if self._last is None else self._last + 1
            missing = range(max(first, number - _MOST_ABSENT), number)
            self._skipped += missing.start - first
            self._absent.update(dict.fromkeys(missing, now))
            self._last = number
        else:
            self._absent.pop(number, None)

    def lost(self, now: float) -> int:
        """How many are lost since the last call: those that did not come for a while."""
        gone = [number for number, since in self._absent.items() if now - since > _PATIENCE_S]
        for number in gone:
            del self._absent[number]
        skipped, self._skipped = self._skipped, 0
        return len(gone) + skipped


class Listener:
    """Membership in the group `events`. For one thread; use as a context."""

    def __init__(self, cgroup_name: Callable[[int], str] = str, *, activity: bool = False) -> None:
        """`cgroup_name`: number to path. `activity`: kick and quiet too. ModuleAbsent, NotAllowed, OSError."""
        self._cgroup_name = cgroup_name
        self._numbers = [Numbers(), Numbers()]
        self._attends = False
        self.worth: Callable[[str, Glance], bool] | None = None
        """asked of each event of a FREQUENT kind: those that are not worth it are counted and not read"""
        with told("listen to the kernel module"):
            try:
                self._socket = genl.DetShare(rcvbuf=_BUFFER)
                self._socket.add_membership(genl.DETSHARE_MCGRP_EVENTS)
                self.attend(activity)
            except NetlinkError as error:
                if error.code == errno.ENOENT:
                    raise ModuleAbsent("detshare.ko is not loaded, so nothing tells events") from None
                raise
            except PermissionError:
                raise NotAllowed("the kernel module's events are for root only (CAP_SYS_ADMIN)") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def attend(self, on: bool) -> None:
        """Hear kick and quiet too, or not any more. While anybody does, the kernel looks at all that run. OSError."""
        if on == self._attends:
            return
        if on:
            self._numbers[True] = Numbers()  # what came meanwhile was not for us
            self._socket.add_membership(genl.DETSHARE_MCGRP_ACTIVITY)
        else:
            self._socket.drop_membership(genl.DETSHARE_MCGRP_ACTIVITY)
        self._attends = on

    def wait(self, seconds: float | None = None) -> bool:
        """Until there is something to drain; False when the time is over."""
        readable = select.poll()
        readable.register(self._socket.fileno(), select.POLLIN)
        return bool(readable.poll(None if seconds is None else seconds * 1000))

    def drain(self) -> list[Event]:
        """What came since the last call, oldest first; a loss is an event of its own."""
        found: list[Event] = []
        receive = self._socket.recv  # looked up once: pyroute2 hands it on
        sift = self._sifter(self.worth) if self.worth is not None else bytes
        for _ in range(_AT_ONCE):
            try:
                data = sift(receive(_MOST, socket.MSG_DONTWAIT))
            except BlockingIOError:
                lost = sum(numbers.lost(time.monotonic()) for numbers in self._numbers)
                if lost:
                    found.append(Event(time.time(), "lost", None, f"{lost} event(s) of the kernel module were lost"))
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                # the kernel dropped what this socket had no room for; the gap in the numbers tells how many
                continue
            if not data:
                continue
            with told("read events of the kernel module"):
                for message in self._socket.marshal.parse(data):
                    if message["header"]["type"] == self._socket.prid:
                        found += self._take(record(EventRow, message))
        return found

    def _sifter(self, worth: Callable[[str, Glance], bool]) -> Callable[[bytes], bytes]:
        """Takes away the frequent events that nobody wants; these are counted all the same."""
        family, now = self._socket.prid, time.monotonic()

        def sift(data: bytes) -> bytes:
            whole = True
            kept = []
            for begin, end, kind, command in messages(data):
                name = _FREQUENT.get(command)
                if name is not None and kind == family:
                    seen = glance(data, begin, end, command)
                    if not worth(name, seen):
                        self._numbers[name in ACTIVITY].take(seen.seq, now)
                        whole = False
                        continue
                kept.append((begin, end))
            return data if whole else b"".join(data[begin:end] for begin, end in kept)

        return sift

    def _take(self, row: EventRow) -> list[Event]:
        name = NAMES.get(row.cmd)
        self._numbers[name in ACTIVITY].take(row.seq, time.monotonic())  # each group counts by itself
        return [event(row, self._cgroup_name)] if name is not None else []


def event(row: EventRow, cgroup_name: Callable[[int], str] = str) -> Event:
    """An event of the kernel as people read it; everything that it said is in `data`, and `late_us`, how long it took
    to come here from the moment that it tells of."""
    said = {name: value for name in EventRow.__slots__ if (value := getattr(row, name)) not in (None, "")}
    kind = NAMES[said.pop("cmd")]
    late_ns = time.monotonic_ns() - row.time
    when = time.time() - late_ns / 1e9
    if row.kind is not None:
        said["kind"] = KINDS.get(row.kind, str(row.kind))
    data = {"source": "kernel", "late_us": late_ns / 1e3, **said}
    return Event(when, kind, row.pid, _text(kind, row, cgroup_name), data)


def _text(kind: str, row: EventRow, cgroup_name: Callable[[int], str]) -> str:
    gpu = "" if row.gpu is None else f" on GPU {row.gpu}"
    match kind:
        case "vctx-new" | "vctx-gone":
            done = "made a client or its first device" if kind == "vctx-new" else "client ended"
            return f"{row.comm or '-'}: {done}{gpu} (vCtx {row.vctx_id}, client {row.client or 0:#x})"
        case "tsg-new" | "tsg-gone":
            done = "made" if kind == "tsg-new" else "freed"
            return f"channel group {row.handle or 0:#x} {done}{gpu} (vCtx {row.vctx_id}, engine {row.engine or 0:#x})"
        case "refused":
            account = _account(row, cgroup_name)
            return (
                f"{row.comm or '-'}: {sizes.text(row.asked)} refused{gpu}: {account} uses {sizes.text(row.used)} of "
                f"{sizes.text(row.limit)}"
            )
        case "limit-changed":
            now = "has no memory limit any more" if row.limit is None else f"memory limit {sizes.text(row.limit)}"
            return f"{_account(row, cgroup_name)}{gpu}: {now}, uses {sizes.text(row.used)}"
        case "kick" | "quiet" | "gated" | "opened" | "paused" | "resumed":
            return f"{_doing(kind, row)}{gpu} (vCtx {row.vctx_id})"
        case "lease-ended":
            return f"{_account(row, cgroup_name)}: nobody renewed its hold, so it was let go"
        case "denied":
            why = DENIALS.get(row.denial if row.denial is not None else -1, "unknown reason")
            answer = f"status {row.status:#x}" if row.status else "done nothing"
            times = f"{row.count or 1} time(s)"
            return f"{row.comm or '-'}: command {row.command or 0:#x} denied ({why}; {answer}), {times}"
        case _:
            state = "is loaded and hooked" if kind == "driver-up" else "is going; everything of it is forgotten"
            return f"driver {row.driver_version or '?'} {state}"


def _doing(kind: str, row: EventRow) -> str:
    idle = f"{(row.idle_ns or 0) / 1e6:.1f} ms"
    why = ", ".join(reasons(row.reasons or 0))
    match kind:
        case "kick":
            by = f" by PID {row.by}" if row.by not in (None, row.pid) else ""
            return f"launched work after {idle}{by}"
        case "quiet":
            return f"quiet for {idle}"
        case "gated":
            return f"launches wait ({why})"
        case "opened":
            return "launches go on"
        case "paused":
            return f"channels are off the run list ({why})"
        case _:
            return "channels are on the run list again"


def _account(row: EventRow, cgroup_name: Callable[[int], str]) -> str:
    name: Any = {0: row.pid, 1: None, 2: row.tenant}.get(row.kind if row.kind is not None else 0)
    if row.kind == genl.DETSHARE_KIND_CGROUP:
        name = cgroup_name(row.cgroup_id or 0)
    return f"{KINDS.get(row.kind if row.kind is not None else 0, 'account')} {name}"
