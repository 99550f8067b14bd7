# SPDX-License-Identifier: Apache-2.0
"""MIG as a way: only on instances that are there already. The GPU's settings are not changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pynvml

from detshare.tools.bench.field.systems import System, SystemMissing
from detshare.tools.bench.session import Session

__all__ = ["Instance", "Mig", "instances"]


@dataclass(frozen=True)
class Instance:
    """One compute instance."""

    uuid: str
    slices: int
    """of the GPU's compute slices"""
    mib: int


def instances() -> list[Instance]:
    """Of GPU 0, the largest first. SystemMissing: MIG is off, or NVML does not say."""
    try:
        pynvml.nvmlInit()
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
            if not pynvml.nvmlDeviceGetMigMode(gpu)[0]:
                raise SystemMissing("MIG is off on this GPU, and nobody here switches it on: that resets the GPU")
            found = [_instance(gpu, number) for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise SystemMissing(f"NVML does not tell of MIG: {error}") from error
    return sorted((each for each in found if each), key=lambda each: (-each.slices, -each.mib, each.uuid))


def _instance(gpu: object, number: int) -> Instance | None:
    try:
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
    except pynvml.NVMLError_NotFound:
        return None
    attributes = pynvml.nvmlDeviceGetAttributes(handle)
    uuid = str(pynvml.nvmlDeviceGetUUID(handle))
    return Instance(uuid, int(attributes.computeInstanceSliceCount), int(attributes.memorySizeMB))


class Mig(System):
    """The server on the largest instance, the backgrounds on the others in turn."""

    name, group = "MIG", "mig"

    def __init__(self) -> None:
        self._some: list[Instance] = []
        self._next = 0

    def begin(self, session: Session) -> None:
        self._some, self._next = instances(), 0
        if len(self._some) < 2:
            there = "one instance only" if self._some else "no instance"
            raise SystemMissing(f"MIG has {there}: a server and a background need one each")
        session.say(", ".join(f"{each.uuid}: {each.slices} slices, {each.mib} MiB" for each in self._some))

    def command(self, argv: Sequence[str], server: bool) -> tuple[list[str], dict[str, str]]:
        if server:
            return list(argv), {"CUDA_VISIBLE_DEVICES": self._some[0].uuid}
        others = self._some[1:]
        chosen = others[self._next % len(others)]
        self._next += 1
        return list(argv), {"CUDA_VISIBLE_DEVICES": chosen.uuid}

    def memory(self, mib: int) -> dict[str, str]:
        raise SystemMissing(f"no limit of {mib} MiB can be set: an instance has its size")
