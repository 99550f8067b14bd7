# SPDX-License-Identifier: Apache-2.0
"""What a node offers, at the API-server double, and what it may ask there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cluster
import pytest
from node import FIRST, GPUS, SECOND, World, run, until

from detshare.ctl.kubernetes import command


def devices(w: World) -> list[str]:
    return [each["name"] for made in w.cluster.slices for each in made["spec"].get("devices", [])]


def test_gpus_are_offered_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        await until(lambda: devices(w) == [FIRST, SECOND])
        (made,) = w.cluster.slices
        assert cluster.problems(made) == []
        assert made["metadata"]["ownerReferences"][0]["kind"] == "Node"
        assert made["spec"]["pool"] == {"name": "worker-1", "generation": 1, "resourceSliceCount": 1}
        first = made["spec"]["devices"][0]
        assert first["allowMultipleAllocations"] is True
        assert first["attributes"]["uuid"] == {"string": GPUS[0].uuid}
        assert first["attributes"]["driverVersion"] == {"version": "580.0.0"}
        whole = {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi", "max": "80Gi"}}
        assert first["capacity"]["memory"] == {"value": "80Gi", "requestPolicy": whole}
        assert first["capacity"]["share"]["value"] == "100"

    run(tmp_path, monkeypatch, test)


def test_a_gpu_that_goes_away_is_offered_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        for _ in range(2):  # a driver that comes again finds its offer as it should be
            await w.stop_driver()
            await w.start_driver()
            await until(lambda: devices(w) == [FIRST, SECOND])
        gone = w.module.gpus.pop(0)
        await until(lambda: devices(w) == [SECOND])
        w.module.gpus.insert(0, gone)
        await until(lambda: devices(w) == [FIRST, SECOND])
        assert w.cluster.slices[0]["spec"]["pool"]["generation"] == 3

    run(tmp_path, monkeypatch, test)


def test_a_daemon_that_stays_away_takes_the_offer_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        monkeypatch.setattr(command, "AWAY_S", 0.1)
        await w.start_driver()
        await until(lambda: devices(w) == [FIRST, SECOND])
        await w.stop_daemon()
        await until(lambda: devices(w) == [])
        await w.start_daemon()
        await until(lambda: devices(w) == [FIRST, SECOND])

    run(tmp_path, monkeypatch, test)


def test_an_offer_that_somebody_deleted_or_changed_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        monkeypatch.setattr(command, "CHECK_S", 0.0)
        await w.start_driver()
        await until(lambda: devices(w) == [FIRST, SECOND])
        ((path, made),) = [(path, each) for path, each in w.cluster.objects.items() if "/resourceslices/" in path]
        del w.cluster.objects[path]  # kubelet does so with the slices of a driver that it lost
        await until(lambda: devices(w) == [FIRST, SECOND])
        spec: dict[str, Any] = {**made["spec"], "devices": [], "pool": {**made["spec"]["pool"], "generation": 9}}
        w.cluster.put(path, {**w.cluster.objects[path], "spec": spec})
        await until(lambda: devices(w) == [FIRST, SECOND])
        assert w.cluster.slices[0]["spec"]["pool"]["generation"] == 10

    run(tmp_path, monkeypatch, test)


def test_a_server_without_consumable_capacity_is_not_asked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(w: World) -> None:
        monkeypatch.setattr(command, "CHECK_S", 0.0)
        await w.start_driver()
        await until(lambda: devices(w) == [FIRST, SECOND])
        looks = w.module.looks
        await until(lambda: w.module.looks > looks + 20)
        (made,) = w.cluster.slices
        assert "allowMultipleAllocations" not in made["spec"]["devices"][0]
        assert made["spec"]["pool"]["generation"] == 1
        # a GPU is one claim's then, whole
        pod, cgroup = w.pod()
        await w.kubelet.prepare(w.claim("a", pod))
        assert (w.module.limits, w.module.orders) == ({}, {cgroup: "class normal"})

    run(tmp_path, monkeypatch, test, consumable=False)


def test_an_api_server_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        w.cluster.down = True
        await w.start_driver()
        looks = w.module.looks
        await until(lambda: w.module.looks > looks + 5)
        assert w.cluster.slices == []
        w.cluster.down = False
        await until(lambda: devices(w) == [FIRST, SECOND])

    run(tmp_path, monkeypatch, test)


def test_each_right_of_the_role_is_used_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, _ = w.pod()
        await w.kubelet.prepare(w.claim("a", pod, consumed={"memory": "8Gi", "share": "30"}))
        await until(lambda: devices(w) == [FIRST, SECOND])
        w.module.gpus.pop()
        await until(lambda: devices(w) == [FIRST])
        await until(lambda: w.cluster.watches)
        given = {
            (group, resource, verb)
            for rule in cluster.rules()
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert w.cluster.used == given

    run(tmp_path, monkeypatch, test)
