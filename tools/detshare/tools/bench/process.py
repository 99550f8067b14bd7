# SPDX-License-Identifier: Apache-2.0
"""Starting a workload, waiting until it is ready, collecting its lines, ending it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from detshare.tools.bench.lines import Line, events

__all__ = ["READY_SECONDS", "Line", "Program", "ProgramError"]

READY_SECONDS = 180.0
END_SECONDS = 15.0


class ProgramError(RuntimeError):
    """A workload did not start, ended too early or ended badly; the text ends with its own last words."""


class Program:
    """A running workload. Its lines are read by a thread, so that it never blocks on its output.

    :param name: what results call it.
    :param argv: the command, started with ``env`` added to ours.
    :param record: called with each line, the program's name and PID added; from the reader's thread.
    :param told: whether it takes orders by `tell`, from its standard input.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        record: Callable[[Line], None] | None = None,
        told: bool = False,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self._record = record
        self._lines: list[Line] = []
        self._news = threading.Condition()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in stop)
        self._process = subprocess.Popen(
            self.argv,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._process.pid
        self._stopped = False
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in events(self._process.stdout):
            if self._record is not None:
                self._record({"program": self.name, "of": self.pid, **line})
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """Its exit status, None while it lives."""
        return self._process.poll()

    def lines(self, event: str, since: float = -1.0, key: str = "t") -> list[Line]:
        """The lines of one kind so far whose time ``key`` is not before ``since``."""
        with self._news:
            return [ln for ln in self._lines if ln["event"] == event and ln.get(key, since) >= since]

    def wait_for(
        self,
        event: str,
        timeout: float,
        since: float = -1.0,
        key: str = "t",
        accept: Callable[[Line], bool] = lambda _line: True,
    ) -> Line:
        """The first line of that kind that is not before ``since`` and accepted.

        :raises ProgramError: none came within ``timeout`` seconds, or the program ended.
        """
        until = time.monotonic() + timeout
        looked = 0
        while True:
            with self._news:
                while looked < len(self._lines):
                    line = self._lines[looked]
                    looked += 1
                    if line["event"] == event and line.get(key, since) >= since and accept(line):
                        return line
                if self._ended:
                    raise ProgramError(f"{self.name} ended before it said {event!r}: {self.last_words()}")
                left = until - time.monotonic()
                if left <= 0:
                    raise ProgramError(f"{self.name} did not say {event!r} within {timeout:g} s: {self.last_words()}")
                self._news.wait(left)

    def ready(self, timeout: float = READY_SECONDS) -> Line:
        """Wait for the ready line."""
        return self.wait_for("ready", timeout)

    @property
    def programs(self) -> list[int]:
        """The PIDs that use the GPU for this workload: its own, unless its ready line names others."""
        found = self.lines("ready")
        return [int(pid) for pid in found[0].get("programs", [self.pid])] if found else [self.pid]

    def windows(self, begin: float, end: float, patience: float = 0.0) -> list[Line]:
        """The windows that lie within [begin, end]; where there is none, the first that overlaps it and comes in time.

        A starved program ends its window with its next unit of work, after ``end``: ``patience`` seconds are waited.
        """
        within = [ln for ln in self.lines("window", begin, "t0") if ln["t1"] <= end]
        if within:
            return within
        try:
            return [
                self.wait_for("window", patience, begin, "t1", lambda ln: bool(ln["t1"] > begin and ln["t0"] < end))
            ]
        except ProgramError:
            if not self.alive:
                raise
            return []

    def signal(self, number: int) -> None:
        """Send a signal; nothing where the process has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def tell(self, **order: object) -> None:
        """Write an order as a line of JSON. ProgramError where nobody reads it any more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ProgramError(f"{self.name} takes no orders ({error}): {self.last_words()}") from error

    def hold(self) -> None:
        """Stop its host threads (SIGSTOP): what is queued on the GPU runs out, then the GPU is free of it."""
        self._stopped = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `hold`."""
        self._stopped = False
        self.signal(signal.SIGCONT)

    def stop(self, timeout: float = END_SECONDS) -> Line:
        """End it with SIGTERM and return its summary.

        :raises ProgramError: it had to be killed, ended with an error, or gave no summary.
        """
        code = self.end(timeout)
        found = self.lines("summary")
        if code or not found:
            raise ProgramError(f"{self.name} ended with {code} and {len(found)} summaries: {self.last_words()}")
        return found[-1]

    def end(self, timeout: float = END_SECONDS) -> int:
        """End it with SIGTERM, with SIGKILL where that takes too long; its exit code."""
        if self._stopped:
            self.go_on()
        self.signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(5.0)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        return code

    def last_words(self) -> str:
        """The end of its standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 600))
        return self._errors.read().decode(errors="replace").strip() or "(nothing on its standard error)"
