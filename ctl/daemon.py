# SPDX-License-Identifier: Apache-2.0
"""detshared: looks at the machine over and over, keeps programs as wished, and answers on a UNIX socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from aiohttp import web

from detshare.ctl import metrics, options, rundir
from detshare.ctl.api import Connection, HttpError, make_app
from detshare.ctl.backends.base import Backend
from detshare.ctl.client import SOCKET_NAME
from detshare.ctl.errors import ControlError
from detshare.ctl.oneshot import (
    AUTO,
    BACKENDS,
    Built,
    Guard,
    build_backend,
    machine_checks,
    require_root,
    resolve,
    start_guardian,
)
from detshare.ctl.snapshot import Check, Event, Outcome, Snapshot
from detshare.ctl.verbs import describe, explain, run_verb

log = logging.getLogger("detshared")

VERB_SECONDS: Final = 60.0
"""how long a request waits for the driver before it is answered with an error"""
CLOSE_SECONDS: Final = 30.0
"""how long restoring may take at the end before the guardian is left to do it"""
EVENTS_KEPT: Final = 1000
START_SECONDS: Final = 3.0
"""how long a program that starts under `detshare run` may wait for its class"""
TOGETHER_S: Final = 0.002
"""births come in groups: how long to wait for the rest of one before looking"""
LOCK_PATIENCE: Final = 1.0
"""seconds to wait for a one-shot command, or a daemon that is ending, to give up the lock"""

T = TypeVar("T")


class Daemon:
    """One backend on one worker thread, its last snapshot, and those who listen. Implements `api.Service`."""

    def __init__(
        self, run_dir: Path, interval: float, guard: Guard | None, spatial: bool = False, observers: bool = False
    ) -> None:
        """`spatial`: serve the spatial lane too. `observers`: look when eBPF sees a birth, besides every interval."""
        self._run_dir = run_dir
        self._interval = interval
        self._guard = guard
        self._started = time.monotonic()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="backend")
        self._built: Built | None = None
        self._why = ""
        self._spatial = spatial
        self._observers = observers
        self._woken = asyncio.Event()
        self._no_spatial: ControlError | None = None
        self._snapshot: Snapshot | None = None
        self._failure = ""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self.counters = metrics.Counters()
        self.registry = metrics.registry(lambda: self._snapshot, self.counters)

    async def _work(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, job)

    @property
    def _backend(self) -> Backend:
        assert self._built is not None
        return self._built.backend

    async def open(self, backend: str, why: str = "") -> None:
        """Build the backend, chosen for the reason `why`, and look once. ControlError where that fails."""
        self._built = await self._work(lambda: self._with_lanes(build_backend(backend, self._run_dir)))
        self._why = why or self._built.why
        loop = asyncio.get_running_loop()
        self._backend.listen(lambda event: self._hear(loop, event))
        if self._observers:
            await self._work(lambda: self._backend.wake_by(lambda: self._wake(loop)))
        await self._look()
        if self._snapshot is None:
            raise ControlError("start detshared", self._failure, "see what is wrong: detshare-ctl doctor")
        text = f"detshared started, backend {self._backend.name}: {self._why}".removesuffix(": ")
        self._tell(Event(time.time(), "daemon", os.getpid(), text))

    def _with_lanes(self, built: Built) -> Built:
        """The same with the spatial lane beside it; where that cannot be had, a remark in the events."""
        if not self._spatial:
            return built
        from detshare.ctl.backends.lanes import Lanes
        from detshare.ctl.backends.shim import ShimBackend
        from detshare.runtime.service import Service

        service = Service(self._run_dir, self._steer)
        try:
            service.open()
        except ControlError as error:
            log.error("no spatial lane: %s", error)
            self._no_spatial = error
            return built
        return dataclasses.replace(built, backend=Lanes(built.backend, ShimBackend(service)))

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
                outcome, _ = self._worker.submit(self._verb_now, verb, str(pid), args).result(START_SECONDS)
            except TimeoutError:
                notes.append(f"{verb} was not done within {START_SECONDS:g} s; it may still happen")
            except Exception as error:  # noqa: BLE001  the program starts whatever it is
                notes.append(f"{verb} was not done: {explain(error, verb).stopped}")
            else:
                notes += [f"{verb} was not done: {skip.reason}" for skip in outcome.skipped]
        return notes

    async def keep_looking(self) -> None:
        """Look every `interval` seconds until cancelled; a look that fails is shown, and tried again."""
        while True:
            begun = time.monotonic()
            await self._look()
            await self._work(self._keep_guarded)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), max(0.01, self._interval - (time.monotonic() - begun)))
                await asyncio.sleep(TOGETHER_S)
            self._woken.clear()

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
        snapshot = self._backend.look()
        return snapshot, self._backend.drain_events()

    def _took(self, snapshot: Snapshot, events: Sequence[Event]) -> None:
        self.counters.looks += 1
        self._snapshot = snapshot
        for event in events:
            self._tell(event)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        """A look would find something new; in whatever thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody looks any more
            loop.call_soon_threadsafe(self._woken.set)

    def _hear(self, loop: asyncio.AbstractEventLoop, event: Event) -> None:
        """An event of the kernel module, in whatever thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(self._tell, event)

    def _tell(self, event: Event) -> None:
        log.info("%s%s: %s", event.kind, f" {event.pid}" if event.pid else "", event.text)
        self._events.append(event)
        for queue in list(self._queues):
            if queue.qsize() >= EVENTS_KEPT:  # a reader that does not read: end it rather than keep all for it
                self.unsubscribe(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    # what the API asks

    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            raise HttpError(409, "list programs", "there was no look yet", "try again in a second")
        # A look takes long while many contexts are made: what ended since is not shown any more.
        living = tuple(p for p in self._snapshot.programs if self._backend.alive(p.id))
        snapshot = dataclasses.replace(self._snapshot, programs=living)
        age = time.monotonic() - snapshot.taken
        if self._failure:
            warning = f"looks fail since {age:.1f} s, what is shown is that old: {self._failure}"
        elif age > max(2.0, 5 * self._interval):
            warning = f"the driver has not answered for {age:.1f} s, what is shown is that old: see dmesg | grep NVRM"
        else:
            return snapshot
        return dataclasses.replace(snapshot, warnings=(*snapshot.warnings, warning))

    async def verb(self, name: str, who: object, args: dict[str, object]) -> Outcome:
        asked = describe(name, who, args)
        try:
            # not cancelled by the limit: what the worker began, it ends
            outcome, look = await asyncio.wait_for(
                asyncio.shield(self._work(lambda: self._verb_now(name, who, args))), VERB_SECONDS
            )
        except TimeoutError:
            self.counters.verbs[name, "failed"] += 1
            stopped = f"the driver did not answer within {VERB_SECONDS:.0f} s; it may still happen"
            raise HttpError(500, asked, stopped, "see dmesg | grep NVRM") from None
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
        self, name: str, who: object, args: dict[str, object]
    ) -> tuple[Outcome, tuple[Snapshot, Sequence[Event]] | None]:
        self._keep_guarded()
        if self._guard is not None and not self._guard.alive() and name not in ("resume", "release"):
            stopped = "the guardian ended and no other starts: nothing would undo this if the daemon were killed"
            raise ControlError(describe(name, who, args), stopped, "restart detshared; is there memory?")
        outcome = run_verb(self._backend, name, who, args)
        try:
            return outcome, self._look_now()  # so that who asked sees the effect in his next question
        except Exception:  # noqa: BLE001  the verb was done: say so; the regular look shows this failure
            return outcome, None

    async def doctor(self) -> list[Check]:
        snapshot = self.snapshot()
        checks = await self._work(lambda: machine_checks(snapshot, self._why))
        if self._failure:
            checks.append(Check("daemon", False, f"its last look failed: {self._failure}", "see its log"))
        else:
            up = time.monotonic() - self._started
            text = f"PID {os.getpid()}, up {up:.0f} s, a look every {self._interval:g} s"
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
        return checks + await self._work(self._backend.doctor)

    async def readings(self) -> dict[str, Any]:
        if self._built is None or self._built.readings is None:
            raise HttpError(404, "read the simulation", "only the model backend has one", "detshared --backend model")
        return await self._work(self._built.readings)

    def remembered(self) -> Sequence[Event]:
        return tuple(self._events)

    def subscribe(self) -> asyncio.Queue[Event | None]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Event | None]) -> None:
        self._queues.discard(queue)

    # the end

    def end_readers(self) -> None:
        """Tell those who follow events that no more will come."""
        self._tell(Event(time.time(), "daemon", os.getpid(), "detshared is stopping and restores every program"))
        for queue in list(self._queues):
            self.unsubscribe(queue)
            queue.put_nowait(None)

    async def close(self) -> bool:
        """Restore every program. False where it did not end well: then the guardian has to do it."""
        if self._built is None:
            return True
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
        self._backend.drain_events()
        self._backend.close()
        return [event.text for event in self._backend.drain_events() if event.kind == "error"]


async def listen(daemon: Daemon, path: Path) -> tuple[web.AppRunner, asyncio.AbstractServer]:
    """Answer on a socket at `path`, mode 0600. ControlError where it cannot be made."""
    runner = web.AppRunner(make_app(daemon), access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    server = runner.server
    assert server is not None
    loop = asyncio.get_running_loop()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)  # of a daemon that was killed: we hold the lock, so no living one owns it
        old = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old)
        listening = await loop.create_unix_server(
            # None is what aiohttp's own runner passes for "no access log"
            lambda: Connection(
                server,
                loop=loop,
                access_log=None,  # type: ignore[arg-type]
                keepalive_timeout=30.0,
                lingering_time=1.0,  # for a client that is still sending a body we refused
            ),
            sock=listener,
            backlog=128,
        )
    except OSError as error:
        listener.close()
        await runner.cleanup()
        following = "use a shorter --run-dir" if "too long" in str(error) else "is there room and a right to write?"
        raise ControlError("start detshared", f"{path} cannot be made ({error})", following) from error
    return runner, listening


async def serve(
    run_dir: Path, backend: str, interval: float, guard: Guard | None, why: str = "", observers: bool = False
) -> int:
    """Run until SIGTERM or SIGINT. 0, or 1 where not everything could be restored (the guardian goes on then)."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    daemon = Daemon(run_dir, interval, guard, spatial=True, observers=observers)
    path = run_dir / SOCKET_NAME
    async with contextlib.AsyncExitStack() as stack:
        try:
            await daemon.open(backend, why)
            runner, listening = await listen(daemon, path)
        except Exception as error:
            if await daemon.close():
                daemon.dismiss_guardian()  # nothing is left to be put back
            log.debug("start failed", exc_info=error)
            raise explain(error, "start detshared") from error
        looking = asyncio.create_task(daemon.keep_looking())
        stack.callback(looking.cancel)
        log.info("ready on %s", path)
        notify("READY=1")
        await asyncio.wait((asyncio.create_task(stop.wait()), looking), return_when=asyncio.FIRST_COMPLETED)
        died = looking.done()
        if died:
            log.error("the look loop ended by itself", exc_info=looking.exception())
        notify("STOPPING=1")
        log.info("stopping: restoring every program")
        looking.cancel()
        path.unlink(missing_ok=True)
        listening.close()
        daemon.end_readers()
        restored = await daemon.close()
        await runner.cleanup()
    if not restored or died:
        return 1
    daemon.dismiss_guardian()
    return 0


def notify(state: str) -> None:
    """Tell systemd (sd_notify(3)); nothing where it did not ask."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as error:
        log.warning("NOTIFY_SOCKET does not take %s: %s", state, error)


def run(run_dir: Path, backend: str, interval: float, observers: bool = False) -> int:
    """The whole life of a daemon; its exit code. ControlError where it cannot start."""
    asked = "start detshared"
    backend, why = resolve(backend, model_too=True)
    if backend == "model":
        log.warning("backend model (%s): a simulation in this process; no GPU and no real program is touched", why)
    else:
        require_root(asked)
    rundir.prepare(run_dir, asked)
    with contextlib.ExitStack() as stack:
        for path in [run_dir / "lock", *([rundir.MACHINE] if backend != "model" else [])]:
            lock = rundir.Lock(path, "detshared")
            lock.acquire(asked, LOCK_PATIENCE)  # a guardian may hold it for a moment
            stack.callback(lock.release)
        code = asyncio.run(serve(run_dir, backend, interval, start_guardian(run_dir, asked), why, observers))
        if code:
            log.error("ended with an error")
        return code


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.run_dir("Folder of socket, lock and journal.")
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default=AUTO,
    show_default=True,
    help="kmod: this machine's programs through detshare.ko. root: the same through their own descriptors, without "
    "memory limits. model: a simulation in this process, no GPU is touched. auto: the first of these that can be had.",
)
@click.option(
    "--interval",
    type=options.Seconds(0.02, 60.0),
    default=0.25,
    show_default=True,
    help="Seconds from one look at the machine to the next.",
)
@click.option("--observers", is_flag=True, help="With backend root: look at once when eBPF sees a context being made.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def main(run_dir: Path, backend: str, interval: float, observers: bool, log_level: str) -> None:
    """Watch the GPU programs of this machine and keep them as wished; runs in the foreground.

    Example: sudo detshared, and in another terminal: sudo detshare-ctl ps
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        code = run(run_dir, backend, interval, observers)
    except ControlError as error:
        click.echo(f"detshared: {error}", err=True)
        sys.exit(2 if error.usage else 1)
    sys.stderr.flush()
    if code:
        os._exit(code)  # a worker that hangs in the driver would keep the interpreter from ending
    sys.exit(0)


if __name__ == "__main__":
    main()
