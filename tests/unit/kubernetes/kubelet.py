# SPDX-License-Identifier: Apache-2.0
"""kubelet double: plugin watcher, DRA manager and device manager, as far as a node's driver meets them, over gRPC.

It takes what kubelet takes (pkg/kubelet/pluginmanager, cm/dra, cm/devicemanager) and nothing else. CDI names are looked
up as a container runtime does, and a specification with a field that is not known is refused whole.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from detshare.ctl.kubernetes import sockets, wire

DRA_VERSIONS = {"v1.DRAPlugin": wire.DRA, "v1beta1.DRAPlugin": wire.BETA}
_QUALIFIED = re.compile(r"([A-Za-z][\w.-]*)/([A-Za-z][\w-]*)=([A-Za-z][\w.:-]*[A-Za-z0-9])")
_EXTENDED = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SECONDS = 60.0


class Wrong(AssertionError):
    """The driver does what kubelet, or a runtime, does not take."""


def edits(folders: Sequence[Path], name: str) -> dict[str, list[Any]]:
    """What a CDI name brings into a container: {"env": [...], "deviceNodes": [path], "mounts": [containerPath]}."""
    found = _QUALIFIED.fullmatch(name)
    if found is None:
        raise Wrong(f"{name} is no qualified CDI name")
    kind = f"{found[1]}/{found[2]}"
    merged: dict[str, list[Any]] = {"env": [], "deviceNodes": [], "mounts": []}
    for path in (path for folder in reversed(folders) for path in sorted(folder.glob("*.json"))):
        whole = json.loads(path.read_bytes())
        _only(whole, {"cdiVersion", "kind", "devices", "containerEdits"}, path)
        if whole["cdiVersion"] != "0.3.0":
            raise Wrong(f"{path}: version {whole['cdiVersion']}")
        devices = {each["name"]: each["containerEdits"] for each in whole["devices"]}
        if whole["kind"] == kind and found[3] in devices:
            for each in (whole.get("containerEdits", {}), devices[found[3]]):
                _only(each, {"env", "deviceNodes", "mounts", "hooks"}, path)
                for node in each.get("deviceNodes", ()):
                    _only(node, {"path", "permissions"}, path)
                merged["env"] += each.get("env", [])
                merged["deviceNodes"] += [node["path"] for node in each.get("deviceNodes", [])]
                merged["mounts"] += [mount["containerPath"] for mount in each.get("mounts", [])]
            return merged
    raise Wrong(f"unresolvable CDI device {name}")


def _only(table: Mapping[str, Any], known: set[str], where: Path) -> None:
    if unknown := set(table) - known:
        raise Wrong(f"{where}: unknown field {unknown}")


class Kubelet:
    """The plugin watcher and the DRA manager. `folder`: /var/lib/kubelet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in ("plugins", "plugins_registry", "device-plugins"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        self.driver = ""
        self._endpoint = Path()
        self._versions: list[str] = []

    def sockets(self) -> list[Path]:
        return [path for path in (self.folder / "plugins_registry").iterdir() if path.is_socket()]

    async def register(self) -> None:
        """What the watcher does with a socket that it finds."""
        (path,) = self.sockets()
        messages = wire.REGISTRATION
        info = await sockets.call(
            path, "/pluginregistration.Registration/GetInfo", messages.InfoRequest(), messages.PluginInfo, _SECONDS
        )
        error = self._wrong(info)
        status = messages.RegistrationStatus(plugin_registered=not error, error=error)
        await sockets.call(
            path,
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            status,
            messages.RegistrationStatusResponse,
            _SECONDS,
        )
        if error:
            raise Wrong(error)
        self.driver, self._endpoint, self._versions = info.name, Path(info.endpoint), list(info.supported_versions)

    def _wrong(self, info: Any) -> str:
        if info.type != "DRAPlugin":
            return f"no handler registered for plugin type: {info.type}"
        if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", info.name):
            return f"invalid driver name {info.name}"
        if not info.endpoint.startswith("/") or not Path(info.endpoint).is_socket():
            return f"no socket at endpoint {info.endpoint}"
        if not set(info.supported_versions) & set(DRA_VERSIONS):
            return f"none of the DRA gRPC API versions supported: {info.supported_versions}"
        return ""

    async def _ask(self, method: str, claims: Sequence[Mapping[str, Any]], version: str) -> dict[str, Any]:
        assert version in self._versions
        messages = DRA_VERSIONS[version]
        request = getattr(messages, f"{method}Request")()
        for each in claims:
            about = each["metadata"]
            request.claims.add(namespace=about["namespace"], name=about["name"], uid=about["uid"])
        answer = await sockets.call(
            self._endpoint,
            f"/k8s.io.kubelet.pkg.apis.dra.{version.partition('.')[0]}.DRAPlugin/{method}",
            request,
            getattr(messages, f"{method}Response"),
            _SECONDS,
        )
        asked = {each.uid for each in request.claims}
        if set(answer.claims) != asked:
            raise Wrong(f"asked for {asked}, answered for {set(answer.claims)}")
        return dict(answer.claims)

    async def prepare(self, *claims: Mapping[str, Any], version: str = "v1.DRAPlugin") -> dict[str, list[str]]:
        """CDI names by claim's UID. RuntimeError with the driver's own words where it refuses one."""
        answer = await self._ask("NodePrepareResources", claims, version)
        names: dict[str, list[str]] = {}
        for each in claims:
            found = answer[each["metadata"]["uid"]]
            if found.error:
                raise RuntimeError(found.error)
            results = each["status"]["allocation"]["devices"]["results"]
            wanted = {(one["pool"], one["device"], one["request"].split("/")[0]) for one in results}
            got = {(one.pool_name, one.device_name, name) for one in found.devices for name in one.request_names}
            if got != wanted:
                raise Wrong(f"allocated {wanted}, prepared {got}")
            names[each["metadata"]["uid"]] = [name for one in found.devices for name in one.cdi_device_ids]
        return names

    async def unprepare(self, *claims: Mapping[str, Any], version: str = "v1.DRAPlugin") -> None:
        for found in (await self._ask("NodeUnprepareResources", claims, version)).values():
            if found.error:
                raise RuntimeError(found.error)


class DeviceManager:
    """The device manager: kubelet.sock, and the plugins that register there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "device-plugins"
        self.devices: dict[str, dict[str, str]] = {}
        """resource -> ID -> health, as last told"""
        self.registered = 0
        self._channels: dict[str, Any] = {}
        self._following: list[asyncio.Task[None]] = []
        self._server: Any = None

    async def start(self) -> None:
        """A new kubelet removes all sockets of its folder."""
        for path in self.folder.iterdir():
            path.unlink()
        method = sockets.Method(wire.DEVICES.RegisterRequest, self._register)
        self._server = await sockets.serve(
            self.folder / "kubelet.sock", [sockets.Service("v1beta1.Registration", {"Register": method})]
        )

    async def stop(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        self._following, self._channels, self.devices = [], {}, {}
        await self._server.stop(0)

    async def _register(self, request: Any) -> Any:
        if request.version != "v1beta1":
            raise Wrong(f"version {request.version} is not supported")
        if not _EXTENDED.fullmatch(request.resource_name):
            raise Wrong(f"{request.resource_name} is no extended resource")
        path = self.folder / request.endpoint
        if not path.is_socket():
            raise Wrong(f"no socket {request.endpoint}")
        channel = grpc.aio.insecure_channel(f"unix:{path}")
        self._channels[request.resource_name] = channel
        self._following.append(asyncio.create_task(self._follow(request.resource_name, channel)))
        self.registered += 1
        return wire.DEVICES.Empty()

    async def _follow(self, resource: str, channel: Any) -> None:
        messages = wire.DEVICES
        options = channel.unary_unary(
            "/v1beta1.DevicePlugin/GetDevicePluginOptions",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.DevicePluginOptions.FromString,
        )
        await options(messages.Empty(), timeout=_SECONDS)
        stream = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.ListAndWatchResponse.FromString,
        )
        async for told in stream(messages.Empty()):
            for each in told.devices:
                if not each.ID or len(each.ID) > 63 or each.health not in ("Healthy", "Unhealthy"):
                    raise Wrong(f"device {each.ID} {each.health}")
            self.devices[resource] = {each.ID: each.health for each in told.devices}

    async def allocate(self, resource: str, *devices: str) -> list[str]:
        """CDI names for one container. grpc.aio.AioRpcError where the plugin refuses."""
        messages = wire.DEVICES
        ask = self._channels[resource].unary_unary(
            "/v1beta1.DevicePlugin/Allocate",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.AllocateResponse.FromString,
        )
        request = messages.AllocateRequest(container_requests=[messages.ContainerAllocateRequest(devices_ids=devices)])
        (answer,) = (await ask(request, timeout=_SECONDS)).container_responses
        return [each.name for each in answer.cdi_devices]
