# SPDX-License-Identifier: Apache-2.0
"""The spatial lane's part of the daemon: one thread that hands out boards on a socket and watches tenants and MPS."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs, sizes
from detshare.ctl.core.config import Park
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check, Event
from detshare.runtime import arena as arenas
from detshare.runtime import board_layout as layout
from detshare.runtime.admission import Admission, Steer
from detshare.runtime.board import TAKEN, Attach, Attached, BadBoard
from detshare.runtime.descriptors import make_room
from detshare.runtime.directory import Directory, Record, default_path
from detshare.runtime.mps import Mps, MpsError, State
from detshare.runtime.profiles import Profiles
from detshare.runtime.tenant import Refused, Tenant
from detshare.runtime.tenants import Tenants
from detshare.runtime.workers import Workers

log = logging.getLogger("detshared.spatial")

SOCKET_NAME: Final = "boards.sock"
TICK_SECONDS: Final = 0.25
PATIENCE: Final = 5.0
"""seconds in which a connection has to say what it wants"""
LAST_SECONDS: Final = 5.0
"""how long the daemon's end waits for kernels of programs that ended in mid-work"""
MOST_CONNECTIONS: Final = 256
"""that said nothing yet: who has most of them loses his oldest to a newcomer"""
MOST_WAITING: Final = 32
"""requests for a lane, of one user, that are not answered yet: he asks again"""
MOST_GIFTS: Final = 256
"""the same for host memory: more than the programs of all GPUs ask for at once"""
_LARGEST: Final = 16384
"""bytes of a packet"""


class Service:
    """Boards, tenants and MPS of one daemon. ControlError from `open` where the spatial lane cannot be had."""

    def __init__(
        self,
        run_dir: Path,
        steer: Steer,
        boards: Path | None = None,
        mps: Mps | None = None,
        park: Park | None = None,
    ) -> None:
        self.socket = run_dir / SOCKET_NAME
        self._run_dir = run_dir
        self._events: list[Event] = []
        self._events_lock = threading.Lock()
        self.directory = Directory(boards or default_path(run_dir))
        self._profiles = Profiles(run_dir / "profiles.json")
        self._arena = arenas.Arena(park.bytes, park.huge_pages) if park else arenas.Arena()
        self.tenants = Tenants(self.directory, self._profiles, self._say, self._arena)
        self.tenants.died = self._died
        self.policies = self.tenants.policies
        self.policies.room_s = park.wait if park else 0.0
        self.policies.incremental = park is None or park.incremental
        self.policies.lazy = park is not None and park.lazy
        self.mps = mps or Mps(run_dir / "mps")
        self._mps_lock = threading.Lock()
        self._admission = Admission(self.tenants, self.mps, self._mps_lock, self._profiles, steer)
        self._listener: socket.socket | None = None
        self._epoll: select.epoll | None = None
        self._connections: dict[int, tuple[socket.socket, float, int]] = {}
        """with when each came, and its user"""
        self._ahead: dict[int, tuple[socket.socket, Tenant]] = {}
        """of programs that were answered while they make their context, each with what it was given"""
        self._jobs = Workers(4, "spatial", MOST_WAITING)
        self._gifts = Workers(2, "arena", MOST_GIFTS)
        """seconds of work each, for which no program's start waits"""
        self._settling = ThreadPoolExecutor(1, thread_name_prefix="settling")
        self._fresh_lock = threading.Lock()
        self._fresh: list[Tenant] = []
        """programs that came and are not settled: one job at a time takes them all, however many come"""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spatial", daemon=True)
        self._last_fall = ""
        self._unlisted: set[int] = set()
        """programs that came since MPS was last asked for its clients"""

    # -- life ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the board directory, go on with the tenants that live, and answer on the socket."""
        make_room()
        self.directory.open()
        try:
            found = self.tenants.recover()
            self._bind()
        except (OSError, ControlError) as error:
            self.tenants.close()
            self.directory.close()
            if isinstance(error, ControlError):
                raise
            following = f"is there room in {self.directory.path}?"
            raise ControlError("open the spatial lane", str(error), following) from error
        with self._mps_lock:
            adopted = self.mps.adopt()
        if found or adopted:
            mps = f"MPS control daemon PID {self.mps.control}" if adopted else "no MPS server"
            self._say("daemon", None, f"spatial lane: goes on with {found} program(s), {mps}")
        self._thread.start()

    def _bind(self) -> None:
        if os.geteuid() == 0:
            # Programs of all users knock here: they may pass through the folder, and read nothing in it.
            self._run_dir.chmod(self._run_dir.stat().st_mode & 0o7777 | 0o011)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._listener.setblocking(False)
        try:
            self.socket.unlink(missing_ok=True)  # of a daemon that was killed: we hold the locks
            self._listener.bind(str(self.socket))
            self.socket.chmod(0o666)
            self._listener.listen(128)
        except OSError as error:
            self._listener.close()
            self._listener = None
            following = "use a shorter --run-dir" if "too long" in str(error) else "is there room and a right to write?"
            raise ControlError("open the spatial lane", f"{self.socket} cannot be made ({error})", following) from error
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    def close(self, restore: bool = True) -> None:
        """Stop. With `restore` nobody is held or bound any more; MPS ends where nobody uses it. Idempotent."""
        if self._stop.is_set():
            return
        self._stop.set()
        self.socket.unlink(missing_ok=True)
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._jobs.close()
        self._gifts.close()
        self._settling.shutdown(wait=True, cancel_futures=True)
        if restore:
            self.policies.stand_aside()
        with self._mps_lock:
            living = [pid for pid in self.tenants.pids() if procfs.start_time(pid) is not None]
            if self.mps.state is State.RUNNING and not living and self.mps.idle():
                self.mps.stop()
        if living:  # whose MPS server would end them for a neighbour's kernel that lost its memory
            time.sleep(min(self.tenants.leaving.left, LAST_SECONDS))
        for remains in self.tenants.leaving.due(all_of_them=True):
            remains.release()
        self.tenants.close()
        self.directory.close()
        open_ones = [connection for connection, *_ in self._connections.values()]
        for connection in (*open_ones, *(connection for connection, _ in self._ahead.values())):
            connection.close()
        for each in (self._listener, self._epoll):
            if each is not None:
                each.close()

    # -- events -------------------------------------------------------------------------------------------------

    def _say(self, kind: str, pid: int | None, text: str) -> None:
        with self._events_lock:
            self._events.append(Event(time.time(), kind, pid, text))
            del self._events[:-1000]

    def drain_events(self) -> list[Event]:
        """Events since the last call, oldest first."""
        with self._events_lock:
            events, self._events = self._events, []
        return events

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        assert self._listener is not None
        assert self._epoll is not None
        due = 0.0
        while not self._stop.is_set():
            for pidfd in self.tenants.pidfds():
                with contextlib.suppress(FileExistsError):
                    self._epoll.register(pidfd, select.EPOLLIN)
            for descriptor, _ in self._epoll.poll(max(due - time.monotonic(), 0.0) + 0.001, 64):
                self._guarded(lambda fd=descriptor: self._ready(fd))  # type: ignore[misc]
            if time.monotonic() >= due:
                due = time.monotonic() + TICK_SECONDS
                self._guarded(self._tick)

    def _guarded(self, job: Callable[[], None]) -> None:
        """One tenant's trouble must not end the thread that serves all."""
        try:
            job()
        except Exception as error:
            log.exception("the spatial lane failed at something")
            self._say("error", None, f"spatial lane: {type(error).__name__}: {error}")

    def _ready(self, descriptor: int) -> None:
        assert self._listener is not None
        if descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._connections:
            self._read(descriptor)
        elif descriptor in self._ahead:
            self._hear(descriptor)
        else:
            self.tenants.gone(descriptor)

    def _accept(self) -> None:
        assert self._listener is not None
        assert self._epoll is not None
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(0.05)  # who waits stays in the queue, and makes it readable all the while
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            users = Counter(uid for *_, uid in self._connections.values())
            ((most, _),) = users.most_common(1)
            oldest = next(number for number, (*_, uid) in self._connections.items() if uid == most)
            self._forget(oldest).close()
        connection.setblocking(False)
        self._connections[connection.fileno()] = (connection, time.monotonic(), _peer(connection)[1])
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _forget(self, descriptor: int) -> socket.socket:
        assert self._epoll is not None
        connection, *_ = self._connections.pop(descriptor)
        self._epoll.unregister(descriptor)
        return connection

    def _read(self, descriptor: int) -> None:
        connection, *_ = self._connections[descriptor]
        data = _word(connection)
        if data is None:
            return
        self._forget(descriptor)
        try:
            pid, uid, gid = _peer(connection)
            if data.startswith(b"{"):
                if not self._jobs.submit_for(uid, self._answer_run, connection, data, pid, uid, gid):
                    stopped = f"{self._jobs.most} requests of uid {uid} wait already"
                    told = ControlError("detshare run", stopped, "wait for these").to_json()
                    _send(connection, {**told, "again": True})
                    connection.close()
                return
            if data and len(data) == layout.ARENA_SIZE:
                if not self._gifts.submit_for(uid, self._answer_arena, connection, data, pid):
                    connection.close()
                return
            if data and self._answer_attach(connection, data, pid, uid):
                return
        except OSError as error:
            log.debug("a connection broke: %s", error)
        connection.close()

    def _answer_run(self, connection: socket.socket, data: bytes, pid: int, uid: int, gid: int) -> None:
        with contextlib.closing(connection):
            try:
                answer = self._admission.answer(data, pid, uid, gid)
            except Exception as error:
                log.exception("detshare run of PID %d failed", pid)
                stopped = f"an error in DetShare itself ({type(error).__name__}: {error})"
                answer = ControlError("detshare run", stopped, "see the daemon's log").to_json()
            self._tell_falls()
            _send(connection, answer)

    def _answer_arena(self, connection: socket.socket, data: bytes, pid: int) -> None:
        """Host memory for a program that is to be parked."""
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.setblocking(True)
            connection.settimeout(1.0)
            try:
                wanted = arenas.asked(data)
                if wanted is None:
                    raise BadBoard("no message that this daemon knows")
                if arenas.counts_only(data):
                    self.tenants.parking.grant(pid, *wanted)
                    connection.send(Attached(0).pack())
                    return
                parking = self.tenants.parking
                descriptor = parking.give_some(pid, *wanted) if arenas.some(data) else parking.give(pid, *wanted)
            except (Refused, BadBoard) as error:
                status = error.status if isinstance(error, Refused) else errno.EINVAL
                if not self.tenants.parking.leaves(pid):
                    self._say("error", pid, f"is not parked: {error}")
                connection.send(Attached(status, 0, str(error)).pack())
                return
            try:
                rights = struct.pack("i", descriptor)
                connection.sendmsg([Attached(0).pack()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            finally:
                os.close(descriptor)

    def _answer_attach(self, connection: socket.socket, data: bytes, pid: int, uid: int) -> bool:
        """Whether the connection is still needed."""
        try:
            asked = Attach.unpack(data)
            tenant, descriptors = self.tenants.attach(asked, pid, uid)
        except (Refused, BadBoard) as error:
            status = error.status if isinstance(error, Refused) else errno.EINVAL
            self._say("error", pid, f"gets no board and runs without the spatial lane: {error}")
            connection.send(Attached(status, 0, str(error)).pack())
            return False
        try:
            answer = Attached(0, tenant.record.slot).pack()
            rights = struct.pack(f"{len(descriptors)}i", *descriptors)
            connection.sendmsg([answer], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            self.tenants.withdraw(tenant)
            raise
        finally:
            for each in descriptors:
                os.close(each)
        if not tenant.record.observed:
            self._unlisted.add(tenant.record.pid)
        if asked.ahead:
            assert self._epoll is not None
            self._ahead[connection.fileno()] = (connection, tenant)
            self._epoll.register(connection.fileno(), select.EPOLLIN)
        else:
            self._came(tenant)
        return asked.ahead

    def _hear(self, descriptor: int) -> None:
        """A program that asked ahead of its context has it now, or gave up."""
        connection, tenant = self._ahead[descriptor]
        word = _word(connection)
        if word is None:
            return
        self._part(descriptor)
        if word == TAKEN:
            self.tenants.taken(tenant)
            self._came(tenant)
        else:
            self.tenants.withdraw(tenant)

    def _part(self, descriptor: int) -> None:
        """No more is said on this connection."""
        assert self._epoll is not None
        connection, _ = self._ahead.pop(descriptor)
        self._epoll.unregister(descriptor)
        connection.close()

    def _came(self, tenant: Tenant) -> None:
        if tenant.record.observed:
            return
        with self._fresh_lock:
            self._fresh.append(tenant)
            first = len(self._fresh) == 1
        if first:
            self._settling.submit(self._settle)

    def _tick(self) -> None:
        late = [d for d, (_, since, _) in self._connections.items() if time.monotonic() - since > PATIENCE]
        for descriptor in late:
            self._forget(descriptor).close()
        self.tenants.tick()
        for descriptor in [d for d, (_, tenant) in self._ahead.items() if not self.tenants.has(tenant)]:
            self._part(descriptor)
        # While somebody waits for the server, who holds the lock looks himself.
        if self._mps_lock.acquire(blocking=False):
            try:
                self.mps.look()
            finally:
                self._mps_lock.release()
        self._tell_falls()
        for remains in self.tenants.leaving.due():
            self._jobs.submit(remains.release)

    # -- MPS ----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What follows programs' coming: their descriptors are kept, their PIDs are known as clients of MPS."""
        with self._fresh_lock:
            fresh, self._fresh = self._fresh, []
        for tenant in fresh:
            self.tenants.keep(tenant)
        time.sleep(0.5)  # a program is still in the middle of making its context
        for tenant in fresh:
            self.tenants.keep(tenant)
        with self._mps_lock:
            if self.mps.state is State.RUNNING:
                old = set(self._unlisted)
                self.mps.refresh()
                self._unlisted.difference_update(old)

    def _died(self, record: Record, working: bool) -> None:
        if working and not record.observed:
            self.mps.doubt()

    def _tell_falls(self) -> None:
        """Say what fell and whom it took along; start the server again where a program may come."""
        while self.mps.falls:
            fall = self.mps.falls.pop(0)
            why = f"{fall.why}: its context is gone with it; restart the program"
            gone = {*fall.clients, *(self._unlisted if fall.served else ())}
            self._unlisted.difference_update(gone)
            taken = {record.pid: record for record in self.tenants.lose(gone, why)}
            names = ", ".join(f"{pid} ({record.tenant or record.command[:40]})" for pid, record in taken.items())
            self._last_fall = f"{fall.why}; taken along: {names or 'nobody'}"
            self._say("error", None, self._last_fall)
            living = set(self.tenants.pids())
            for pid in taken:
                if pid in living:
                    self._say("error", pid, why)
            if not self._stop.is_set():
                self._jobs.submit(self._start_mps)

    def _start_mps(self) -> None:
        with self._mps_lock:
            if self.mps.orphaned:
                return  # to start anew would end what its clients still do
            try:
                self.mps.start()
            except MpsError as error:
                self._say("error", None, f"MPS does not start again: {error.stopped}; next: {error.next_step}")

    def doctor(self) -> list[Check]:
        """Lines of `doctor` about the spatial lane."""
        text = f"{len(self.tenants.pids())} program(s); boards in {self.directory.path}"
        checks = [Check("spatial lane", True, text)]
        with self._mps_lock:
            state, servers = self.mps.state, ", ".join(map(str, self.mps.servers)) or "none"
            if state is State.NO_BINARY:
                advice = "install the driver's compute utilities; programs run in the temporal lane meanwhile"
                checks.append(Check("mps server", None, "there is no nvidia-cuda-mps-control here", advice))
            elif state is State.DEAD:
                advice = "it is started again with the next program"
                checks.append(Check("mps server", False, "its control daemon ended", advice))
            elif state is State.STOPPED:
                checks.append(Check("mps server", None, "not started; the first `detshare run --lane spatial` does"))
            else:
                text = f"control daemon PID {self.mps.control}, servers: {servers}, pipe {self.mps.pipe}"
                checks.append(Check("mps server", True, text))
        if self._last_fall:
            checks.append(Check("mps faults", None, f"the last: {self._last_fall}"))
        if self._arena.huge and self._arena.ordinary:
            text = f"{sizes.text(self._arena.ordinary)} of host memory were given on ordinary pages: too few huge ones"
            checks.append(Check("huge pages", False, text, "raise vm.nr_hugepages or vm.nr_overcommit_hugepages"))
        if self.policies.reserved is not None:
            checks.append(Check("reserve", None, f"the first {self.policies.reserved} SMs are kept for class high"))
        return checks


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """PID, user and group of who connected."""
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def _send(connection: socket.socket, answer: object) -> None:
    with contextlib.suppress(OSError):
        connection.setblocking(True)
        connection.settimeout(1.0)
        connection.send(json.dumps(answer).encode())


def _word(connection: socket.socket) -> bytes | None:
    """What a peer says; empty where it went away, None where the event was of an earlier descriptor of this number,
    which was closed meanwhile."""
    try:
        return connection.recv(_LARGEST)
    except BlockingIOError:
        return None
    except OSError as error:
        log.debug("a connection broke: %s", error)
        return b""
