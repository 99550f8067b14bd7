# SPDX-License-Identifier: Apache-2.0
"""Named devices for a cluster without DRA. Kubelet double."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from node import World, run, until

from detshare.ctl.kubernetes import deviceplugin

HIGH = "detshare.io/inference-high"


def specify(w: World, *names: str) -> None:
    devices = [{"name": each, "containerEdits": {"env": [f"NAME={each}"]}} for each in names]
    whole = {"cdiVersion": "0.3.0", "kind": "detshare.io/gpu", "devices": devices}
    (w.cdi[0] / "detshare.io-gpu.json").write_text(json.dumps(whole))


def test_a_named_device_is_given_to_as_many_containers_as_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(w: World) -> None:
        specify(w, "inference-high", "low")
        await w.manager.start()
        await w.start_driver(dra=False, resources={"inference-high": 2, "low": 1})
        await until(lambda: len(w.manager.devices) == 2)
        assert w.manager.devices[HIGH] == {"inference-high-0": "Healthy", "inference-high-1": "Healthy"}
        (name,) = await w.manager.allocate(HIGH, "inference-high-1")
        assert w.edits(name)["env"] == ["NAME=inference-high"]
        for wrong in (("low-0",), ("inference-high-0", "inference-high-1"), ()):
            with pytest.raises(grpc.aio.AioRpcError):
                await w.manager.allocate(HIGH, *wrong)
        assert w.kubelet.sockets() == []
        await w.stop_driver()
        assert [path.name for path in w.manager.folder.iterdir()] == ["kubelet.sock"]
        await w.manager.stop()

    run(tmp_path, monkeypatch, test)


def test_a_device_that_is_not_there_or_not_served_is_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: World) -> None:
        await w.manager.start()
        await w.start_driver(dra=False, resources={"inference-high": 1})
        await until(lambda: w.manager.devices.get(HIGH) == {"inference-high-0": "Unhealthy"})
        specify(w, "inference-high")
        await until(lambda: w.manager.devices[HIGH] == {"inference-high-0": "Healthy"})
        await w.stop_daemon()
        await until(lambda: w.manager.devices[HIGH] == {"inference-high-0": "Unhealthy"})
        await w.start_daemon()
        await until(lambda: w.manager.devices[HIGH] == {"inference-high-0": "Healthy"})
        await w.manager.stop()
        told = [each for each in caplog.messages if "no container can have" in each]
        assert [each.partition(":")[0] for each in told] == ["no container can have inference-high"]

    run(tmp_path, monkeypatch, test)


def test_a_kubelet_that_comes_again_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        specify(w, "inference-high")
        await w.start_driver(resources={"inference-high": 1})  # both APIs beside each other
        for count in (1, 2):
            await w.manager.start()
            await until(lambda: w.manager.devices.get(HIGH) == {"inference-high-0": "Healthy"})
            assert w.manager.registered == count
            await w.manager.stop()

    run(tmp_path, monkeypatch, test)


@pytest.mark.parametrize(
    "text", ["", "a", "=3", "a=0", "a=1025", "a=x", "a b=1", "-a=1", "a-=1", "a/b=1", "a" * 51 + "=1"]
)
def test_what_cannot_be_offered(text: str) -> None:
    with pytest.raises(ValueError, match=r"resource's name|number of containers"):
        deviceplugin.parse(text)


def test_what_can() -> None:
    assert deviceplugin.parse("inference-high=4") == ("inference-high", 4)
