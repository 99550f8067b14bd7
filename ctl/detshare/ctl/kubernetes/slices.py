# SPDX-License-Identifier: Apache-2.0
"""What this node offers to the scheduler: one ResourceSlice of resource.k8s.io/v1 with all GPUs.

A GPU may be allocated many times. Its capacities memory and share are consumed by that (KEP-5075). Who asks for none of
a capacity gets all of it, so that sharing is always meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from detshare.ctl.kubernetes import quantity
from detshare.ctl.kubernetes.api import GROUP, Api, ApiError
from detshare.ctl.kubernetes.claims import MEMORY, SHARE
from detshare.ctl.kubernetes.node import Gpu
from detshare.ctl.kubernetes.parameters import DRIVER

__all__ = ["Publisher", "device"]

_STEP: Final = 1 << 20
"""bytes; requests are rounded up to it"""
_MOST_TEXT: Final = 64
"""characters of an attribute's text"""


def device(gpu: Gpu, driver: str) -> dict[str, Any]:
    """A GPU as a Device. `driver`: the version of the NVIDIA driver."""
    memory = gpu.memory - gpu.memory % _STEP
    attributes: dict[str, Any] = {
        "uuid": {"string": gpu.uuid},
        "productName": {"string": gpu.model[:_MOST_TEXT]},
        "minor": {"int": gpu.minor},
    }
    if version := _semantic(driver):
        attributes["driverVersion"] = {"version": version}
    return {
        "name": gpu.device,
        "allowMultipleAllocations": True,
        "attributes": attributes,
        "capacity": {MEMORY: _capacity(quantity.text(memory), f"{_STEP >> 20}Mi"), SHARE: _capacity("100", "1")},
    }


def _capacity(whole: str, step: str) -> dict[str, Any]:
    return {
        "value": whole,
        "requestPolicy": {"default": whole, "validRange": {"min": step, "step": step, "max": whole}},
    }


def _semantic(version: str) -> str:
    """As semver.org 2.0.0 has it, without zeros in front; empty where it cannot be."""
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return ".".join(str(int(part or 0)) for part in found.groups()) if found else ""


class Publisher:
    """Keeps the slice as the GPUs are. `node` is the Node's name."""

    def __init__(self, api: Api, node: str) -> None:
        self._api = api
        self._node = node
        self._path = f"{GROUP}/resourceslices"
        self._name = f"{node}-{DRIVER}"
        self._sent: list[dict[str, Any]] | None = None
        self._version = ""

    async def publish(self, gpus: Sequence[Gpu], driver: str, *, check: bool = False) -> bool:
        """Whether anything was changed. `check`: ask whether the slice is still there and ours, for kubelet deletes the
        slices of a driver that it lost. ApiError: the next call begins anew."""
        devices = [device(gpu, driver) for gpu in sorted(gpus, key=lambda gpu: gpu.minor)]
        if devices == self._sent and not check:
            return False
        sent, self._sent = self._sent, None
        before = await self._find()
        if before is not None:
            version = before["metadata"]["resourceVersion"]
            # a server without consumable capacity leaves fields out, and has none the less what was sent
            if before["spec"].get("devices") == devices or (sent == devices and version == self._version):
                self._sent, self._version = devices, version
                return False
        generation = 1 if before is None else before["spec"]["pool"]["generation"] + 1
        spec = {
            "driver": DRIVER,
            "nodeName": self._node,
            "pool": {"name": self._node, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        }
        if before is None:
            head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
            about = {"name": self._name, "ownerReferences": [await self._owner()]}
            now = await self._api.create(self._path, {**head, "metadata": about, "spec": spec})
        else:
            now = await self._api.update(f"{self._path}/{self._name}", {**before, "spec": spec})
        self._sent, self._version = devices, now["metadata"]["resourceVersion"]
        return True

    async def _find(self) -> Mapping[str, Any] | None:
        try:
            return await self._api.get(f"{self._path}/{self._name}")
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def _owner(self) -> dict[str, str]:
        """The slice goes with its Node."""
        found = await self._api.get(f"api/v1/nodes/{self._node}")
        return {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": found["metadata"]["uid"]}
