# SPDX-License-Identifier: Apache-2.0
"""The driver as kubelet finds it: plugin registration v1, and the DRA service in v1 and v1beta1."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes import sockets, wire
from detshare.ctl.kubernetes.driver import Driver
from detshare.ctl.kubernetes.parameters import DRIVER
from detshare.ctl.kubernetes.sockets import Method, Service

__all__ = ["Plugin"]

log = logging.getLogger("detshare.kubernetes")

SERVICES: Final = {"v1.DRAPlugin": wire.DRA, "v1beta1.DRAPlugin": wire.BETA}
"""as kubelet names them at registration -> messages"""


GRACE_S: Final = 5.0
"""for claims that are being prepared"""


class Plugin:
    """`registry`: kubelet's plugins_registry. `folder`: the driver's own among kubelet's plugins."""

    def __init__(self, driver: Driver, registry: Path, folder: Path) -> None:
        self._driver = driver
        self._endpoint = folder / "dra.sock"
        self._registration = registry / f"{DRIVER}-reg.sock"
        self._servers: list[tuple[Any, Path]] = []

    async def start(self) -> None:
        """Serve, then let kubelet see it. ControlError."""
        services = [
            Service(
                f"{messages.package}.DRAPlugin",
                {
                    "NodePrepareResources": self._whole(messages.NodePrepareResourcesRequest, self._prepare, messages),
                    "NodeUnprepareResources": self._whole(
                        messages.NodeUnprepareResourcesRequest, self._unprepare, messages
                    ),
                },
            )
            for messages in SERVICES.values()
        ]
        registration = Service(
            "pluginregistration.Registration",
            {
                "GetInfo": Method(wire.REGISTRATION.InfoRequest, self._info),
                "NotifyRegistrationStatus": Method(wire.REGISTRATION.RegistrationStatus, self._status),
            },
        )
        for path, served in ((self._endpoint, services), (self._registration, [registration])):
            self._servers.append((await sockets.serve(path, served), path))

    async def stop(self) -> None:
        """Registration first: kubelet asks no more then."""
        while self._servers:
            await sockets.stop(*self._servers.pop(), grace_s=GRACE_S)

    def _whole(
        self, request: Any, answer: Callable[[Any, wire.Messages], Awaitable[Any]], messages: wire.Messages
    ) -> Method:
        async def shielded(asked: Any) -> Any:
            # kubelet's patience may end; half of it done would be found by nobody until it asks again
            return await asyncio.shield(asyncio.ensure_future(answer(asked, messages)))

        return Method(request, shielded)

    async def _info(self, request: Any) -> Any:
        return wire.REGISTRATION.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._endpoint), supported_versions=list(SERVICES)
        )

    async def _status(self, request: Any) -> Any:
        if request.plugin_registered:
            log.info("kubelet has the driver %s", DRIVER)
        else:
            log.error("kubelet did not take the driver %s: %s", DRIVER, request.error)
        return wire.REGISTRATION.RegistrationStatusResponse()

    async def _prepare(self, request: Any, messages: wire.Messages) -> Any:
        answer = messages.NodePrepareResourcesResponse()
        for each in request.claims:
            entry = answer.claims[each.uid]
            try:
                prepared = await self._driver.prepare(each.namespace, each.name, each.uid)
            except (ControlError, ValueError, OSError) as error:
                entry.error = _said(error)
                log.warning("claim %s/%s is not prepared: %s", each.namespace, each.name, entry.error)
                continue
            for allotment, name in prepared:
                entry.devices.add(
                    request_names=[allotment.request.split("/")[0]],
                    pool_name=allotment.pool,
                    device_name=allotment.device,
                    cdi_device_ids=[name],
                )
        return answer

    async def _unprepare(self, request: Any, messages: wire.Messages) -> Any:
        answer = messages.NodeUnprepareResourcesResponse()
        for each in request.claims:
            entry = answer.claims[each.uid]
            try:
                await self._driver.unprepare(each.uid)
            except (ControlError, ValueError, OSError) as error:
                entry.error = _said(error)
                log.warning("claim %s/%s is not given up: %s", each.namespace, each.name, entry.error)
        return answer


def _said(error: Exception) -> str:
    return str(error).replace("\n", "; ")
