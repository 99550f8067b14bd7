# SPDX-License-Identifier: Apache-2.0
"""Bytes of the messages, written out by hand from kubelet's api.proto: tag = number << 3 | 2 for text and messages."""

from __future__ import annotations

from typing import Any

import pytest

from detshare.ctl.kubernetes import wire


def field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2, len(data)]) + data


DEVICE = field(1, "gpu") + field(1, "gpu2") + field(2, "worker-1") + field(3, "gpu-0") + field(4, "a/b=c")


@pytest.mark.parametrize("dra", [wire.DRA, wire.BETA])
def test_dra(dra: Any) -> None:
    claim = field(1, "default") + field(2, "u-1") + field(3, "name")
    asked = dra.NodePrepareResourcesRequest.FromString(field(1, claim))
    assert (asked.claims[0].namespace, asked.claims[0].uid, asked.claims[0].name) == ("default", "u-1", "name")
    assert dra.NodeUnprepareResourcesRequest.FromString(field(1, claim)).claims[0].uid == "u-1"
    answer = dra.NodePrepareResourcesResponse()
    answer.claims["u-1"].devices.add(
        request_names=["gpu", "gpu2"], pool_name="worker-1", device_name="gpu-0", cdi_device_ids=["a/b=c"]
    )
    assert answer.SerializeToString() == field(1, field(1, "u-1") + field(2, field(1, DEVICE)))
    answer = dra.NodePrepareResourcesResponse()
    answer.claims["u"].error = "no"
    assert answer.SerializeToString() == field(1, field(1, "u") + field(2, field(2, "no")))
    gone = dra.NodeUnprepareResourcesResponse()
    gone.claims["u"].error = "no"
    assert gone.SerializeToString() == field(1, field(1, "u") + field(2, field(1, "no")))


def test_registration() -> None:
    messages = wire.REGISTRATION
    info = messages.PluginInfo(type="DRAPlugin", name="n", endpoint="/e", supported_versions=["v1.DRAPlugin"])
    told = field(1, "DRAPlugin") + field(2, "n") + field(3, "/e") + field(4, "v1.DRAPlugin")
    assert info.SerializeToString() == told
    status = messages.RegistrationStatus.FromString(bytes([1 << 3, 1]) + field(2, "why"))
    assert (status.plugin_registered, status.error) == (True, "why")


def test_device_plugins() -> None:
    messages = wire.DEVICES
    made = messages.RegisterRequest(version="v1beta1", endpoint="e.sock", resource_name="r", options={})
    assert made.SerializeToString() == field(1, "v1beta1") + field(2, "e.sock") + field(3, "r") + field(4, b"")
    listed = messages.ListAndWatchResponse(devices=[messages.Device(ID="1", health="Healthy")])
    assert listed.SerializeToString() == field(1, field(1, "1") + field(2, "Healthy"))
    asked = messages.AllocateRequest.FromString(field(1, field(1, "1")))
    assert list(asked.container_requests[0].devices_ids) == ["1"]
    answer = messages.AllocateResponse()
    answer.container_responses.add().cdi_devices.add(name="a/b=c")
    assert answer.SerializeToString() == field(1, field(5, field(1, "a/b=c")))


def test_names_of_services_are_those_of_the_packages() -> None:
    assert wire.DRA.package == "k8s.io.kubelet.pkg.apis.dra.v1"
    assert wire.BETA.package == "k8s.io.kubelet.pkg.apis.dra.v1beta1"
    with pytest.raises(AttributeError, match="has no message Nothing"):
        _ = wire.DRA.Nothing
