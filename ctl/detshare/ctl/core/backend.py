# SPDX-License-Identifier: Apache-2.0
"""The small interface that the daemon, the CLI and policies see of any backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from detshare.ctl.core.driver import DriverError, ProcessId
from detshare.ctl.core.snapshot import Check, Event, Level, Outcome, Snapshot


class BadRequest(ValueError):
    """The request cannot be meant: the message says what was asked and what would be accepted."""


class NeedsModule(DriverError):
    """Only the kernel module can do that, and another backend is in force."""

    def __init__(self, backend: str, lacks: str = "no memory limits") -> None:
        super().__init__(f"backend {backend} holds {lacks}: that takes the kernel module, detshare.ko")


class NoSpatialLane(DriverError):
    """There is no daemon here that serves the spatial lane."""

    def __init__(self, why: str = "this command acts without a daemon") -> None:
        super().__init__(f"the spatial lane is off: {why}")


class Backend(Protocol):
    """Blocking and single-threaded: the daemon calls it from one worker thread.

    `who` selects programs: a PID, a container id (at least 12 hex digits) or a shell pattern matched against the
    command line (see detshare.ctl.core.select). BadRequest where `who` or a value is malformed; a well-formed `who`
    that matches nothing gives an Outcome with nothing changed and a Skip of pid 0.
    """

    @property
    def name(self) -> str: ...

    def look(self, *, enforce: bool = True) -> Snapshot:
        """Find and adopt programs and describe all; with `enforce`, apply what was wished for first."""
        ...

    def set_priority(
        self, who: str, klass: str, weight: int | None = None, floor: float | None = None, tenant: str = ""
    ) -> Outcome:
        """Class high, normal, low or idle. A process without a context gets it when it makes one.

        Among background programs: `weight` (1..1000) is its part of the turns, `floor` (a share, 0..0.5) what it has at
        least while a higher class leaves nothing (None: as its class), `tenant` with whom it has its turns together.
        """
        ...

    def set_weight(self, who: str, weight: int) -> Outcome:
        """GPU time in proportion to `weight` (1..1000) among programs that have one."""
        ...

    def set_slice(self, who: str, slice_us: int, level: Level | None = None) -> Outcome:
        """Raw time slice in microseconds (and level) for every compute TSG."""
        ...

    def pause(self, who: str) -> Outcome: ...

    def resume(self, who: str) -> Outcome: ...

    def preempt(self, who: str) -> Outcome:
        """Take running work off the GPU once, now; it goes on at its next turn."""
        ...

    def release(self, who: str) -> Outcome:
        """Put back what was there before DetShare and forget the program. Memory limits stay: see set_memory."""
        ...

    def set_memory(self, who: str, limit: int | None, gpu: int | None = None) -> Outcome:
        """Limit GPU memory to `limit` bytes; None removes the limit. NeedsModule with any backend but kmod.

        `who` may also be a tenant's name or a cgroup's path (see detshare.ctl.core.accounts). `gpu`: number of one GPU;
        None: each GPU by itself. A limit below present use is legal: nothing is granted until use is below it.
        """
        ...

    def tenant_add(self, name: str) -> Outcome:
        """Make a named tenant. NeedsModule."""
        ...

    def tenant_attach(self, who: str, name: str) -> Outcome:
        """Put programs, and the children they make later, under a tenant that exists. NeedsModule."""
        ...

    def tenant_del(self, name: str) -> Outcome:
        """Forget a tenant and its limits; its programs go on without them. NeedsModule."""
        ...

    def set_sm(self, who: str, percent: int, timeout: float | None = None) -> Outcome:
        """Confine programs of the spatial lane to `percent` (1..100) of the SMs; 100: all.

        Returns when nothing that they launched before runs on others any more; ControlError after `timeout` seconds
        (the change stands then). NoSpatialLane.
        """
        raise NoSpatialLane

    def bind(self, who: str, pctx: str, timeout: float | None = None) -> Outcome:
        """Bind programs to a pCtx of their GPU's pool: a set of SMs in the spatial lane, a ceiling in the temporal one.

        Returns as set_sm does. NoSpatialLane.
        """
        raise NoSpatialLane

    def set_busy(self, who: str, sms: int | None) -> Outcome:
        """What programs of the spatial lane have while a higher class is active: the largest set of at most `sms` SMs,
        0 to hold, None as their class says. NoSpatialLane."""
        raise NoSpatialLane

    def hold(self, who: str, lease_s: int | None = None) -> Outcome:
        """Let no new work of programs begin, until `resume` or `release`; what runs on the GPU goes on.

        In the spatial lane they stop at the next kernel boundary; with backend kmod their doorbells are shut.
        `lease_s`: seconds after which they are let go; None: as long as the daemon lives. NoSpatialLane.
        """
        raise NoSpatialLane

    def set_bucket(self, who: str, rate_us: int | None, burst_us: int | None = None) -> Outcome:
        """Give an account `rate_us` microseconds of GPU time a second, None: as much as it gets. NeedsModule."""
        raise NeedsModule(self.name, "no buckets of GPU time")

    def set_class(self, klass: str, change: Mapping[str, object] | None) -> Outcome:
        """Set parts of a class's row (weight, slice_us, level, floor_permille, turn_us, gpu);
        None: ours as by default, another one is forgotten. NeedsModule."""
        raise NeedsModule(self.name, "no rows of classes")

    def set_ceiling(self, who: str, percent: int) -> Outcome:
        """Confine compute work to `percent` (1..100) of the TPCs; 100: all. NeedsModule."""
        raise NeedsModule(self.name, "no TPC ceilings")

    def set_reserve(self, sms: int | None) -> Outcome:
        """Keep `sms` SMs of each GPU for class high of the spatial lane; None: keep none. NoSpatialLane."""
        raise NoSpatialLane

    def set_reflex(self, klass: str, change: Mapping[str, str | int | None]) -> Outcome:
        """Set what a class means in the spatial lane: `idle`, `busy` (sets of SMs, or "hold"), `linger_us`,
        `floor_permille`; what is None or absent is as by default. NoSpatialLane."""
        raise NoSpatialLane

    def alive(self, process: ProcessId) -> bool:
        """Whether a process of the last look still lives. Quick, and the one method that any thread may call."""
        ...

    def doctor(self) -> list[Check]: ...

    def drain_events(self) -> Sequence[Event]:
        """Events since the last call, oldest first."""
        ...

    def listen(self, tell: Callable[[Event], None], edge: Callable[[int, bool], None] | None = None) -> None:
        """Call `tell`, from any thread, with each event of the kernel module at once instead of keeping it for
        drain_events(). Backends without such events do nothing.

        `edge`: called the same way, while `attend(True)` holds, with the PID of each program that begins to work (True)
        or stops (False).
        """
        return None

    def attend(self, on: bool) -> None:
        """Have `edge` of `listen` called, or not any more. It costs each burst of launches a page fault. Backends that
        cannot tell do nothing."""
        return None

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when greet() or a look would find something new. Backends that cannot tell do
        nothing."""
        return None

    def greet(self) -> None:
        """Give contexts that were just made what was wished for them; what a look would do, without looking. Quick."""
        return None

    def stand(self, rules: Mapping[str, str]) -> None:
        """Command pattern -> class of programs of which nobody asked anything; the first that matches counts."""
        return None

    def close(self, restore: bool = True) -> None:
        """Stop; with `restore`, first put every program back as it was found. Idempotent.

        A one-shot command closes with restore=False: what it set stands, and the journal in the run directory
        lets a later `release` undo it.
        """
        ...
