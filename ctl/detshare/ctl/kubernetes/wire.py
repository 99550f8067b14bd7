# SPDX-License-Identifier: Apache-2.0
"""Messages of kubelet's plugin APIs, as far as they are used here.

Field numbers are those of kubernetes/kubernetes, staging/src/k8s.io/kubelet/pkg/apis: dra/v1, dra/v1beta1,
pluginregistration/v1 and deviceplugin/v1beta1 (api.proto each). The classes are made when this module is imported, so
they fit whatever version of protobuf is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["BETA", "DEVICES", "DRA", "REGISTRATION", "Messages"]

_SCALARS: Final = {"string": 9, "bool": 8, "int32": 5, "int64": 3}
"""FieldDescriptorProto.Type"""
_MESSAGE: Final = 11
_ONE, _MANY = 1, 3

Fields = Mapping[str, tuple[int, str]]
"""name -> (number, type): "string", "[string]" for repeated, "{Device}" for a map from string, a message's name"""


class Messages:
    """The message classes of one proto package, as attributes by their names."""

    def __init__(self, package: str, messages: Mapping[str, Fields]) -> None:
        self.package = package
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, fields in messages.items():
            made = file.message_type.add(name=name)
            for field, (number, kind) in fields.items():
                _add(made, package, field, number, kind)
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        for name in messages:
            setattr(self, name, _class_of(pool.FindMessageTypeByName(f"{package}.{name}")))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"package {self.package} has no message {name} here")


def _add(message: Any, package: str, field: str, number: int, kind: str) -> None:
    many = kind[0] in "[{"
    inner = kind.strip("[]{}")
    if kind[0] == "{":
        inner = "".join(word.capitalize() for word in field.split("_")) + "Entry"
        entry = message.nested_type.add(name=inner)
        entry.options.map_entry = True
        _add(entry, package, "key", 1, "string")
        _add(entry, package, "value", 2, kind[1:-1])
        inner = f"{message.name}.{inner}"
    made = message.field.add(name=field, number=number, label=_MANY if many else _ONE)
    made.type = _SCALARS.get(inner, _MESSAGE)
    if made.type == _MESSAGE:
        made.type_name = f".{package}.{inner}"


def _class_of(descriptor: Any) -> Any:
    """protobuf 4.21, which Debian 12 has, lacks GetMessageClass; 5 lacks what it had instead."""
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(descriptor.file.pool).GetPrototype(descriptor)


_PLUGIN: Final[Mapping[str, Fields]] = {
    "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
    "Device": {
        "request_names": (1, "[string]"),
        "pool_name": (2, "string"),
        "device_name": (3, "string"),
        "cdi_device_ids": (4, "[string]"),
    },
    "NodePrepareResourcesRequest": {"claims": (1, "[Claim]")},
    "NodePrepareResourceResponse": {"devices": (1, "[Device]"), "error": (2, "string")},
    "NodePrepareResourcesResponse": {"claims": (1, "{NodePrepareResourceResponse}")},
    "NodeUnprepareResourcesRequest": {"claims": (1, "[Claim]")},
    "NodeUnprepareResourceResponse": {"error": (1, "string")},
    "NodeUnprepareResourcesResponse": {"claims": (1, "{NodeUnprepareResourceResponse}")},
}

DRA: Final = Messages("k8s.io.kubelet.pkg.apis.dra.v1", _PLUGIN)
BETA: Final = Messages("k8s.io.kubelet.pkg.apis.dra.v1beta1", _PLUGIN)
"""the same under another name: kubelet before 1.34"""

REGISTRATION: Final = Messages(
    "pluginregistration",
    {
        "PluginInfo": {
            "type": (1, "string"),
            "name": (2, "string"),
            "endpoint": (3, "string"),
            "supported_versions": (4, "[string]"),
        },
        "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
        "RegistrationStatusResponse": {},
        "InfoRequest": {},
    },
)

DEVICES: Final = Messages(
    "v1beta1",
    {
        "Empty": {},
        "DevicePluginOptions": {
            "pre_start_required": (1, "bool"),
            "get_preferred_allocation_available": (2, "bool"),
        },
        "RegisterRequest": {
            "version": (1, "string"),
            "endpoint": (2, "string"),
            "resource_name": (3, "string"),
            "options": (4, "DevicePluginOptions"),
        },
        "Device": {"ID": (1, "string"), "health": (2, "string")},
        "ListAndWatchResponse": {"devices": (1, "[Device]")},
        "ContainerAllocateRequest": {"devices_ids": (1, "[string]")},
        "AllocateRequest": {"container_requests": (1, "[ContainerAllocateRequest]")},
        "CDIDevice": {"name": (1, "string")},
        "ContainerAllocateResponse": {"envs": (1, "{string}"), "cdi_devices": (5, "[CDIDevice]")},
        "AllocateResponse": {"container_responses": (1, "[ContainerAllocateResponse]")},
    },
)
