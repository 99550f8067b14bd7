# SPDX-License-Identifier: Apache-2.0
"""The MPS server that carries the spatial lane: started, watched, restarted and stopped here.

It has a pipe and a log directory of its own, and a process counts as ours only where its own environment names that
pipe directory: an MPS server that somebody else runs is never asked, never signalled. It outlives the daemon, for
stopping it would take its clients along; a later daemon finds it again by the same mark.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from detshare.ctl.core import procfs
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError

PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOG: Final = "CUDA_MPS_LOG_DIRECTORY"
BINARY: Final = "DETSHARE_MPS_CONTROL"
"""names another control program than the PATH's nvidia-cuda-mps-control"""

PROBE: Final = (sys.executable, "-m", "detshare.runtime.probe")
START_SECONDS: Final = 5.0
FOLLOW_SECONDS: Final = 1.0
"""how long a server may take to end after its control daemon"""
ASK_SECONDS: Final = 3.0
ANSWERED_S: Final = 10.0
"""a control daemon that answered so lately is not asked whether it does"""
READY_SECONDS: Final = 5.0
"""how long a program that starts may be kept waiting for a server that takes it"""
_LATER: Final = "the spatial lane needs it; programs run in the temporal lane meanwhile"


class MpsError(ControlError):
    """MPS cannot do what was asked; programs run without it."""


class NoAnswer(MpsError):
    """The control daemon lives, and says nothing."""


class State(StrEnum):
    """How the server stands."""

    NO_BINARY = "no nvidia-cuda-mps-control"
    STOPPED = "stopped"
    RUNNING = "running"
    DEAD = "dead"
    """it was started and is gone"""


@dataclass(frozen=True, slots=True)
class Fall:
    """A server or its control daemon that ended by itself, or was ended because it took no newcomers."""

    why: str
    clients: tuple[int, ...]
    """PIDs of the programs that it took along, as far as they were listed before"""
    served: bool
    """whether a server ended: then whoever came since the last list went too"""


def _dead(process: ProcessId) -> bool:
    return procfs.start_time(process.pid) != process.start


def _process(pid: int) -> ProcessId | None:
    start = procfs.start_time(pid)
    return None if start is None else ProcessId(pid, start)


class Mps:
    """One control daemon and its servers. Methods block; use it from one thread at a time."""

    def __init__(self, folder: Path, binary: str | None = None, probe: Sequence[str] = PROBE) -> None:
        """`folder`: where pipe and log directory are made. `binary`: the control program, else from the environment.

        `probe`: a command that succeeds where a CUDA program would start.
        """
        self.pipe = folder / "pipe"
        self.log = folder / "log"
        self._probe = probe
        self._binary = binary or os.environ.get(BINARY) or "nvidia-cuda-mps-control"
        self._control: ProcessId | None = None
        self._servers: dict[ProcessId, tuple[int, ...]] = {}
        """servers as last seen, with their clients"""
        self.falls: list[Fall] = []
        """what fell and was not told yet, oldest first; who tells it takes it away"""
        self._suspect = False
        self._answered_at = float("-inf")
        self._orphaned_since = 0.0
        """when the control daemon was first seen dead; 0: it lives"""

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find this server and no other."""
        return {PIPE: str(self.pipe), LOG: str(self.log)}

    @property
    def suspect(self) -> bool:
        """Whether a newcomer may be refused: something died in mid-work, or the server was started anew."""
        return self._suspect

    def doubt(self) -> None:
        """A client died with work queued: try a newcomer before one is let through."""
        self._suspect = True

    @property
    def control(self) -> int | None:
        """PID of the control daemon."""
        return self._control.pid if self._control is not None else None

    @property
    def servers(self) -> tuple[int, ...]:
        """PIDs of the servers as last seen."""
        return tuple(process.pid for process in tuple(self._servers))  # looks of another thread ask, too

    @property
    def orphaned(self) -> bool:
        """Whether the control daemon ended and a server of it still serves its clients."""
        return self._control is None and any(not _dead(process) for process in self._servers)

    @property
    def state(self) -> State:
        if self._control is not None:
            return State.DEAD if _dead(self._control) else State.RUNNING
        return State.STOPPED if self._path() else State.NO_BINARY

    # -- asking -------------------------------------------------------------------------------------------------

    def _path(self) -> str | None:
        return shutil.which(self._binary)

    def _command(self, asked: str) -> str:
        path = self._path()
        if path is None:
            stopped = f"there is no {self._binary} that can be run here"
            raise MpsError(asked, stopped, f"install the driver's compute utilities ({_LATER})")
        return path

    def ask(self, command: str, seconds: float = ASK_SECONDS) -> list[str]:
        """Lines that the control daemon answers. MpsError where it does not."""
        asked = f"ask the MPS control daemon: {command}"
        try:
            done = subprocess.run(
                [self._command(asked)],
                input=command + "\n",
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoAnswer(asked, f"no answer within {seconds:g} s", f"see {self.log}/control.log") from None
        except OSError as error:
            raise MpsError(asked, str(error), f"is {self._binary} a program? ({_LATER})") from error
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        if done.returncode:
            told = " ".join([*lines, *done.stderr.split()])[:200] or f"it ended with {done.returncode}"
            raise MpsError(asked, told, f"see {self.log}/control.log")
        return lines

    def server_list(self) -> list[int]:
        """PIDs of the servers, as the control daemon says. MpsError."""
        return [int(line) for line in self.ask("get_server_list") if line.isdecimal()]

    def client_list(self, server: int) -> list[int]:
        """PIDs of a server's clients. MpsError."""
        return [int(line) for line in self.ask(f"get_client_list {server}") if line.isdecimal()]

    # -- life ---------------------------------------------------------------------------------------------------

    def adopt(self) -> bool:
        """Find the control daemon that an earlier daemon left running. False where none lives."""
        try:
            pid = int((self.pipe / "nvidia-cuda-mps-control.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return False
        process = _process(pid)
        if process is None or not self._ours(pid):
            return False
        self._control = process
        self._orphaned_since = 0.0
        self.refresh()
        return True

    def _ours(self, pid: int) -> bool:
        """Whether a process runs with our pipe directory and is no client: its program is of MPS' own."""
        try:
            if not Path(f"/proc/{pid}/comm").read_text().startswith(procfs.MPS_COMM):
                return False
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"{PIPE}={self.pipe}".encode() in entries

    def start(self) -> None:
        """Have a control daemon that answers; nothing to do where ours lives. MpsError."""
        asked = "start the MPS server of the spatial lane"
        if self.state is State.RUNNING or self.adopt():
            return
        path = self._command(asked)
        self._sweep()
        try:
            for folder in (self.pipe, self.log):
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            # Its children write there as the clients' users. Sticky: nobody removes what is another's.
            self.log.chmod(0o1777)
            for left in self.pipe.iterdir():
                left.unlink()
            # A file, no pipe: the daemon keeps what it inherited, and a pipe would end only with it.
            with (self.log / "start.log").open("w+b") as said:
                done = subprocess.run(
                    [path, "-d"],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    env={**os.environ, **self.environment},
                    start_new_session=True,
                    timeout=START_SECONDS,
                    check=False,
                )
                said.seek(0)
                told = " ".join(said.read(2000).decode(errors="replace").split())[:200]
        except subprocess.TimeoutExpired:
            raise MpsError(asked, f"{path} -d did not end within {START_SECONDS:g} s", f"see {self.log}") from None
        except OSError as error:
            following = f"is there room and a right to write below {self.pipe.parent}?"
            raise MpsError(asked, str(error), following) from error
        if done.returncode:
            told = told or f"it ended with {done.returncode}"
            raise MpsError(asked, f"{path} -d: {told}", f"see {self.log}/control.log ({_LATER})")
        until = time.monotonic() + START_SECONDS
        while not self.adopt():
            if time.monotonic() > until:
                stopped = f"it did not appear within {START_SECONDS:g} s"
                raise MpsError(asked, stopped, f"see {self.log}/control.log ({_LATER})")
            time.sleep(0.02)

    def refresh(self) -> None:
        """Learn servers and clients anew. Costs a process or two: after something came or went."""
        seen: dict[ProcessId, tuple[int, ...]] = {}
        try:
            for pid in self.server_list():
                process = _process(pid)
                if process is not None:
                    seen[process] = tuple(self.client_list(pid))
        except NoAnswer:
            self._suspect = True  # who does not answer us lets nobody in either, and a newcomer would wait for ever
        except MpsError:
            pass
        else:
            self._servers, self._answered_at = seen, time.monotonic()

    def look(self) -> Fall | None:
        """Whether control daemon or server ended since the last look. Cheap: it reads /proc."""
        gone = [process for process in self._servers if _dead(process)]
        if self._control is not None and _dead(self._control):
            self._orphaned_since = self._orphaned_since or time.monotonic()
            if self.settling:
                return None  # its servers may be about to follow: one fall, with all who went
            pid = self._control.pid
            self._control = None
            self._orphaned_since = 0.0
            fall = self._fell(f"the MPS control daemon (PID {pid}) ended", gone)
        elif gone:
            # The control daemon, where it lives, makes another server when the next client comes.
            fall = self._fell(f"the MPS server (PID {gone[0].pid}) ended", gone)
        else:
            return None
        for process in gone:
            self._servers.pop(process, None)
        return fall

    @property
    def settling(self) -> bool:
        """Whether the control daemon ended a moment ago and a server of it is still there."""
        young = time.monotonic() - self._orphaned_since < FOLLOW_SECONDS
        return young and any(not _dead(process) for process in self._servers)

    def _fell(self, why: str, servers: Iterable[ProcessId] | None = None) -> Fall:
        chosen = list(self._servers) if servers is None else list(servers)
        clients = sorted({pid for process in chosen for pid in self._servers.get(process, ())})
        fall = Fall(why, tuple(clients), bool(chosen))
        self.falls.append(fall)
        self._suspect = True
        return fall

    def restart(self, why: str) -> Fall:
        """End control daemon and servers, and start anew; the Fall names who was taken along. MpsError."""
        self.refresh()
        fall = self._fell(why)
        self.stop()
        self.start()
        return fall

    def idle(self) -> bool:
        """Whether no client is connected."""
        self.refresh()
        return not any(self._servers.values())

    def stop(self) -> None:
        """End it; its clients lose their contexts. Idempotent."""
        if self._control is not None and not _dead(self._control):
            with contextlib.suppress(MpsError):
                self.ask("quit -t 1", ASK_SECONDS)
        self._sweep()
        self._control = None
        self._servers = {}

    def _sweep(self) -> None:
        """End what is left of our control daemon and servers: first asked to, then made to."""
        left = {process for process in (self._control, *self._servers) if process is not None}
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        left |= {p for pid in pids if self._ours(pid) and (p := _process(pid)) is not None}
        for number, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 2.0)):
            for process in left:
                _signal(process, number)
            until = time.monotonic() + seconds
            while left and time.monotonic() < until:
                left = {process for process in left if not _dead(process)}
                time.sleep(0.01 if left else 0)

    # -- newcomers ----------------------------------------------------------------------------------------------

    def admits(self, uid: int, gid: int, seconds: float) -> str:
        """Make a CUDA context as a client of this user would, and drop it; what stopped that, or empty."""
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "DETSHARE_SOCKET")}
        other = {} if uid == os.geteuid() else {"user": uid, "group": gid, "extra_groups": []}
        try:
            done = subprocess.run(  # type: ignore[call-overload]  # `other` is two ints and a list
                self._probe,
                env={**environment, **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                **other,
            )
        except subprocess.TimeoutExpired:
            return f"no context within {seconds:.1f} s"
        except (OSError, subprocess.SubprocessError) as error:
            return f"the probe does not start: {error}"
        if done.returncode == 0:
            return ""
        return str(done.stdout).strip()[-160:] or f"the probe ended with {done.returncode}"

    def make_ready(
        self, uid: int, gid: int, working: Callable[[], list[int]], seconds: float = READY_SECONDS
    ) -> str:
        """Have a server that takes a newcomer within `seconds`: wait for it, or restart it. MpsError.

        A new server is asked for half of that, however long its start took.
        `working`: its clients that get on; a server that has such is never restarted for a newcomer's sake. Gives
        what still stops it; empty: nothing. `falls` tells what fell on the way.
        """
        until = time.monotonic() + seconds
        self.look()
        while self.settling:
            time.sleep(0.02)
        self.look()
        if self.orphaned:
            if pids := working():
                return f"its control daemon ended, and its server still serves {', '.join(map(str, pids))}"
            self._fell("the MPS server had lost its control daemon and was ended")
        self.start()
        if not self._suspect and time.monotonic() - self._answered_at > ANSWERED_S:
            self.refresh()
        if not self._suspect:
            return ""
        why, restarted = "", False
        while (left := until - time.monotonic()) > 0.05:
            why = self.admits(uid, gid, left)
            if not why:
                self._suspect = False
                self.refresh()
                return ""
            # What a killed client leaves behind passes by itself within a second or two; a fault does not.
            late = time.monotonic() > until - seconds / 2
            if not restarted and late and not working():
                self.restart(f"the MPS server took no newcomer ({why})")
                restarted = True
                # the new one is asked, however long the restart took
                until = max(until, time.monotonic() + seconds / 2)
            else:
                time.sleep(min(0.1, max(until - time.monotonic(), 0)))
        return why or "it takes no newcomer"


def _signal(process: ProcessId, number: int) -> None:
    """Signal a process that cannot be confused with a later one of its number."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(process.pid)
        try:
            if not _dead(process):
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)
