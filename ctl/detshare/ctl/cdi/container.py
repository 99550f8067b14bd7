# SPDX-License-Identifier: Apache-2.0
"""A container that is being made, as its runtime tells a hook, and what is asked for it of the daemon or the module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from detshare.ctl.core import cgroups, procfs, sizes
from detshare.ctl.core.errors import ControlError

__all__ = ["Container", "Wanted", "forget", "give"]

LARGEST: Final = 1 << 20
"""bytes of a state"""
BY_PATH: Final = "kmod"
"""the backend that knows cgroups; the others know programs by the container's id in their cgroup's path"""


class Control(Protocol):
    """What is asked: the daemon, or a backend of this process."""

    def programs(self) -> Mapping[str, Any]: ...
    def verb(self, name: str, who: str, **args: object) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What its device says."""

    priority: str
    memory: int | None = None
    weight: int | None = None
    floor: float | None = None

    @property
    def text(self) -> str:
        """In words: "class high, memory limit 20G"."""
        parts = [f"class {self.priority}"]
        parts += [f"weight {self.weight}"] if self.weight is not None else []
        parts += [f"floor {self.floor:g} %"] if self.floor is not None else []
        parts += [f"memory limit {sizes.text(self.memory)}"] if self.memory is not None else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Container:
    """`pid` 0: its processes have ended."""

    id: str
    pid: int = 0

    @classmethod
    def parse(cls, data: bytes) -> Container:
        """Of the state that a runtime gives its hooks (OCI runtime specification, State). ControlError."""
        try:
            state: Any = json.loads(data) if len(data) <= LARGEST else None
        except (ValueError, RecursionError):
            state = None
        if not isinstance(state, dict):
            raise _no_state("it is no JSON object")
        name, pid = state.get("id"), state.get("pid", 0)
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
            raise _no_state("it has no id")
        if isinstance(pid, bool) or not isinstance(pid, int) or pid < 0:
            raise _no_state("its pid is no number")
        return cls(name, pid)

    def cgroup(self, asked: str) -> str:
        """The path of its own cgroup. ControlError where it has none: a limit would be its neighbours' too."""
        try:
            path = cgroups.of(self.pid)
        except OSError as error:
            raise ControlError(asked, f"there is no process {self.pid} ({error.strerror})", "start it again") from error
        if path is None:
            stopped = f"process {self.pid} is in no cgroup of version 2"
            raise ControlError(asked, stopped, "boot with systemd.unified_cgroup_hierarchy=1")
        own = cgroups.bearing(path, self.id)
        if not own:
            stopped = f"it has no cgroup of its own: no part of {path} bears its id"
            raise ControlError(asked, stopped, "start it with cgroups (podman: --cgroups=enabled)")
        # the innermost: its program has not begun yet, and an engine's own parent may be called as the container is
        return own[-1]


def _no_state(why: str) -> ControlError:
    stopped = f"standard input holds no state of an OCI runtime: {why}"
    return ControlError("read the container's state", stopped, "only a runtime starts this: createRuntime, poststop")


def give(container: Container, wanted: Wanted, control: Control) -> None:
    """Set what its device says for all of its programs, before the first of them runs. ControlError: not all is set."""
    asked = f"give container {container.id[:12]} {wanted.text}"
    cgroup = container.cgroup(asked)
    backend = control.programs()["backend"]
    by_path = backend == BY_PATH
    who = cgroup if by_path else container.id
    if not by_path and procfs.container_id(container.id) != container.id:
        stopped = f"backend {backend} knows containers by ids of 64 hexadecimal digits alone"
        raise ControlError(asked, stopped, "load detshare.ko; it knows cgroups")
    named = {"weight": wanted.weight, "floor": wanted.floor}
    turns = {key: value for key, value in named.items() if value is not None}
    problems = _do(control, who, "set-priority", **{"class": wanted.priority}, **({} if by_path else turns))
    if by_path and wanted.weight is not None:  # refused beside a class without turns; the class stands all the same
        problems += _do(control, who, "set-priority", **{"class": wanted.priority}, weight=wanted.weight)
    if by_path and wanted.floor is not None:
        problems += ["a floor is the class's with detshare.ko: detshare-ctl set-class CLASS --floor"]
    if wanted.memory is not None:
        problems += _do(control, who, "set-memory", limit=wanted.memory)
    if problems:
        raise ControlError(asked, "; ".join(problems), "detshare-ctl doctor; detshare-ctl events")


def _do(control: Control, who: str, verb: str, **args: object) -> list[str]:
    """Why it was not done; [] where it was."""
    try:
        answer = control.verb(verb, who, **args)
    except ControlError as error:
        return [f"{verb}: {error.stopped}"]
    if answer["changed"]:
        return []
    return [f"{verb}: {skip['reason']}" for skip in answer["skipped"]] or [f"{verb}: nothing was changed"]


def forget(container: Container, control: Control) -> None:
    """Of a container that has ended; the module does so by itself, when its cgroup goes. ControlError."""
    if control.programs()["backend"] != BY_PATH and procfs.container_id(container.id) == container.id:
        control.verb("release", container.id)
