# SPDX-License-Identifier: Apache-2.0
"""A thread that hears the kernel module's events the moment they are sent."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from detshare.ctl.core.driver import DriverError
from detshare.ctl.core.snapshot import Event
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.events import ACTIVITY, FREQUENT, Listener
from detshare.ctl.netlink.glance import Glance
from detshare.ctl.netlink.records import reasons

log = logging.getLogger("detshared.events")

_KEPT: Final = 10_000
_POLL_S: Final = 0.5
"""how soon the thread notices that it is to end"""
_TURN: Final = "turn"


class EventThread:
    """Listens from construction to close(). DriverError, OSError where that cannot begin."""

    def __init__(self, cgroup_name: Callable[[int], str], tell: Callable[[Event], None] | None = None) -> None:
        """`tell` gets events in this thread; without it they are kept for drain()."""
        self.tell = tell
        self.edge: Callable[[int, bool], None] | None = None
        """gets in this thread the PID of each program that begins to work (True) or stops, while `attends`"""
        self.attends = False
        """hear of that, too; counts within half a second"""
        self._working: dict[int, set[int]] = {}
        """PID -> its vCtxs that work"""
        self._heard: deque[Event] = deque(maxlen=_KEPT)
        self._changed = threading.Event()
        self._held: set[object] = set()
        self._cgroup_name = cgroup_name
        self._over = threading.Event()
        self._begun = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kernel-events", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        # pyroute2 keeps a socket for each thread: the one that listens has to be made here
        try:
            listener = Listener(self._cgroup_name)
        except (DriverError, OSError) as error:
            self._failure = error
            return
        finally:
            self._begun.set()
        listener.worth = self._may_be_worth
        try:
            self._listen(listener)
        except (DriverError, OSError, ValueError) as error:
            log.warning("events of the kernel module cannot be read any more: %s", error)
        finally:
            with suppress(OSError):
                listener.close()

    def _listen(self, listener: Listener) -> None:
        while not self._over.is_set():
            listener.attend(self.attends)
            if listener.wait(_POLL_S):
                for event in listener.drain():
                    self._take(event)

    def _take(self, event: Event) -> None:
        if event.kind not in FREQUENT:
            self._changed.set()
            if event.kind == "vctx-gone":  # nothing tells that its holds ended
                self._held -= {(event.data.get("vctx_id"), pause) for pause in (False, True)}
                if event.pid in self._working:
                    self._working[event.pid].discard(int(event.data.get("vctx_id") or 0))
        elif not self._worth(event):
            return
        if self.tell is not None:
            self.tell(event)
        else:
            self._heard.append(event)

    def _may_be_worth(self, kind: str, seen: Glance) -> bool:
        """Whether a frequent event has to be read, so that `_worth` can decide. Asked before those that follow are
        read: what begins to be held counts at once, what ends is taken off by `_worth`."""
        if kind in ACTIVITY:
            self._edge(seen, kind == "kick")
            return False
        which = (seen.vctx_id, kind in ("paused", "resumed"))
        if kind in ("gated", "paused"):
            if seen.reasons & ~genl.DETSHARE_HOLD_TURN:
                self._held.add(which)
                return True
            return False
        return which in self._held

    def _edge(self, seen: Glance, works: bool) -> None:
        """A vCtx began or stopped; the program stops with its last one. One that ends says nothing: the next look
        does."""
        mine = self._working.setdefault(seen.pid, set())
        (mine.add if works else mine.discard)(seen.vctx_id)
        if not mine:
            del self._working[seen.pid]
        if self.edge is not None and (works or not mine):
            self.edge(seen.pid, works)

    def _worth(self, event: Event) -> bool:
        """Whether to tell it: turns, which pass many times a second, are not; what is ordered or runs out is."""
        which = (event.data.get("vctx_id"), event.kind in ("paused", "resumed"))
        if event.kind in ("gated", "paused"):
            why = reasons(int(event.data.get("reasons") or 0))
            if set(why) - {_TURN}:
                self._held.add(which)
                return True
            return False
        if event.kind in ("opened", "resumed") and which in self._held:
            self._held.discard(which)
            return True
        return False

    @property
    def alive(self) -> bool:
        """False: it heard its last; make another one."""
        return self._thread.is_alive()

    def changed(self) -> bool:
        """Whether something came, went or was lost since the last call."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def drain(self) -> list[Event]:
        """What came since the last call and nobody was told."""
        found = []
        with suppress(IndexError):
            while True:
                found.append(self._heard.popleft())
        return found

    def close(self) -> None:
        """Idempotent."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_POLL_S * 4)
