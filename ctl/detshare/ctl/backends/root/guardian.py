# SPDX-License-Identifier: Apache-2.0
"""The guardian: a small process that outlives a killed daemon and puts every program back.

It sleeps on a pipe whose other end only the daemon holds. A clean daemon says so before it closes it; any other end
of file means that the daemon is gone, and the guardian undoes what the journal says, paused programs first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from detshare.ctl.abi.versions import UnknownBranch, for_version
from detshare.ctl.backends.root.journal import Journal, locked
from detshare.ctl.backends.root.undo import undo_all
from detshare.ctl.core.driver import Driver, DriverError
from detshare.ctl.core.patience import Patience

START_SECONDS = 60.0
"""how long a guardian may do nothing before it watches: one that ends is seen at once, one that works is waited for"""
_READY = b"r"
_CLEAN = b"q"
_RETRIES = 200
_PAUSE_S = 0.05


class Guardian:
    """The daemon's side. One guardian watches one run directory."""

    def __init__(self, run_dir: Path, process: subprocess.Popen[bytes], pipe: int) -> None:
        self._run_dir = run_dir
        self._process = process
        self._pipe = pipe

    @classmethod
    def start(cls, run_dir: Path) -> Guardian:
        """Start a guardian and wait until it watches, however slow it is. RuntimeError if it does not come up."""
        ours, theirs = os.pipe()[::-1]
        back, answer = os.pipe()
        try:
            # Its own session: neither Ctrl-C nor the end of the daemon's terminal or process group reaches it.
            process = subprocess.Popen(
                # -P and /: no module is taken from a folder that somebody else may write to.
                [sys.executable, "-P", "-m", __spec__.name, str(run_dir.absolute()), str(theirs), str(answer)],
                pass_fds=(theirs, answer),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(theirs)
            os.close(answer)
        os.set_blocking(back, False)
        patience = Patience(START_SECONDS, process.pid)
        ready = b""
        while not ready and process.poll() is None and not patience.spent():
            with contextlib.suppress(BlockingIOError):
                ready = os.read(back, 1)
                if not ready:
                    break
            time.sleep(0.005)
        os.close(back)
        if ready != _READY:
            os.close(ours)
            process.kill()
            process.wait()
            raise RuntimeError(f"the guardian of {run_dir} did not start; without it nothing may be changed")
        return cls(run_dir, process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Send the guardian home: everything has been put back. Idempotent."""
        if self._pipe >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, _CLEAN)
            os.close(self._pipe)
            self._pipe = -1
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def recover(run_dir: Path, driver: Driver) -> list[str]:
    """Undo what a daemon left in its journal. Returns what could not be done. UnknownBranch, OSError."""
    with locked(run_dir):
        journal = Journal(run_dir, driver.proof)
        return undo_all(driver, for_version(driver.version), journal) if journal.processes() else []


def _succeeded(run_dir: Path, dead: int) -> bool:
    """Whether another daemon than the dead one has the run directory: it undoes what was left, at its start."""
    pid, _, name = (run_dir / "lock").read_text(errors="replace").strip().partition(" ")
    return name == "detshared" and pid != str(dead)


def _put_back(run_dir: Path, driver: Driver, dead: int) -> list[str]:
    """Undo what the daemon with PID `dead` left, again and again for a while. Returns what could not be done.

    Under the run directory's lock, so that a new daemon and we do not undo each other's work. A command that holds it
    is waited for: it undoes nothing.
    """
    problems: list[str] = []
    for _ in range(_RETRIES):
        try:
            lock = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                problems = recover(run_dir, driver)
            except BlockingIOError:
                if _succeeded(run_dir, dead):
                    return []
                problems = [f"another command holds {run_dir}/lock; `detshare-ctl release --all` undoes the rest"]
            finally:
                os.close(lock)
        except (OSError, ValueError, DriverError, UnknownBranch) as error:
            problems = [str(error)]
        if not problems:
            return []
        time.sleep(_PAUSE_S)
    return problems


def _watch(run_dir: Path, pipe: int, answer: int) -> int:
    # Loaded before the daemon changes anything: when it dies there is no time to import, nor perhaps memory.
    from detshare.ctl.rm.kernel import KernelDriver

    daemon = os.getppid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends everything must not end this first
    with contextlib.suppress(OSError):  # lowering it takes CAP_SYS_RESOURCE
        Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
    driver: Driver | None
    try:
        driver = KernelDriver()
    except DriverError:
        driver = None  # a model daemon: its programs die with it
    os.write(answer, _READY)
    os.close(answer)
    if os.read(pipe, 1) == _CLEAN or driver is None:
        return 0
    problems = _put_back(run_dir, driver, daemon)
    if problems:
        print("detshare guardian: not put back:\n" + "\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(_watch(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
