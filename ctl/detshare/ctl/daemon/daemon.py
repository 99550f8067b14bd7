# SPDX-License-Identifier: Apache-2.0
"""detshared: looks at the machine over and over, keeps programs as asked, and answers on a UNIX socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from detshare.ctl.backends.spatial.pool import Pool
from detshare.ctl.backends.verbs import explain
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.config import Config
from detshare.ctl.core.errors import ControlError, Stopping
from detshare.ctl.core.snapshot import Check, Event, Outcome, Snapshot
from detshare.ctl.core.verbs import VERBS, describe, request
from detshare.ctl.daemon import logs, metrics
from detshare.ctl.daemon.access import Access, Caller
from detshare.ctl.daemon.api import HttpError
from detshare.ctl.daemon.dirty import Dirty
from detshare.ctl.daemon.launched import Launched
from detshare.ctl.daemon.reports import Reports
from detshare.ctl.daemon.requests import Table
from detshare.ctl.oneshot import Built, Guard, build_backend, configuration_check, machine_checks, start_guardian
from detshare.ctl.policy.apply import Request
from detshare.ctl.policy.service import PolicyService
from detshare.ctl.policy.view import pools

log = logging.getLogger("detshared")

VERB_SECONDS: Final = 60.0
"""how long a request waits for the driver before it is answered with an error"""
_OVERDUE: Final = f"the driver did not answer within {VERB_SECONDS:.0f} s; it may still happen"
CLOSE_SECONDS: Final = 30.0
"""how long restoring may take at the end before the guardian is left to do it"""
EVENTS_KEPT: Final = 1000
TOGETHER_S: Final = 0.02
"""a context is made of many objects: how long after the first that was seen early the look begins"""
START_SECONDS: Final = 3.0
"""how long a program that starts under `detshare run` may wait for its class"""
T = TypeVar("T")


class Daemon:
    """One backend on one worker thread, its last snapshot, and those who listen. Implements `api.Service`."""

    def __init__(
        self,
        run_dir: Path,
        interval: float,
        guard: Guard | None,
        spatial: bool = False,
        config: Config = Config(),  # noqa: B008  frozen
    ) -> None:
        """`spatial`: serve the spatial lane too."""
        self.config = config
        self.unread: Callable[[], Sequence[str]] = tuple
        self.access = Access(config.access)
        self._pool = Pool(config.pool)
        self._run_dir = run_dir
        self.interval = interval
        self._guard = guard
        self._started = time.monotonic()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="backend")
        self._built: Built | None = None
        self._why = ""
        self._spatial = spatial
        self._no_spatial: ControlError | None = None
        self._woken = asyncio.Event()
        self._turn = threading.Lock()
        """of who works with the backend: the worker, or for a moment the thread that hears of a new context"""
        self._early_due = False
        """a new context waits for the worker"""
        self._ended = False
        self._snapshot: Snapshot | None = None
        self._look_cpu = 0.0
        """seconds of CPU that the last look took"""
        self._failure = ""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self.requests = Table()
        self.reports = Reports(self.requests)
        self.counters = metrics.Counters()
        self.registry = metrics.registry(lambda: self._snapshot, self.counters, self._policy_status, self.requests)
        self._policy: PolicyService | None = None
        self.dirty = Dirty(config.daemon.dirty)
        self._launched = Launched(config.daemon.launches)

    async def _work(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._in_turn, job)

    def _in_turn(self, job: Callable[[], T]) -> T:
        """A job with the backend, which one thread at a time may have."""
        with self._turn:
            if self._ended:  # whatever it did would stay, with nobody to undo it
                raise Stopping
            return job()

    @property
    def _backend(self) -> Backend:
        assert self._built is not None
        return self._built.backend

    async def open(self, backend: str, why: str = "") -> None:
        """Build the backend, chosen for the reason `why`, and look once. ControlError where that fails."""
        self._built = await self._work(lambda: self._with_lanes(build_backend(backend, self._run_dir)))
        self._why = why or self._built.why
        loop = asyncio.get_running_loop()
        self._backend.listen(lambda event: self._hear(loop, event), self._edge)
        await self.stand(self.config.daemon.classes)
        if self.config.daemon.observers:
            await self._work(lambda: self._backend.wake_by(lambda: self._wake(loop)))
        await self.dirty.open()
        await self._launched.open()
        await self._look()
        if self._snapshot is None:
            raise ControlError("start detshared", self._failure, "see what is wrong: detshare-ctl doctor")
        self._open_policy(loop)
        text = f"detshared started, backend {self._backend.name}: {self._why}".removesuffix(": ")
        self._tell(Event(time.time(), "daemon", os.getpid(), text))

    async def stand(self, rules: Mapping[str, str]) -> None:
        """Programs of which nobody asked anything have the class of the first pattern that matches, from now on."""
        await self._work(lambda: self._backend.stand(rules))

    def _open_policy(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._snapshot is not None
        name = self._backend.name
        service = PolicyService(
            self._run_dir,
            name,
            self._perform,
            lambda event: self._hear(loop, event),
            lambda seen: pools(self._pool.rows(seen)),
            self._attend,
        )
        service.start(self.config.policy, self._snapshot)
        self._policy = service

    def _policy_status(self) -> dict[str, Any] | None:
        return None if self._policy is None else self._policy.engine.status()

    @property
    def policy(self) -> PolicyService:
        if self._policy is None:
            raise ControlError("ask the policy", "detshared is just starting", "try again in a second")
        return self._policy

    def _perform(self, requests: Sequence[Request]) -> list[Outcome | ControlError]:
        """What a policy decided, in the thread of its engine. The next regular look shows what it did."""
        asked = describe(requests[0].verb, requests[0].who, requests[0].args) if requests else ""
        try:
            return self._worker.submit(self._in_turn, lambda: self._perform_now(requests)).result(VERB_SECONDS)
        except TimeoutError:
            return [ControlError(asked, _OVERDUE, "see dmesg | grep NVRM")]
        except RuntimeError as error:  # this process is ending
            return [explain(error, asked)]

    def _perform_now(self, requests: Sequence[Request]) -> list[Outcome | ControlError]:
        made: list[Outcome | ControlError] = []
        for each in requests:
            asked = describe(each.verb, each.who, each.args)
            try:
                self._require_guard(each.verb, asked)
                made.append(self._backend.do(request(each.verb, each.who, **each.args)))
            except Exception as error:  # noqa: BLE001  told in the log of decisions
                made.append(explain(error, asked))
                break
        return made

    def _with_lanes(self, built: Built) -> Built:
        """The same with the spatial lane beside it; where that cannot be had, a remark in the events."""
        if not self._spatial:
            return built
        from detshare.ctl.backends.spatial.backend import ShimBackend
        from detshare.ctl.backends.spatial.lanes import lanes
        from detshare.runtime.service import Service

        service = Service(self._run_dir, self._steer, park=self.config.park)
        try:
            service.open()
        except ControlError as error:
            log.error("no spatial lane: %s", error)
            self._no_spatial = error
            return built
        return dataclasses.replace(built, backend=lanes(built.backend, ShimBackend(service, self._pool), self._run_dir))

    def _steer(self, pid: int, klass: str | None, memory: int | None, tenant: str) -> list[str]:
        """Class, memory limit and tenant of a program of the temporal lane that starts; what could not be done."""
        asked: list[tuple[str, dict[str, object]]] = []
        if tenant and self._backend.name == "kmod":
            asked.append(("tenant-attach", {"tenant": tenant}))
        if klass is not None:
            asked.append(("set-priority", {"class": klass}))
        if memory is not None:
            asked.append(("set-memory", {"limit": memory}))
        notes = []
        for verb, args in asked:
            try:
                job = functools.partial(self._verb_now, verb, str(pid), args)
                outcome, _ = self._worker.submit(self._in_turn, job).result(START_SECONDS)
            except TimeoutError:
                notes.append(f"{verb} was not done within {START_SECONDS:g} s; it may still happen")
            except Exception as error:  # noqa: BLE001  the program starts whatever it is
                notes.append(f"{verb} was not done: {explain(error, verb).stopped}")
            else:
                notes += [f"{verb} was not done: {skip.reason}" for skip in outcome.skipped]
        return notes

    async def keep_looking(self) -> None:
        """Look every `interval` seconds until cancelled; a look that fails is shown, and tried again.

        While nothing changes and nobody decides by what is seen, a backend may say that the next one can wait.
        """
        while True:
            begun = time.monotonic()
            if await self._work(self._wants_look):
                await self._look()
            await self._rest(time.monotonic() - begun)

    async def _rest(self, took: float) -> None:
        """Until the next look after one that took so long. New contexts get their class at once, and a look soon."""
        # A thousand programs are looked at more seldom, rather than without rest. What a look only waits for does not
        # count: while contexts are made the driver answers slowly, and just then there is something to see.
        now, least = time.monotonic(), max(0.01, 2 * self._look_cpu)
        earliest, due = now + least, now + max(least, self.interval - took)
        while (left := due - time.monotonic()) > 0:
            try:
                await asyncio.wait_for(self._woken.wait(), left)
            except TimeoutError:
                return
            self._woken.clear()
            due = min(due, max(earliest, time.monotonic() + TOGETHER_S))

    def _wants_look(self) -> bool:
        self._keep_guarded()
        try:
            return bool(self._failure) or self.policy.engine.decides or self._backend.stirs()
        except Exception:  # noqa: BLE001  the look tells it
            return True

    def _apply_early_now(self, loop: asyncio.AbstractEventLoop) -> None:
        self._early_due = False
        try:
            self._backend.apply_early()
        except Exception as error:  # noqa: BLE001  the look that follows tells what lasts
            told = explain(error, "give a new context its class").stopped
            log.warning("early apply failed: %s", told, exc_info=error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody looks any more
            loop.call_soon_threadsafe(self._woken.set)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is a new context, or something to look at; in whatever thread."""
        with contextlib.suppress(RuntimeError):  # the worker is gone: this process is ending
            # here and now, where nobody works with the backend: a millisecond later the driver may be busy with what
            # the program asks for next, and each thread on the way takes its part of one
            if self._turn.acquire(blocking=False):
                try:
                    self._apply_early_now(loop)
                finally:
                    self._turn.release()
            elif not self._early_due:
                self._early_due = True
                self._worker.submit(self._in_turn, lambda: self._apply_early_now(loop))

    def _keep_guarded(self) -> None:
        """Start another guardian where the last one ended: nothing may be changed without one."""
        if self._guard is None or self._guard.alive():
            return
        ended = self._guard.pid
        self._guard.stop()  # it is dead: this gives its pipe back
        try:
            self._guard = start_guardian(self._run_dir, "start another guardian")
        except ControlError as error:
            log.error("guardian %d ended and no other can be started: %s", ended, error)
        else:
            log.error("guardian %d ended; %d took its place", ended, self._guard.pid)

    def dismiss_guardian(self) -> None:
        """Everything was put back."""
        if self._guard is not None:
            self._guard.stop()

    async def _look(self) -> None:
        try:
            snapshot, events = await self._work(self._look_now)
        except Exception as error:
            self.counters.failed_looks += 1
            told = explain(error, "look at the machine").stopped
            if told != self._failure:
                log.error("look failed: %s", told, exc_info=error)
                self._tell(Event(time.time(), "error", None, f"look failed: {told}"))
            self._failure = told
            return
        if self._failure:
            log.info("looks work again")
        self._failure = ""
        self._took(snapshot, events)

    def _look_now(self) -> tuple[Snapshot, Sequence[Event]]:
        begun = time.thread_time()
        snapshot = self._launched.add_to(self._backend.look())
        events = self._backend.drain_events()
        self._look_cpu = time.thread_time() - begun
        return snapshot, events

    def _took(self, snapshot: Snapshot, events: Sequence[Event]) -> None:
        self.counters.looks += 1
        snapshot = self.requests.add_to(snapshot)
        self._snapshot = self._pool.placed(snapshot)
        if self._policy is not None:
            self._policy.look(snapshot)
        for event in events:
            self._tell(event)

    def _hear(self, loop: asyncio.AbstractEventLoop, event: Event) -> None:
        """An event of the kernel module, in whatever thread."""
        if self._policy is not None:
            self._policy.engine.hear(event)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(self._tell, event)

    def _edge(self, pid: int, works: bool) -> None:
        """A program begins to work, or stops; in whatever thread. For the policy alone: people would drown in it."""
        if self._policy is not None:
            self._policy.engine.edge(pid, works)

    def _attend(self, on: bool) -> None:
        """The policy wants to hear of that, or not any more."""
        with contextlib.suppress(RuntimeError):  # the worker is gone: this process is ending
            self._worker.submit(self._in_turn, lambda: self._backend.attend(on))

    def _tell(self, event: Event) -> None:
        logs.event(log, event)
        self._events.append(event)
        self.counters.events += 1
        for queue in list(self._queues):
            if queue.qsize() >= EVENTS_KEPT:  # a reader that does not read: end it rather than keep all for it
                self.unsubscribe(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            raise HttpError(409, "list programs", "there was no look yet", "try again in a second")
        # A look takes long while many contexts are made: what ended since is not shown any more.
        living = tuple(p for p in self._snapshot.programs if self._backend.alive(p.id))
        snapshot = dataclasses.replace(self._snapshot, programs=living)
        if self._policy is not None:
            snapshot = self._policy.mark(snapshot)
        age = time.monotonic() - snapshot.taken
        if self._failure:
            warning = f"looks fail since {age:.1f} s, what is shown is that old: {self._failure}"
        elif age > max(2.0, 5 * self.interval):
            warning = f"the driver has not answered for {age:.1f} s, what is shown is that old: see dmesg | grep NVRM"
        else:
            return snapshot
        return dataclasses.replace(snapshot, warnings=(*snapshot.warnings, warning))

    def pool(self) -> dict[str, Any]:
        return self._pool.to_json(self.snapshot())

    async def verb(self, name: str, who: object, args: dict[str, object], caller: Caller | None = None) -> Outcome:
        """`caller` None: the daemon itself. Denied where he may not do that."""
        asked = describe(name, who, args)
        tenant = caller if caller is not None and self.access.worth_looking(caller, name, who, asked) else None
        try:
            # not cancelled by the limit: what the worker began, it ends
            outcome, look = await asyncio.wait_for(
                asyncio.shield(self._work(lambda: self._verb_now(name, who, args, tenant))), VERB_SECONDS
            )
        except TimeoutError:
            self.counters.verbs[name, "failed"] += 1
            raise HttpError(500, asked, _OVERDUE, "see dmesg | grep NVRM") from None
        except Exception as error:
            told = explain(error, asked)
            self.counters.verbs[name, "refused" if told.usage else "failed"] += 1
            if told.stopped.startswith("an error in DetShare itself"):
                log.error("%s failed", asked, exc_info=error)
                raise HttpError(500, told.asked, told.stopped, told.next_step) from error
            raise told from error
        self.counters.verbs[name, "changed" if outcome.changed else "unchanged"] += 1
        if look is not None:
            self._took(*look)
        return outcome

    def _verb_now(
        self, name: str, who: object, args: dict[str, object], tenant: Caller | None = None
    ) -> tuple[Outcome, tuple[Snapshot, Sequence[Event]] | None]:
        """`tenant`: one who may only lower the class of a program of his own."""
        self._require_guard(name, describe(name, who, args))
        if tenant is not None:
            self.access.check_lowering(tenant, str(who), args, self._backend.look(), describe(name, who, args))
            args = {**args, **self._backend.kept(int(str(who)))}  # an administrator's, which a class alone would undo
        outcome = self._backend.do(request(name, who, **args))
        self.access.changed(change.pid for change in outcome.changed if tenant is None)
        if self._policy is not None:
            self._policy.hand(name, who, outcome)
        try:
            return outcome, self._look_now()  # so that who asked sees the effect in his next question
        except Exception:  # noqa: BLE001  the verb was done: say so; the regular look shows this failure
            return outcome, None

    def _require_guard(self, verb: str, asked: str) -> None:
        """ControlError where nobody would undo what is asked for, if this process were killed."""
        self._keep_guarded()
        if self._guard is not None and not self._guard.alive() and not VERBS[verb].undoes:
            stopped = "the guardian ended and no other starts: nothing would undo this if the daemon were killed"
            raise ControlError(asked, stopped, "restart detshared; is there memory?")

    async def doctor(self) -> list[Check]:
        snapshot = self.snapshot()
        checks = await self._work(lambda: machine_checks(snapshot, self._why))
        if self._failure:
            checks.append(Check("daemon", False, f"its last look failed: {self._failure}", "see its log"))
        else:
            text = f"PID {os.getpid()}, up {time.monotonic() - self._started:.0f} s, a look every {self.interval:g} s"
            checks.append(Check("daemon", True, text))
        if self._guard is None:
            checks.append(Check("guardian", False, "none was started", "restart detshared"))
        elif self._guard.alive():
            text = f"PID {self._guard.pid}; it restores every program if the daemon is killed"
            checks.append(Check("guardian", True, text))
        else:
            checks.append(Check("guardian", False, f"PID {self._guard.pid} ended", "restart detshared"))
        if self._no_spatial is not None:
            checks.append(Check("spatial lane", False, self._no_spatial.stopped, self._no_spatial.next_step))
        checks += [configuration_check(self.config.path, self.unread), *self.policy.doctor(), *self.dirty.doctor()]
        return [*checks, *self._launched.doctor(), *await self._work(self._backend.doctor)]

    async def readings(self) -> dict[str, Any]:
        if self._built is None or self._built.readings is None:
            raise HttpError(404, "read the simulation", "only the model backend has one", "detshared --backend model")
        return await self._work(self._built.readings)

    def remembered(self) -> Sequence[Event]:
        return tuple(self._events)

    @property
    def told(self) -> int:
        return self.counters.events

    def subscribe(self) -> asyncio.Queue[Event | None]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Event | None]) -> None:
        self._queues.discard(queue)

    def end_readers(self) -> None:
        """Tell those who follow events that no more will come."""
        self._tell(Event(time.time(), "daemon", os.getpid(), "detshared is stopping and restores every program"))
        for queue in list(self._queues):
            self.unsubscribe(queue)
            queue.put_nowait(None)

    async def close(self) -> bool:
        """Restore every program. False where it did not end well: then the guardian has to do it."""
        self.reports.close()
        try:
            return await self._restore()
        finally:
            await self.dirty.close()
            await self._launched.close()

    async def _restore(self) -> bool:
        if self._built is None:
            return True
        if self._policy is not None:
            await asyncio.to_thread(self._policy.stop)
        try:
            problems = await asyncio.wait_for(asyncio.shield(self._work(self._close_now)), CLOSE_SECONDS)
        except TimeoutError:
            log.error("restoring did not end within %.0f s: left to the guardian", CLOSE_SECONDS)
            return False
        except Exception:
            log.exception("restoring failed: left to the guardian")
            return False
        for problem in problems:
            log.error("%s", problem)
        return not problems

    def _close_now(self) -> list[str]:
        self._ended = True
        self._backend.drain_events()
        self._backend.close()
        return [event.text for event in self._backend.drain_events() if event.kind == "error"]
