# SPDX-License-Identifier: Apache-2.0
"""A daemon of the experiment's own, and the user's commands: by detshare-ctl, or by its socket where they are many."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from detshare.ctl.client import Client, ClientError

__all__ = ["SENSOR", "Steer", "SteerError", "compute"]

Json = dict[str, Any]
START_SECONDS = 30.0
STOP_SECONDS = 40.0
SENSOR: Final = "sensor"
"""among the daemon's threads: reading the context-switch logs, whichever thread does it"""
LOOKS: Final = "looks"


class SteerError(RuntimeError):
    """The daemon did not start or stop, or a command failed; the text says which and what it answered."""


def compute(program: Json) -> list[Json]:
    """The compute TSGs with channels of a program of ``ps``."""
    return [tsg for tsg in program["tsgs"] if tsg["kind"] == "compute" and tsg["channels"]]


class Steer:
    """Starts and ends detshared on ``run_dir`` and gives it commands."""

    daemon: tuple[str, ...] = ("-m", "detshare.ctl.daemon.detshared")
    """what Python runs as such"""

    def __init__(self, run_dir: Path, backend: str = "root") -> None:
        self.run_dir = run_dir
        self.backend = backend
        self.config: Path | None = None
        """its configuration; None: that of the machine"""
        self.client = Client(run_dir)
        self._daemon: subprocess.Popen[bytes] | None = None
        self.log = run_dir / "detshared.log"

    def start(self) -> None:
        """Start detshared and wait until it answers. SteerError with the end of its log where it does not."""
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [
            sys.executable,
            *self.daemon,
            "--run-dir",
            str(self.run_dir),
            "--backend",
            self.backend,
            *(["--config", str(self.config)] if self.config is not None else []),
        ]
        with self.log.open("ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client.programs()
                return
            except ClientError as error:
                code = self._daemon.poll()
                if code is not None or time.monotonic() > until:
                    said = f"it ended with {code}" if code is not None else f"no answer in {START_SECONDS:g} s: {error}"
                    self.kill()
                    raise SteerError(f"detshared did not start: {said}; its log ends: {self.log_end()}") from error
            time.sleep(0.02)

    @property
    def pid(self) -> int | None:
        """PID of the living daemon, None where there is none."""
        return self._daemon.pid if self._daemon is not None and self._daemon.poll() is None else None

    def stop(self) -> None:
        """End the daemon as a user does (SIGTERM): it restores every program. SteerError where that takes too long."""
        if self._daemon is None:
            return
        daemon, self._daemon = self._daemon, None
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
        try:
            code = daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            raise SteerError(
                f"detshared did not end within {STOP_SECONDS:g} s; its log ends: {self.log_end()}"
            ) from None
        if code:
            raise SteerError(f"detshared ended with {code}; its log ends: {self.log_end()}")

    def kill(self) -> float:
        """kill -9; the CLOCK_MONOTONIC time just before."""
        when = time.monotonic()
        if self._daemon is not None:
            if self._daemon.poll() is None:
                os.kill(self._daemon.pid, signal.SIGKILL)
            self._daemon.wait()
            self._daemon = None
        return when

    def ctl(self, *words: str) -> Json:
        """``detshare-ctl WORDS --json`` as a user types it; SteerError where it exits with non-zero."""
        command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(self.run_dir), *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
        if done.returncode:
            raise SteerError(f"detshare-ctl {' '.join(words)} exited with {done.returncode}: {done.stderr.strip()}")
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def verb(self, name: str, pid: int, **arguments: object) -> Json:
        """The same through the daemon's socket: for many changes in a row. SteerError where nothing was changed."""
        return self.command(name, str(pid), **arguments)

    def command(self, name: str, who: str, **arguments: object) -> Json:
        """`verb` for what is no single PID: a class, or all (``*``)."""
        try:
            answer = self.client.verb(name, who, **arguments)
        except ClientError as error:
            raise SteerError(str(error)) from error
        if not answer["changed"]:
            raise SteerError(f"{name} {who} changed nothing: {answer['skipped']}")
        return answer

    def release(self, pid: int) -> None:
        """Back to what was before DetShare; nothing to release is fine."""
        try:
            self.client.verb("release", str(pid))
        except ClientError as error:
            raise SteerError(str(error)) from error

    def policy(self, name: str, params: dict[str, str] | None = None) -> Json:
        """Let a policy decide; how it stands. SteerError where it cannot be had."""
        try:
            return self.client.policy_set(name, params)
        except ClientError as error:
            raise SteerError(str(error)) from error

    def policy_status(self) -> Json:
        """How the policy stands: what it did, what was refused. SteerError where no daemon answers."""
        try:
            status = self.client.policy()["policy"]
        except ClientError as error:
            raise SteerError(str(error)) from error
        assert isinstance(status, dict)
        return status

    def let_decide(self, pid: int) -> None:
        """Take a program out of a person's hands: from now on the policy may change what was set for it."""
        try:
            self.client.policy_resume(str(pid))
        except ClientError as error:
            raise SteerError(str(error)) from error

    def deadline(self, pid: int, us: float | None) -> None:
        """State in what time a program's requests are to be done; None: no goal. SteerError."""
        try:
            self.client.policy_deadline(str(pid), us)
        except ClientError as error:
            raise SteerError(str(error)) from error

    def ps(self) -> Json:
        """What ``ps --json`` says now. SteerError where no daemon answers."""
        try:
            return self.client.programs()
        except ClientError as error:
            raise SteerError(str(error)) from error

    def threads(self) -> dict[str, float]:
        """Thread of the daemon, or SENSOR -> its CPU time so far, in seconds; LOOKS -> how many it took.

        SteerError where no daemon answers.
        """
        try:
            families = text_string_to_metric_families(self.client.metrics())
        except ClientError as error:
            raise SteerError(str(error)) from error
        named = {"daemon_thread_cpu_seconds": "", "sensor_cpu_seconds": SENSOR, "looks": LOOKS}
        named = {f"detshare_{name}": key for name, key in named.items()}
        mine = [each for each in families if each.name in named]
        return {s.labels.get("thread", named[each.name]): s.value for each in mine for s in each.samples}

    def program(self, pid: int) -> Json | None:
        """The program of ``pid`` in ``ps``."""
        return next((program for program in self.ps()["programs"] if program["pid"] == pid), None)

    def adopted(self, pid: int, tsgs: int = 1, timeout: float = 5.0) -> Json:
        """Wait until ``ps`` shows that many compute TSGs of ``pid``; ``seen`` (monotonic seconds) is added."""
        until = time.monotonic() + timeout
        while True:
            program, seen = self.program(pid), time.monotonic()
            if program is not None and len(compute(program)) >= tsgs:
                return {**program, "seen": seen}
            if seen > until:
                shown = "nothing" if program is None else f"state {program['state']}, notes {program['notes']}"
                raise SteerError(f"{pid} was not seen with {tsgs} compute TSGs within {timeout:g} s; ps shows {shown}")
            time.sleep(0.02)

    def log_end(self) -> str:
        """The end of the daemon's log."""
        try:
            return self.log.read_text(errors="replace")[-800:]
        except OSError as error:
            return f"(no log: {error})"
