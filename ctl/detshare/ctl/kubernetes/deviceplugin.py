# SPDX-License-Identifier: Apache-2.0
"""The device-plugin API v1beta1, for clusters without DRA: named devices of CDI as extended resources.

What a name stands for is in its specification: `detshare.io/gpu=NAME` brings the GPU, and a hook makes the container a
tenant. kubelet does not say for which pod it asks, so nothing is set here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes import cdi, sockets, wire
from detshare.ctl.kubernetes.sockets import Method, Service

__all__ = ["DOMAIN", "DevicePlugins", "parse"]

log = logging.getLogger("detshare.kubernetes")

DOMAIN: Final = "detshare.io"
VERSION: Final = "v1beta1"
KUBELET: Final = "kubelet.sock"
MOST: Final = 1024
"""containers that may share what a name stands for"""
_SECONDS: Final = 10.0


def parse(text: str) -> tuple[str, int]:
    """NAME and number of "inference-high=4". ValueError."""
    name, _, count = text.partition("=")
    wrong = not name or len(name) > 50 or name[-1] in "-_." or not name[0].isalnum()
    if wrong or not all(each.isascii() and (each.isalnum() or each in "-_.") for each in name):
        raise ValueError(f"{name[:60]!r} cannot be a resource's name: letters, digits, - _ . and at most 50 of them")
    if not count.isdecimal() or not count.isascii() or not 0 < int(count[:5]) <= MOST:
        raise ValueError(f"{text[:60]!r} gives no number of containers from 1 to {MOST}: write {name}=4")
    return name, int(count)


class _Resource:
    """One name: a server of its own, as the API wants it."""

    def __init__(self, name: str, count: int, folder: Path) -> None:
        self.name = name
        self.path = folder / f"detshare-{name}.sock"
        self.server: Any = None
        self.healthy = False
        self.changed = asyncio.Event()
        self._ids = [f"{name}-{number}" for number in range(count)]

    @property
    def service(self) -> Service:
        """Its service; PreStartContainer and GetPreferredAllocation are not announced by its options."""
        messages = wire.DEVICES
        return Service(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": Method(messages.Empty, self._options),
                "ListAndWatch": Method(messages.Empty, self._list, stream=True),
                "Allocate": Method(messages.AllocateRequest, self._allocate),
            },
        )

    def set(self, healthy: bool) -> None:
        if healthy != self.healthy:
            self.healthy = healthy
            self.changed.set()
            self.changed = asyncio.Event()

    async def _options(self, request: Any) -> Any:
        return wire.DEVICES.DevicePluginOptions()

    async def _list(self, request: Any) -> AsyncIterator[Any]:
        while True:
            changed = self.changed
            health = "Healthy" if self.healthy else "Unhealthy"
            yield wire.DEVICES.ListAndWatchResponse(
                devices=[wire.DEVICES.Device(ID=each, health=health) for each in self._ids]
            )
            await changed.wait()

    async def _allocate(self, request: Any) -> Any:
        answer = wire.DEVICES.AllocateResponse()
        for each in request.container_requests:
            unknown = [one for one in each.devices_ids if one not in self._ids]
            if unknown or len(each.devices_ids) != 1:
                asked = ", ".join(unknown) or f"{len(each.devices_ids)} devices"
                raise ValueError(f"{asked} of {DOMAIN}/{self.name}: a container gets one of them, by its ID")
            made = answer.container_responses.add()
            made.cdi_devices.add(name=f"{cdi.GPUS}={self.name}")
        return answer


class DevicePlugins:
    """All names. `folder`: kubelet's device-plugins. `specifications`: folders of CDI."""

    def __init__(self, counts: Mapping[str, int], folder: Path, specifications: tuple[Path, ...]) -> None:
        self._folder = folder
        self._specifications = specifications
        self._resources = [_Resource(name, count, folder) for name, count in counts.items()]
        self._kubelet: tuple[int, int] | None = None
        """inode and time of the socket at which all are registered"""
        self._told = ""
        self._missed: list[str] = []

    async def keep(self, alive: bool) -> None:
        """One pass: serve, register, and again after a restart of kubelet, which removes sockets.

        `alive`: whether the daemon answers.
        """
        if not self._resources:
            return
        try:
            names = await asyncio.to_thread(cdi.named, self._specifications)
        except ControlError as error:
            names = set()
            self._complain(error)
        for each in self._resources:
            each.set(alive and each.name in names)
        self._miss([each.name for each in self._resources if each.name not in names])
        try:
            found = os.stat(self._folder / KUBELET)
        except OSError:
            self._kubelet = None
            return
        kubelet = (found.st_ino, found.st_ctime_ns)
        if kubelet == self._kubelet and all(each.path.exists() for each in self._resources):
            return
        try:
            for each in self._resources:
                await self._register(each)
        except ControlError as error:
            self._complain(error)
            return
        self._kubelet = kubelet
        self._told = ""

    def _miss(self, names: list[str]) -> None:
        """Say once which names the node has not: kubelet tells a pod no more than that there is none."""
        if names != self._missed and names:
            following = "name them in its [containers.devices], then: detshare-ctl cdi generate --output /etc/cdi"
            log.warning("no container can have %s: this node has no such device; %s", ", ".join(names), following)
        self._missed = names

    def _complain(self, error: ControlError) -> None:
        """Once, until it is another error."""
        text = str(error).replace("\n", "; ")
        if text != self._told:
            self._told = text
            log.warning("%s", text)

    async def _register(self, resource: _Resource) -> None:
        if resource.server is not None:
            await sockets.stop(resource.server, resource.path)
        resource.server = await sockets.serve(resource.path, [resource.service])
        request = wire.DEVICES.RegisterRequest(
            version=VERSION, endpoint=resource.path.name, resource_name=f"{DOMAIN}/{resource.name}"
        )
        await sockets.call(
            self._folder / KUBELET, "/v1beta1.Registration/Register", request, wire.DEVICES.Empty, _SECONDS
        )
        log.info("kubelet has the resource %s/%s", DOMAIN, resource.name)

    async def stop(self) -> None:
        """kubelet sees the devices go."""
        for each in self._resources:
            if each.server is not None:
                await sockets.stop(each.server, each.path)
