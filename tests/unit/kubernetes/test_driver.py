# SPDX-License-Identifier: Apache-2.0
"""Claims from kubelet's call to a tenant and back. Kubelet double, API-server double; the daemon's own surface."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from node import FIRST, SECOND, World, run, until

from detshare.ctl.kubernetes import pods
from detshare.ctl.kubernetes.api import GROUP, Api

PARTS = {"memory": "8Gi", "share": "30"}
GIB = 1 << 30


def test_a_prepared_claim_makes_its_pod_a_tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        claim = w.claim("a", pod, consumed=PARTS, of_class={"class": "low"}, of_claim={"floorPercent": 5})
        ((name,),) = (await w.kubelet.prepare(claim)).values()
        assert w.module.limits == {(cgroup, 0): 8 * GIB}
        assert w.module.orders == {cgroup: "class low-floor-50, weight 30"}
        assert w.module.classes["low-floor-50"]["floor_permille"] == 50
        # a limit has to be there before anything else
        assert [each[0] for each in w.module.done] == ["set-memory", "set-priority"]
        got = w.edits(name)
        assert got["deviceNodes"] == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
        assert got["env"] == ["DETSHARE_CLAIM=default/a"]
        await w.kubelet.unprepare(claim)
        assert (w.module.limits, w.module.orders) == ({}, {})
        assert list(w.cdi[1].iterdir()) == []

    run(tmp_path, monkeypatch, test)


@pytest.mark.parametrize("version", ["v1.DRAPlugin", "v1beta1.DRAPlugin"])
def test_what_is_asked_twice_is_answered_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        claim = w.claim("a", pod, consumed=PARTS)
        first = await w.kubelet.prepare(claim, version=version)
        assert await w.kubelet.prepare(claim, version=version) == first
        assert w.module.orders == {cgroup: "weight 30"}
        for _ in range(2):
            await w.kubelet.unprepare(claim, version=version)
        assert w.module.orders == {}

    run(tmp_path, monkeypatch, test)


def test_each_claim_of_a_call_has_its_own_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        good, bad = w.claim("good", pod, consumed=PARTS), w.claim("bad", pod, of_claim={"class": "urgent"})
        with pytest.raises(RuntimeError, match="'urgent' is no class: use one of high, normal, low, idle"):
            await w.kubelet.prepare(good, bad)
        assert w.module.orders == {cgroup: "weight 30"}

    run(tmp_path, monkeypatch, test)


def test_two_claims_of_a_pod_and_two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        one = w.claim("one", pod, consumed=PARTS)
        two = w.claim("two", pod, devices=(FIRST, SECOND), consumed={"memory": "4Gi", "share": "20"})
        await w.kubelet.prepare(one)
        ((first, second),) = (await w.kubelet.prepare(two)).values()
        assert w.module.limits == {(cgroup, 0): 12 * GIB, (cgroup, 1): 4 * GIB}
        assert w.edits(first)["deviceNodes"][-1] == "/dev/nvidia0"
        assert w.edits(second)["deviceNodes"][-1] == "/dev/nvidia1"
        await w.kubelet.unprepare(one)
        await until(lambda: w.module.limits[cgroup, 0] == 4 * GIB)
        await w.kubelet.unprepare(two)
        assert (w.module.limits, w.module.orders) == ({}, {})

    run(tmp_path, monkeypatch, test)


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda w, c: shutil.rmtree(w.cgroups / "kubepods.slice"), "there is no cgroup of pod"),
        (lambda w, c: setattr(w.module, "name", "root"), "detshared has backend root, and only kmod holds"),
        (lambda w, c: w.module.gpus.pop(0), "this node has no GPU gpu-00000000"),
        (lambda w, c: c["metadata"].update(uid="another"), "the claim of that name has UID"),
        (lambda w, c: c["metadata"].update(uid="../../etc/a"), "is no UID of a claim"),
        (lambda w, c: c["metadata"].update(name="none"), "404: .*none not found"),
        (lambda w, c: setattr(w.cluster, "down", True), "503: the server is currently unable"),
        (lambda w, c: (w.account / "token").write_text("stolen"), "401: Unauthorized"),
    ],
)
def test_what_cannot_be_prepared_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Any, why: str
) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, _ = w.pod()
        claim = json.loads(json.dumps(w.claim("a", pod, consumed=PARTS)))
        break_it(w, claim)
        looks = w.module.looks
        await until(lambda: w.module.looks > looks + 1)
        with pytest.raises(RuntimeError, match=why):
            await w.kubelet.prepare(claim)
        assert list(w.cdi[1].iterdir()) == []
        assert not (w.kubelet.folder / "plugins/gpu.detshare.io/checkpoint.json").exists()

    run(tmp_path, monkeypatch, test)


def test_a_daemon_that_is_away_lets_pods_end_and_none_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, _ = w.pod()
        claim = w.claim("a", pod, consumed=PARTS)
        await w.kubelet.prepare(claim)
        await w.stop_daemon()
        with pytest.raises(RuntimeError, match=r"detshared"):
            await w.kubelet.prepare(claim)
        await w.kubelet.unprepare(claim)
        assert list(w.cdi[1].iterdir()) == []
        await w.start_daemon()
        await w.kubelet.prepare(claim)

    run(tmp_path, monkeypatch, test)


def test_a_change_while_the_daemon_is_away_comes_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        one, first = w.pod()
        await w.kubelet.prepare(w.claim("a", one, consumed=PARTS))
        await until(lambda: w.cluster.watches == 1)
        await w.stop_daemon()
        two, second = w.pod()
        w.claim("a", one, two, consumed=PARTS)
        await w.cluster.tell()
        await until(lambda: "claim default/a stays as it was" in caplog.text)
        await w.start_daemon()
        await until(lambda: w.module.limits == {(first, 0): 4 * GIB, (second, 0): 4 * GIB})

    run(tmp_path, monkeypatch, test)


def test_a_claim_is_resized_while_its_pod_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        await w.kubelet.prepare(w.claim("a", pod, consumed=PARTS, of_class={"class": "low"}))
        await w.cluster.change("a", memory="4Gi", weight="10")
        await until(lambda: w.module.limits == {(cgroup, 0): 4 * GIB})
        await until(lambda: w.module.orders == {cgroup: "class low, weight 10"})
        # more than was allocated: all stays as it was
        await w.cluster.change("a", memory="9Gi")
        await w.cluster.change("a", memory="6Gi", weight="5")
        await until(lambda: w.module.limits == {(cgroup, 0): 6 * GIB})
        assert ("set-memory", cgroup, 9 * GIB, 0) not in w.module.done
        await w.cluster.change("a", memory=None, weight=None)
        await until(lambda: w.module.limits == {(cgroup, 0): 8 * GIB})
        # the server ended the watch, and has forgotten what was since
        w.cluster.forget_events()
        await w.cluster.tell()
        await until(lambda: w.cluster.watches == 1)
        await w.cluster.change("a", memory="1Gi")
        await until(lambda: w.module.limits == {(cgroup, 0): 1 * GIB})

    run(tmp_path, monkeypatch, test)


def test_a_node_may_have_any_number_of_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        async with Api(w.cluster.address, w.account) as api, asyncio.TaskGroup() as group:

            async def follow() -> None:
                async for _ in api.watch(f"{GROUP}/namespaces/default/resourceclaims", "100"):
                    pass

            watches = [group.create_task(follow()) for _ in range(150)]
            await until(lambda: w.cluster.watches == len(watches))
            assert (await api.get("api/v1/nodes/worker-1"))["kind"] == "Node"
            for each in watches:
                each.cancel()

    run(tmp_path, monkeypatch, test)


def test_a_second_pod_of_a_claim_divides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        one, first = w.pod()
        await w.kubelet.prepare(w.claim("a", one, consumed=PARTS))
        two = "11111111-2222-3333-4444-555555555555"
        w.claim("a", one, two, consumed=PARTS)
        await w.cluster.tell()
        await until(lambda: w.module.limits.get((first, 0)) == 4 * GIB)
        # kubelet makes its cgroup later, and does not ask again
        _, second = w.pod(two)
        await until(lambda: w.module.limits == {(first, 0): 4 * GIB, (second, 0): 4 * GIB})
        await until(lambda: w.module.orders == {first: "weight 15", second: "weight 15"})

    run(tmp_path, monkeypatch, test)


def test_limits_come_back_after_the_module_was_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        await w.kubelet.prepare(w.claim("a", pod, consumed=PARTS))
        w.module.reload()
        await until(lambda: w.module.limits == {(cgroup, 0): 8 * GIB} and w.module.orders == {cgroup: "weight 30"})

    run(tmp_path, monkeypatch, test)


def test_a_restart_between_takes_up_what_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        await w.start_driver()
        pod, cgroup = w.pod()
        claim = w.claim("a", pod, consumed=PARTS)
        names = await w.kubelet.prepare(claim)
        await w.stop_driver()
        assert w.kubelet.sockets() == []
        assert w.module.limits == {(cgroup, 0): 8 * GIB}  # a pod keeps its limit without a driver
        orphan = w.cdi[1] / "gpu.detshare.io-claim-orphan.json"
        orphan.write_text("{}")
        w.module.reload()
        await w.cluster.change("a", memory="2Gi")
        await w.start_driver()
        assert not orphan.exists()
        await until(lambda: w.module.limits == {(cgroup, 0): 2 * GIB})
        assert await w.kubelet.prepare(claim) == names
        await w.stop_driver()
        await w.start_driver()
        await w.kubelet.unprepare(claim)
        assert (w.module.limits, w.module.orders, list(w.cdi[1].iterdir())) == ({}, {}, [])

    run(tmp_path, monkeypatch, test)


def test_a_checkpoint_that_cannot_be_read_stops_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(w: World) -> None:
        folder = w.kubelet.folder / "plugins/gpu.detshare.io"
        folder.mkdir()
        claims = ("[]", '{"a": {}}')
        for data in ("{", '{"version": 2, "claims": {}}', "[]", *(f'{{"version": 1, "claims": {c}}}' for c in claims)):
            (folder / "checkpoint.json").write_text(data)
            with pytest.raises(Exception, match="read the checkpoint"):
                await w.start_driver()
            assert (folder / "checkpoint.json").read_text() == data

    run(tmp_path, monkeypatch, test)


def test_containers_get_the_driver_s_libraries_where_they_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(w: World) -> None:
        mount = {"hostPath": "/usr/lib/libcuda.so.580", "containerPath": "/usr/lib/libcuda.so.580"}
        found = {
            "cdiVersion": "0.3.0",
            "kind": "detshare.io/gpu",
            "devices": [{"name": "high", "containerEdits": {"env": ["A=1"]}}],
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}], "mounts": [mount]},
        }
        (w.cdi[0] / "detshare.io-gpu.json").write_text(json.dumps(found))
        await w.start_driver()
        pod, _ = w.pod()
        claim = w.claim("a", pod, consumed=PARTS)
        ((name,),) = (await w.kubelet.prepare(claim)).values()
        got = w.edits(name)
        assert got["mounts"] == ["/usr/lib/libcuda.so.580"]
        assert got["deviceNodes"] == ["/dev/nvidiactl", "/dev/nvidia0"]
        (w.cdi[0] / "detshare.io-gpu.json").write_text("no JSON")
        with pytest.raises(RuntimeError, match="is no CDI specification"):
            await w.kubelet.prepare(claim)

    run(tmp_path, monkeypatch, test)


@pytest.mark.parametrize(
    "path",
    [
        "kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice",
        "kubepods/burstable/pod11111111-2222-3333-4444-555555555555",
        "kubepods/pod11111111-2222-3333-4444-555555555555",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        "kubelet-kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice",
    ],
)
def test_a_pod_s_cgroup_is_found(tmp_path: Path, path: str) -> None:
    other = path.replace("555555555555", "555555555556")
    for each in (other, f"{path}/cri-containerd-a.scope", "system.slice/a", "user.slice"):
        (tmp_path / each).mkdir(parents=True)
    assert pods.cgroup_of(tmp_path, "11111111-2222-3333-4444-555555555555") == f"/{path}"
    assert pods.cgroup_of(tmp_path, "11111111-2222-3333-4444-555555555557") is None
