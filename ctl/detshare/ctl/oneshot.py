# SPDX-License-Identifier: Apache-2.0
"""Backends by name, and commands without a daemon: one look, one verb, and what was set stands."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from detshare.ctl.backends.verbs import EXPECTED, explain
from detshare.ctl.client import Client
from detshare.ctl.core import config as configuration
from detshare.ctl.core import procfs, rundir
from detshare.ctl.core.backend import Backend
from detshare.ctl.core.config import ConfigError
from detshare.ctl.core.config_files import check_certificate, doubts
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check, Event, Snapshot, State
from detshare.ctl.core.verbs import describe, request
from detshare.ctl.rm.nvml import Nvml

AUTO: Final = "auto"
REAL: Final = ("kmod", "root")
"""backends that act on this machine's driver, which may itself be a simulated one"""
BACKENDS: Final = (AUTO, *REAL, "model")


class Guard(Protocol):
    """The guardian process as its starter sees it."""

    @property
    def pid(self) -> int: ...
    def alive(self) -> bool: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A backend, and for the simulation what its programs measure."""

    backend: Backend
    readings: Callable[[], dict[str, Any]] | None = None
    why: str = ""
    """why this backend and no other"""


def resolve(name: str, *, model_too: bool = False) -> tuple[str, str]:
    """The backend that a name stands for on this machine, and why.

    `auto` is kmod where detshare.ko is loaded, else root; with `model_too` the model where there is no driver at all.
    """
    if name != AUTO:
        return name, f"--backend {name} was given"
    from detshare.ctl.netlink import presence

    if presence.loaded():
        return "kmod", f"detshare.ko is loaded (generic netlink has its family {presence.FAMILY})"
    absent = "detshare.ko is not loaded"
    if model_too and procfs.driver_version() is None:
        return "model", f"{absent} and there is no NVIDIA driver here"
    return "root", absent


def build_backend(name: str, run_dir: Path, *, repair: bool = True) -> Built:
    """The backend of that name. `repair`: first undo what a killed daemon left. ControlError where it cannot be had."""
    name, why = resolve(name)
    asked = f"use the backend {name}"
    if name == "model":
        from detshare.ctl.backends.model.live import LiveModel
        from detshare.ctl.backends.root.backend import RootBackend

        model = LiveModel()
        steered = RootBackend(model, run_dir, name="model", repair=repair, rotates=repair)
        return Built(steered, lambda: _plain(model.readings()), why)
    if name not in REAL:
        raise ControlError(asked, "there is none", f"backends are {', '.join(BACKENDS)}", usage=True)
    require_root(asked)
    from detshare.ctl.backends.root.backend import RootBackend
    from detshare.ctl.rm.kernel import KernelDriver

    try:
        if name == "kmod":
            from detshare.ctl.backends.module.backend import KmodBackend
            from detshare.ctl.netlink.link import Link

            return Built(KmodBackend(Link(), KernelDriver(), run_dir, repair=repair, senses=repair), why=why)
        return Built(RootBackend(KernelDriver(), run_dir, repair=repair, rotates=repair), why=why)
    except EXPECTED as error:
        raise explain(error, asked) from error


def _plain(readings: Mapping[int, Any]) -> dict[str, Any]:
    """PID -> what that program measures, as JSON has it."""
    return {str(pid): dataclasses.asdict(reading) for pid, reading in readings.items()}


def kernel_events(asked: str) -> Iterator[Event]:
    """What the kernel module tells from now on, without end. ControlError where it cannot be heard."""
    from detshare.ctl.netlink.events import Listener

    require_root(asked)
    try:
        with Listener() as listener:
            while True:
                listener.wait()
                yield from listener.drain()
    except EXPECTED as error:
        raise explain(error, asked) from error


def start_guardian(run_dir: Path, asked: str) -> Guard:
    """The process that restores every program when this one is killed. ControlError where it does not start."""
    from detshare.ctl.backends.root.guardian import Guardian

    try:
        return Guardian.start(run_dir)
    except (OSError, RuntimeError) as error:
        following = "see the lines above; is there memory, and a right to start processes?"
        raise ControlError(asked, str(error), following) from error


def start_command(backend: str, run_dir: Path) -> str:
    """What to type to get a daemon there."""
    words = f"detshared --backend {backend}" if backend == "model" else "sudo detshared"
    return words if run_dir == rundir.DEFAULT_RUN_DIR else f"{words} --run-dir {shlex.quote(str(run_dir))}"


def require_root(asked: str) -> None:
    """ControlError unless we are root: other users' programs cannot be asked otherwise."""
    if os.geteuid() != 0:
        stopped = f"that needs root (you are uid {os.geteuid()}): it asks on other programs' descriptors"
        raise ControlError(asked, stopped, "run it with sudo; to see it at work without: --backend model")


class OneShot:
    """Does what the daemon does, once, in this process. Use as a context; what was set stands after it."""

    def __init__(self, backend: Backend, guard: Guard | None = None, *, changes: bool = True, why: str = "") -> None:
        """`changes`: we hold the lock, so a look may apply what was asked for. `why`: see Built."""
        self.backend = backend
        self.why = why
        self._changes = changes
        self.guard = guard
        self.holds_pause = False
        """something may be paused by us: the guardian goes home only when it is not"""

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, backend: str, run_dir: Path, asked: str, *, lock: bool, guarded: bool = False
    ) -> Iterator[Self]:
        """Build the backend; with `lock`, as the only one in this run directory (Held otherwise).

        Who has no lock makes no run directory: there is nothing in it that a look could need.
        """
        with contextlib.ExitStack() as stack:
            if backend != "model":
                require_root(asked)
            rundir.prepare(run_dir, asked, make=lock)
            if lock:
                name = f"{rundir.COMMAND} {asked.partition(' ')[0]}"
                name = f"held {name}" if guarded else name  # until somebody ends it
                for path in [run_dir / "lock", *([rundir.MACHINE] if backend != "model" else [])]:
                    mine = rundir.Lock(path, name)
                    mine.acquire(asked)
                    stack.callback(mine.release)
            guard = start_guardian(run_dir, asked) if guarded else None
            try:
                made = build_backend(backend, run_dir, repair=False)
            except BaseException:
                if guard is not None:
                    guard.stop()
                raise
            shot = cls(made.backend, guard, changes=lock, why=made.why)
            stack.callback(shot._close)
            yield shot

    def _close(self) -> None:
        self.backend.close(restore=False)
        if self.guard is not None and not self.holds_pause:
            self.guard.stop()

    def programs(self) -> dict[str, Any]:
        """One look at the machine."""
        try:
            return self.backend.look(enforce=self._changes).to_json()
        except EXPECTED as error:
            raise explain(error, "list programs") from error

    def verb(self, name: str, who: str, **args: object) -> dict[str, Any]:
        """Look, then do the verb. ControlError where it is refused."""
        try:
            self.backend.look()
            asked = request(name, who, **args)
            self.holds_pause |= name == "pause"
            outcome = self.backend.do(asked)
            programs = self.backend.look().programs  # does the rest where the verb saw only a part
            self.holds_pause = any(p.state is State.PAUSED for p in programs)
            return outcome.to_json()
        except EXPECTED as error:
            raise explain(error, describe(name, who, args)) from error


def doctor(backend: str, run_dir: Path) -> dict[str, Any]:
    """Checks without a daemon; also where no backend can be had, since that is when people ask."""
    checks = [daemon_check(run_dir, backend), configuration_check()]
    try:
        with OneShot.open(backend, run_dir, "doctor", lock=False) as shot:
            checks += [*machine_checks(shot.backend.look(enforce=False), shot.why), *shot.backend.doctor()]
    except EXPECTED as error:
        told = explain(error, "doctor")
        checks += [Check("backend", False, f"{backend}: {told.stopped}", told.next_step), nodes_check()]
    except ControlError as error:
        checks += [Check("backend", False, f"{backend}: {error.stopped}", error.next_step), nodes_check()]
    return {"checks": [check.to_json() for check in checks]}


def machine_checks(snapshot: Snapshot, why: str = "") -> list[Check]:
    """What is in force here, and `why`, and what the look warns of; the backend has its own. Blocking: it asks NVML."""
    checks = [backend_check(snapshot.backend, snapshot.proof, why)]
    checks += [Check("warning", None, text) for text in snapshot.warnings]
    if snapshot.backend in REAL or snapshot.proof != "model":
        nvml = Nvml()
        known = len(nvml.memory_total())
        checks.append(nodes_check())
        if nvml.problem:  # a remark: everything but two columns works without it
            advice = "install the driver's libnvidia-ml.so.1 to see memory and GPU share"
            checks.append(Check("nvml", None, nvml.problem, advice))
        else:
            checks.append(Check("nvml", True, f"answers for {known} GPU(s)"))
    mps = [p for p in snapshot.programs if p.state in (State.MPS_SERVER, State.MPS_CLIENT)]
    text = f"{len(mps)} process(es): slices act on the server as one tenant, pause is refused"
    return [*checks, Check("mps", None, text if mps else "no MPS server has the GPU")]


def configuration_check(path: Path | None = None, unread: Callable[[], Sequence[str]] = tuple) -> Check:
    """Whether a daemon could start with its file as it is now; `path` None: the one at its usual place.

    `unread`: keys of the file that a living daemon has otherwise in force.
    """
    name = "configuration"
    try:
        found = configuration.load(path)
        check_certificate(found)
        differing, odd = unread(), doubts(found)
    except ConfigError as error:
        text = f"{error.stopped}; a daemon that runs keeps what it has, none starts"
        return Check(name, False, text, error.next_step)
    if differing:
        text = f"{found.path or configuration.DEFAULT_PATH}: not in force: {', '.join(differing)}"
        return Check(name, None, text, "detshare-ctl config reload; it says what waits for a restart of detshared")
    if odd and found.path is not None:
        text = "; ".join(each.text(found.path) for each in odd)
        return Check(name, None, text, f"correct it, then: detshare-ctl config check {shlex.quote(str(found.path))}")
    if found.path is None:
        return Check(name, None, f"there is no {configuration.DEFAULT_PATH}: everything is as by default")
    return Check(name, True, f"{found.path}: nothing is wrong")


def nodes_check() -> Check:
    """The device files that every GPU program opens."""
    found = sorted(path.name for path in Path("/dev").glob("nvidia*") if not path.is_dir())
    gpus = [name for name in found if name.removeprefix("nvidia").isdecimal()]
    ok = "nvidiactl" in found and bool(gpus)
    detail = ", ".join(f"/dev/{name}" for name in found) or "there is no /dev/nvidia*"
    return Check("devices", ok, detail, "" if ok else "make them: nvidia-modprobe -c0 -u, or run nvidia-smi once")


def backend_check(name: str, proof: str, why: str = "") -> Check:
    """Which backend is in force and why, and whether what it shows is real."""
    because = f"; in force because {why}" if why else ""
    if name == "kmod":
        text = f"kmod (proof level {proof}): the kernel holds memory limits, also against a hostile program"
        return Check("backend", True, text + because)
    if proof == "model" and name not in REAL:
        text = f"{name}: a simulation (proof level model); no GPU, no real program is touched"
        return Check("backend", None, text + because)
    text = f"{name} (proof level {proof}): steers cooperating programs; it does not hold a hostile tenant"
    return Check("backend", True, f"{text}; no memory limits{because}")


def daemon_check(run_dir: Path, backend: str) -> Check:
    """Whether a daemon answers in this run directory; one-shot commands work without."""
    client = Client(run_dir)
    try:
        alive = client.alive()
    except ControlError as error:
        return Check("daemon", False, error.stopped, error.next_step)
    if alive:
        return Check("daemon", True, f"answers on {client.socket}")
    advice = f"for pause, weights and programs to come, start it: {start_command(backend, run_dir)}"
    return Check("daemon", None, f"none on {client.socket}; commands act once, by themselves", advice)
