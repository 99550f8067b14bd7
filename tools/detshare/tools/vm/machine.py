# SPDX-License-Identifier: Apache-2.0
"""One run of a guest: what it is told, what it says, how it ended."""

from __future__ import annotations

import os
import re
import selectors
import shlex
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from detshare.ctl.core.patience import Patience
from detshare.tools.vm import cache, initramfs, tsc
from detshare.tools.vm.checkout import TOP
from detshare.tools.vm.kernels import DEBUG, Kernel
from detshare.tools.vm.loads import Loads
from detshare.tools.vm.options import Options
from detshare.tools.vm.qemu import Machine, Qemu
from detshare.tools.vm.say import warn
from detshare.tools.vm.splat import splat, stall

# s in which QEMU does nothing, and s of processor time without a word of the guest's.
BOOT_LIMIT = 60.0  # the first until the guest is up
BOOT_WORK = 600.0  # the second until then; a boot takes 10
DEBUG_BOOT_WORK = 2400.0  # the same with the instrumented kernel
WORK = 3.0  # the second from then on, in times of the first, which is the run's time-out
LAST_WORDS = 5.0  # the first from the guest's last word to QEMU's end
TIMED_OUT = 124
CLOCK_JUMPED = 75  # EX_TEMPFAIL of sysexits.h: it may go well when tried again
JUMP = 10.0  # s that the guest's clock may be ahead of the host's, which it is by mistake only
_STAMP = re.compile(r"(?:<\d+>)?\[\s*(\d+\.\d+)\]")
_OWN_TMPFS = (Path("/tmp"), Path("/run"), Path("/dev/shm"))
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TERM", "TZ", "NO_COLOR", "CI", "PYTHONPATH")


@dataclass
class Outcome:
    """How a run ended. `status` is what detshare-vm exits with; `command` what the command did, None if it never ended.

    `trouble` says why `status` is not the command's own; `began` is when the command started, seconds from the start.
    """

    status: int
    command: int | None
    trouble: str | None
    began: float | None
    took: float
    log: list[str] = field(default_factory=list)
    splat_at: int | None = None


def environment(source: dict[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """What of this process's environment goes to the guest's command: DETSHARE_* and what a shell needs."""
    given = dict(os.environ) if source is None else source
    kept = {name: value for name, value in given.items() if name in _PASSED or name.startswith("DETSHARE_")}
    kept.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    kept.setdefault("HOME", "/root")
    return tuple(sorted(kept.items()))


def kept_paths(paths: list[Path]) -> list[Path]:
    """Those that a tmpfs of the guest's own would hide, without those that another one of them holds."""
    hidden = sorted({path for path in paths if any(path.is_relative_to(own) for own in _OWN_TMPFS)})
    hidden = [path for path in hidden if path not in _OWN_TMPFS]
    return [path for path in hidden if not any(path != other and path.is_relative_to(other) for other in hidden)]


def settings(options: Options, kernel: Kernel, loads: Loads) -> str:
    """The shell file that the guest's scripts read."""
    told = dict(options.environment)
    told["PATH"] = f"{told.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}:/run/detshare/commands"
    told |= {
        "DETSHARE_VM": "1",
        "DETSHARE_VM_KERNEL": options.kernel,
        "DETSHARE_VM_DRIVER": options.driver,
        "DETSHARE_VM_GPUS": str(options.gpus),
        **loads.environment(),
    }
    # by its path: for a bare name the guest's busybox would take its own env, and its own sh after it
    words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in sorted(told.items())), *options.command]
    mounts = sorted({path.resolve() for path in options.mounts})
    shares = [word for nr, path in enumerate(mounts) for word in (f"share{nr}", str(path))]
    shown = [TOP, options.cwd, cache.root(), *([loads.driver.parent] if loads.driver is not None else [])]
    values = {
        "HOST": "detshare-vm",
        "KEEP": shlex.join(str(path) for path in kept_paths(shown)),
        "SHARES": shlex.join(shares),
        "MODULES": str(kernel.modules),
        "MODULES_AT": f"/lib/modules/{kernel.release}",
        "ORDER": options.order,
        "GPUS": str(options.gpus if options.driver != "none" else 0),
        "CWD": str(options.cwd),
        "TTY": "yes" if options.tty else "no",
        "COMMAND": shlex.join(words),
        **loads.settings(options),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


class _Listener:
    """Reads the guest's channels."""

    def __init__(self, out: BinaryIO, err: BinaryIO, log: BinaryIO | None) -> None:
        self._out, self._err, self._log = out, err, log
        self._partial: dict[str, bytes] = {"log": b"", "control": b""}
        self.lines: list[str] = []
        self.splat_at: int | None = None
        self.stalled = False  # the first report is of processors that stood still before the guest was up
        self.words: dict[str, tuple[str, float]] = {}
        self.jump = 0.0  # s that the guest's clock is ahead of ours
        self.begin = time.monotonic()

    def take(self, name: str, data: bytes) -> None:
        if name in self._partial:
            whole = self._partial[name] + data
            *lines, self._partial[name] = whole.split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r")
                self._log_line(text) if name == "log" else self._control_line(text)
            if name == "log" and self._log is not None:
                self._log.write(data.replace(b"\r\n", b"\n"))
                self._log.flush()
            return
        stream = self._out if name == "out" else self._err
        stream.write(data)
        stream.flush()

    def _log_line(self, text: str) -> None:
        self.lines.append(text)
        if stamp := _STAMP.match(text):
            # the guest's clock began at 0 after us, and lines come late, never early
            self.jump = max(self.jump, float(stamp[1]) - (time.monotonic() - self.begin))
        if self.splat_at is None and splat(text) is not None:
            self.splat_at = len(self.lines) - 1
            self.stalled = "up" not in self.words and stall(text)

    def _control_line(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        self.words[word] = (rest, time.monotonic())


def run(
    options: Options,
    kernel: Kernel,
    loads: Loads,
    out: BinaryIO,
    err: BinaryIO,
    log: BinaryIO | None = None,
    ready: Callable[[float], None] | None = None,
) -> Outcome:
    """Boots a guest and runs the command in it. Output is written to `out` and `err` as it comes.

    A guest whose QEMU ends itself before the command began, or whose processors stand still before it is up, is started
    anew, once; stderr tells. The guest is gone when this returns or raises, whatever the reason.
    """
    begin = time.monotonic()
    mounts = tuple(sorted({path.resolve() for path in options.mounts}))
    hardware = Machine(
        options.memory,
        options.cpus,
        mounts,
        loads.reserved,
        options.tty,
        tsc.khz(),
        loads.forwarding,
        None if options.disk is None else options.disk.resolve(),
    )
    with cache.in_use(), tempfile.TemporaryDirectory(prefix="detshare-vm-") as folder:
        image = initramfs.image(kernel, settings(options, kernel, loads), Path(folder) / "image")
        for again in (True, False):
            listener = _Listener(out, err, log)
            guest = Qemu(kernel, image, hardware)
            try:
                late = _listen(guest, listener, begin, options, ready)
            finally:
                complaint = guest.end()
                err.write(guest.helper_said.encode())
                err.flush()
            never = _never_began(guest, listener, late, options)
            if never is None or not again:
                break
            warn(f"{never}; the guest is started once more{_said(complaint)}")
    began = listener.words["begin"][1] - begin if "begin" in listener.words else None
    status, command, trouble = _verdict(listener, late, complaint)
    if status and listener.jump > JUMP:
        status, trouble = CLOCK_JUMPED, _jumped(listener.jump, trouble or f"the command exited with {command}")
    took = time.monotonic() - begin
    return Outcome(status, command, trouble, began, took, listener.lines, listener.splat_at)


def _never_began(guest: Qemu, listener: _Listener, late: str, options: Options) -> str | None:
    """What of the emulator's doing ended a run before anything was tested; None where nothing did.

    Nothing of ours is loaded before the guest is up. QEMU 10.0 was seen to lose the timer of a CPU while the kernel
    booted: the CPU sleeps for good, and the other one reports a stall, if it can.
    """
    silent = late and "up" not in listener.words and options.timeout > BOOT_LIMIT
    if listener.stalled or (silent and listener.splat_at is None):
        return "the guest's processors stood still before it was up"
    if guest.aborted and "begin" not in listener.words and listener.splat_at is None:
        return "QEMU ended itself before the command began"
    return None


def _listen(
    guest: Qemu, listener: _Listener, begin: float, options: Options, ready: Callable[[float], None] | None
) -> str:
    """Until QEMU ends. Why it had to be ended instead, in words that follow "it"; empty where it had not."""
    pid, stage = guest.process.pid, ""
    with selectors.DefaultSelector() as selector:
        for name, channel in guest.channels.items():
            selector.register(channel, selectors.EVENT_READ, name)
        while selector.get_map():
            words = listener.words
            if listener.stalled:
                return "stalled"
            stands = "ends" if "exit" in words or "failed" in words else "runs" if "up" in words else "boots"
            if stands != stage:
                stage, patience = stands, _patience(stands, options, pid)
            if why := patience.spent():
                return "" if stage == "ends" else why
            for chosen, _ in selector.select(0.25):
                told = "begin" in words
                channel = guest.channels[chosen.data]
                data = channel.recv(1 << 16)
                if data:
                    listener.take(chosen.data, data)
                    patience.progress()
                else:
                    selector.unregister(channel)
                if ready is not None and not told and "begin" in words:
                    ready(words["begin"][1] - begin)
    return ""


def _patience(stage: str, options: Options, pid: int) -> Patience:
    """How long a guest is waited for while it boots, runs, ends: however slow, as long as it works or says something.

    What it says makes nobody wait longer for one that only sleeps.
    """
    match stage:
        case "boots":
            work = DEBUG_BOOT_WORK if options.kernel == DEBUG else BOOT_WORK
            return Patience(min(BOOT_LIMIT, options.timeout), pid, work)
        case "runs":
            return Patience(options.timeout, pid, WORK * options.timeout)
        case _:
            return Patience(LAST_WORDS, pid)


def _verdict(listener: _Listener, late: str, complaint: str) -> tuple[int, int | None, str | None]:
    words = listener.words
    command = int(words["exit"][0]) if "exit" in words else None
    if listener.splat_at is not None:
        said = splat(listener.lines[listener.splat_at])
        how = f"the command exited with {command}" if command is not None else "the command did not end"
        return 1, command, f"the kernel reported a fault: {said} ({how})"
    if late and "up" not in words:
        return TIMED_OUT, None, f"the guest did not come up: it {late}{_said(complaint)}"
    if late:
        return TIMED_OUT, None, f"the command did not end: the guest {late}, and was ended"
    if "failed" in words:
        return 1, None, f"the guest could not go on: {words['failed'][0]}"
    if command is None:
        return 1, None, f"the guest ended before the command did{_said(complaint)}"
    return command, command, None


def _jumped(seconds: float, trouble: str) -> str:
    """QEMU passes the host's time stamp counter on, and takes one that goes back for time that has passed."""
    return (
        f"the guest's clock jumped {seconds:.0f} s ahead, because this machine's time stamp counters went apart; what "
        f"it led to says nothing of what ran there, run it again: {trouble}"
    )


def _said(complaint: str) -> str:
    return f"; QEMU said: {complaint}" if complaint else ""
