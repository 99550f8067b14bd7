# SPDX-License-Identifier: Apache-2.0
"""This node's daemon: its GPUs, and pods as its tenants. Blocking; every method raises ControlError."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from detshare.ctl.client import Client
from detshare.ctl.core.classes import CLASSES
from detshare.ctl.core.errors import ClientError, ControlError
from detshare.ctl.kubernetes.claims import Settings

__all__ = ["BACKEND", "Gpu", "Node", "State"]

BACKEND: Final = "kmod"
"""the one that holds a limit, whatever a pod's programs do"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, and the name of its device in a ResourceSlice."""

    device: str
    uuid: str
    minor: int
    model: str
    memory: int
    """bytes"""


@dataclass(frozen=True, slots=True)
class State:
    """What the daemon saw last. Limits: (cgroup, GPU's number) -> bytes; ordered: cgroups that have an order."""

    driver: str
    gpus: tuple[Gpu, ...]
    limits: Mapping[tuple[str, int], int]
    ordered: frozenset[str]

    def minor(self, device: str) -> int | None:
        """The number of a device's GPU; None where it is gone."""
        return next((gpu.minor for gpu in self.gpus if gpu.device == device), None)

    def stands(self, cgroup: str, settings: Settings) -> bool:
        """Whether a tenant still has its order and its limits: a module that was loaded anew has none."""
        limits = {
            (cgroup, minor): size
            for device, size in settings.memory.items()
            if (minor := self.minor(device)) is not None
        }
        return cgroup in self.ordered and limits.items() <= self.limits.items()


class Node:
    """The daemon behind a run directory's socket."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def state(self) -> State:
        """ControlError where there is no daemon, or none that holds limits."""
        found = self._client.programs()
        backend = found.get("backend")
        if backend != BACKEND:
            stopped = f"detshared has backend {backend}, and only {BACKEND} holds a pod's memory limit"
            raise ControlError("serve GPUs to pods", stopped, "load detshare.ko on this node; see: detshare-ctl doctor")
        gpus = tuple(
            Gpu(each["uuid"].lower(), each["uuid"], each["minor"], each["name"], each["memory_bytes"])
            for each in found["gpus"]
            if each["memory_bytes"]
        )
        accounts = [each for each in found["accounts"] if each["kind"] == "cgroup" and each["gpu"] is not None]
        limits = {(each["name"], each["gpu"]): each["limit"] for each in accounts}
        ordered = frozenset(each["name"] for each in found["orders"] if each["kind"] == "cgroup")
        return State(found["driver"], gpus, limits, ordered)

    def give(self, cgroup: str, settings: Settings, state: State) -> None:
        """Make a pod a tenant with these settings, or change them. Memory first: a limit has to be there before use."""
        for device, size in settings.memory.items():
            minor = state.minor(device)
            if minor is None:
                raise ControlError(f"limit {cgroup}", f"this node has no GPU {device} now", "see: detshare-ctl doctor")
            self._do("set-memory", cgroup, limit=size, gpu=minor)
        if settings.klass == "normal" and settings.weight is not None:
            self._do("set-weight", cgroup, weight=settings.weight)
            return
        klass = settings.klass
        if settings.floor is not None:
            klass = self._class_with_floor(settings.floor)
        self._do("set-priority", cgroup, klass=klass, weight=settings.weight)

    def _class_with_floor(self, floor: int) -> str:
        """A class as low is, but for its floor: the module's floors are of classes."""
        name = f"low-floor-{floor}"
        low = CLASSES["low"]
        row = {"slice_us": low.slice_us, "level": low.level.name.lower(), "turn_us": low.turn_us}
        self._do("set-class", name, floor_permille=floor, **row)
        return name

    def take_back(self, cgroup: str, devices: Mapping[str, Any], state: State) -> None:
        """A pod is a tenant no more. Idempotent; what is gone with its cgroup is gone."""
        for device in devices:
            if (minor := state.minor(device)) is not None:
                with suppress(_Gone):
                    self._do("set-memory", cgroup, limit="max", gpu=minor)
        with suppress(_Gone):
            self._do("release", cgroup)

    def _do(self, verb: str, who: str, **args: object) -> None:
        try:
            answer = self._client.verb(verb, who, **args)
        except ClientError as error:
            raise (_Gone if error.usage and "no cgroup" in error.stopped else ControlError)(
                error.asked, error.stopped, error.next_step, usage=error.usage
            ) from error
        skipped = [each["reason"] for each in answer["skipped"]]
        if skipped and verb != "release" and args.get("limit") != "max":
            raise ControlError(f"{verb} {who}", "; ".join(skipped), "see: detshare-ctl doctor")


class _Gone(ControlError):
    """The cgroup ended."""
