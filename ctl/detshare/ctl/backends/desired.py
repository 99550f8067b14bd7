# SPDX-License-Identifier: Apache-2.0
"""What operators asked for, per process, container and job, kept over restarts of the daemon.

Pauses are not kept: a program must never stay stopped because somebody restarted something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from detshare.ctl.core import classes, jobs, select
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Level


@dataclass(frozen=True, slots=True)
class Desired:
    """A class (with a weight in the turns, and a floor), a weight, or a raw slice; None everywhere: only pausing."""

    klass: str | None = None
    weight: int | None = None
    tenant: str = ""
    """programs of one tenant share its weight and have their turns together; empty: see root/turns/tenancy.py"""
    slice_us: int | None = None
    level: Level | None = None
    paused: bool = False
    ceiling: int | None = None
    """percent of the TPCs, besides the others; only backend kmod can"""
    floor: float | None = None
    """share of time, 0..1, that it has at least while a higher class leaves nothing; None: as its class"""

    @property
    def steers(self) -> bool:
        """Whether there is anything to set."""
        return any(value is not None for value in (self.klass, self.weight, self.slice_us, self.ceiling))

    @property
    def text(self) -> str:
        """In words: "class high", "weight 3", "slice 200 us", "class low, ceiling 40 %"."""
        parts = [f"class {self.klass}"] if self.klass is not None else []
        parts += [f"weight {self.weight}"] if self.weight is not None else []
        parts += [f"floor {100 * self.floor:g} %"] if self.floor is not None else []
        parts += [f"slice {self.slice_us} us"] if self.slice_us is not None else []
        parts += [f"ceiling {self.ceiling} %"] if self.ceiling is not None else []
        return ", ".join(parts) or "nothing"


def _checked(entry: dict[str, Any]) -> Desired:
    """The Desired of a file's entry. BadRequest, TypeError, ValueError where it is none."""
    level = entry.pop("level", None)
    desired = Desired(**entry, level=None if level is None else Level(level))
    if desired.klass is not None:
        classes.check_name(desired.klass)
    if desired.weight is not None:
        classes.check_range("weight", desired.weight, classes.WEIGHTS)
    if desired.slice_us is not None:
        classes.check_range("slice", desired.slice_us, classes.SLICES_US)
    if desired.ceiling is not None:
        classes.check_range("ceiling", desired.ceiling, classes.PERCENTS)
    if desired.floor is not None:
        classes.check_floor(desired.floor)
    if not isinstance(desired.tenant, str):
        raise TypeError("tenant")
    return replace(desired, paused=False)


class Job(NamedTuple):
    """A job as long as its launcher lives: another one may have its name later."""

    name: str
    """as jobs.of"""
    launcher: ProcessId


_MOST_KNOWN: Final = 4096


class DesiredState:
    """The desired state of one run directory about one driver ("gpu" or "model")."""

    def __init__(self, run_dir: Path, driver: str) -> None:
        self._path = run_dir / f"desired-{driver}.json"
        self._by_process: dict[ProcessId, Desired] = {}
        self._by_container: dict[str, Desired] = {}
        self._by_job: dict[Job, Desired] = {}
        self._jobs: dict[ProcessId, Job | None] = {}
        """of processes that were asked about; of one that ended the number is never asked about again"""
        self._standing: list[tuple[select.Selector, Desired]] = []
        self._left: set[ProcessId] = set()
        self._load()

    def _load(self) -> None:
        try:
            entries = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (ValueError, RecursionError):
            entries = None
        if not isinstance(entries, list):
            self._path.replace(self._path.with_suffix(".unreadable"))
            return
        for entry in entries:
            try:
                container, job = entry.pop("container", None), entry.pop("job", None)
                pid, start = entry.pop("pid", 0), entry.pop("start", 0)
                desired = _checked(entry)
                if isinstance(container, str):
                    self._by_container[container] = desired
                elif isinstance(job, str):
                    self._by_job[Job(job, ProcessId(int(pid), int(start)))] = desired
                else:
                    self._by_process[ProcessId(int(pid), int(start))] = desired
            except (AttributeError, TypeError, ValueError, OverflowError, BadRequest):
                continue  # written by another version or by hand: better forgotten than misread

    def _save(
        self,
        processes: dict[ProcessId, Desired],
        containers: dict[str, Desired],
        of_jobs: dict[Job, Desired] | None = None,
    ) -> None:
        """Write first, then take over: what cannot be kept is not done. `of_jobs` None: as they are. OSError."""
        of_jobs = self._by_job if of_jobs is None else of_jobs

        def plain(desired: Desired) -> dict[str, Any]:
            return {key: value for key, value in asdict(desired).items() if key != "paused" and value not in (None, "")}

        entries = [{"pid": p.pid, "start": p.start, **plain(w)} for p, w in processes.items() if w.steers]
        entries += [{"container": c, **plain(w)} for c, w in containers.items()]
        entries += [
            {"job": j.name, "pid": j.launcher.pid, "start": j.launcher.start, **plain(w)} for j, w in of_jobs.items()
        ]
        if entries:
            draft = self._path.with_suffix(".new")
            draft.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
            draft.chmod(0o600)
            draft.replace(self._path)
        else:
            self._path.unlink(missing_ok=True)
        self._by_process, self._by_container, self._by_job = processes, containers, of_jobs

    def get(self, process: ProcessId) -> Desired:
        """What was asked for a process; an empty Desired where nothing was."""
        return self._by_process.get(process, Desired())

    def steer(self, process: ProcessId, desired: Desired) -> None:
        """Replace class, weight or slice; whether it is paused stays. OSError: nothing was kept."""
        desired = replace(desired, paused=self.get(process).paused)
        if desired != self.get(process):
            self._save({**self._by_process, process: desired}, self._by_container)

    def container(self, container: str, desired: Desired | None) -> None:
        """Set, or with None drop, what programs born in a container get. OSError: nothing was kept."""
        others = {c: w for c, w in self._by_container.items() if c != container}
        if desired is not None or container in self._by_container:
            self._save(self._by_process, others if desired is None else {**others, container: desired})

    def job(self, rank: ProcessId, desired: Desired | None) -> bool:
        """Set, or with None drop, what ranks get that whoever started the job of this one starts later, in it. False:
        nobody can tell who that is, or nothing was to be dropped. OSError: nothing was kept.
        """
        job = self._job(rank)
        if job is None or (desired is None and job not in self._by_job):
            return False
        if self._by_job.get(job) != desired:
            others = {j: w for j, w in self._by_job.items() if j != job}
            self._save(self._by_process, self._by_container, others if desired is None else {**others, job: desired})
        return True

    def end_jobs(self, alive: Callable[[ProcessId], bool]) -> None:
        """Drop jobs whose launchers have ended. OSError: they are still kept."""
        living = {j: w for j, w in self._by_job.items() if alive(j.launcher)}
        if len(living) < len(self._by_job):
            self._save(self._by_process, self._by_container, living)

    def _job(self, process: ProcessId) -> Job | None:
        if process not in self._jobs:
            if len(self._jobs) >= _MOST_KNOWN:
                self._jobs.clear()
            name = jobs.of(process.pid)
            launcher = jobs.launcher(process.pid) if name else None
            self._jobs[process] = Job(name, launcher) if launcher is not None else None
        return self._jobs[process]

    def forget_containers(self) -> None:
        """Drop what programs born in containers, and ranks of jobs, would get. OSError."""
        self._save(self._by_process, {}, {})

    def containers(self) -> dict[str, Desired]:
        """What was asked for containers, and by backend kmod for cgroups ("/path") and tenants ("tenant:name")."""
        return dict(self._by_container)

    def of_container(self, container: str) -> Desired | None:
        """What a program in a container with this id gets, where it has no desired state of its own."""
        return next((w for c, w in self._by_container.items() if container and container.startswith(c)), None)

    def stand(self, rules: Mapping[str, str]) -> None:
        """From now on: command pattern -> class of programs of which nobody asked anything. Not kept in the file."""
        self._standing = [(select.by_command(pattern), Desired(klass=klass)) for pattern, klass in rules.items()]

    def born(self, program: select.Named) -> Desired | None:
        """What a program for which nothing was asked gets: its job's, else its container's, else that of the first
        pattern matched.
        """
        left = program.id in self._left
        job = self._job(program.id) if self._by_job and not left else None
        if job is not None and job in self._by_job:
            return self._by_job[job]
        desired = self.of_container(program.container)
        if desired is not None or left:
            return desired
        return next((desired for selector, desired in self._standing if selector.matches(program)), None)

    def leave(self, process: ProcessId) -> None:
        """Forget a process that is to be as nobody's: no pattern counts for it any more. OSError: it is still kept."""
        self.drop(process)
        self._left.add(process)

    def pause(self, process: ProcessId, paused: bool) -> None:
        """Remember, in this daemon only, whether a process is to be held."""
        self._by_process[process] = replace(self.get(process), paused=paused)

    def drop(self, process: ProcessId) -> None:
        """Forget a process. OSError: it is still kept."""
        if process in self._by_process:
            self._save({p: w for p, w in self._by_process.items() if p != process}, self._by_container)

    def processes(self) -> list[ProcessId]:
        """Every process that something was asked for."""
        return list(self._by_process)

    def tenant(self, name: str) -> list[ProcessId]:
        """The processes that share one tenant's weight."""
        return [p for p, w in self._by_process.items() if name and w.tenant == name]
