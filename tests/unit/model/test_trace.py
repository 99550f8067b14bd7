# SPDX-License-Identifier: Apache-2.0
"""The model's RM server answers a recorded process as the H100's driver did."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.objects import Client, Kind, OpenFile
from detshare.ctl.core.driver import Gpu

DATA = Path(__file__).parents[2] / "data"
BASE = 0x5C000000


def load(name: str) -> tuple[ModelDriver, list[dict[str, Any]]]:
    trace = json.loads((DATA / f"trace-h100-{name}.json").read_text(encoding="utf-8"))
    records = trace["records"]
    gid = next(r for r in records if r["op"] == "control" and r["command"] == 0x2080014A)
    text = str(uuid.UUID(bytes=bytes.fromhex(gid["out"])[12:28]))
    return ModelDriver(version=trace["driver"], gpus=[Gpu(f"GPU-{text}", 0, "H100", "0000:06:00.0")]), records


def replay(driver: ModelDriver, records: list[dict[str, Any]], watch: Any) -> dict[int, OpenFile]:
    rm = driver.rm
    files: dict[int, OpenFile] = {}
    for record in records:
        file = files.get(record["fd"])
        if record["op"] == "open":
            if file is not None:
                rm.close(file)
            files[record["fd"]] = rm.open(record["path"])
            continue
        assert file is not None
        if record["op"] == "register":
            rm.register(file, files[record["ctl"]])
            continue
        if record["op"] == "alloc":
            status, handle = rm.alloc(
                file,
                record["root"],
                record["parent"],
                record["handle"],
                record["class"],
                engine=record.get("engine", 0),
                gpu=record.get("gpu", 0),
                pid=7,
            )
            assert handle == record["new"], record
        elif record["op"] == "free":
            status = rm.free(file, record["root"], record["handle"])
        elif record["op"] == "dup":
            status, handle = rm.dup(
                file,
                record["client"],
                record["parent"],
                record["handle"],
                record["source_client"],
                record["source"],
            )
            assert handle == record["handle"], record
        else:
            params = bytearray.fromhex(record["in"])
            assert len(params) == record["size"]
            status = rm.control(file, record["client"], record["target"], record["command"], params)
            if record["out"]:
                assert params.hex() == record["out"], record
        assert status == record["status"], record
        watch()
    return files


def census(client: Client) -> Counter[Kind]:
    return Counter(node.kind for node in client.objects.values())


def test_the_runtime_trace_is_answered_as_recorded() -> None:
    driver, records = load("runtime")
    # what the kernel's other clients had used up before
    driver.rm.next_client = 0x1D
    largest: Counter[Kind] = Counter()

    def watch() -> None:
        nonlocal largest
        for client in driver.rm.clients.values():
            largest = max(largest, census(client), key=lambda c: sum(c.values()))

    files = replay(driver, records, watch)
    assert largest[Kind.TSG] == 4
    assert largest[Kind.CHANNEL] == 20
    assert largest[Kind.CONTEXT_SHARE] == 1
    assert largest[Kind.COMPUTE] == 8
    assert largest[Kind.COPY] == 20
    (client,) = driver.rm.clients.values()
    compute = client.objects[BASE + 0x15]
    assert sum(child.kind is Kind.CHANNEL for child in compute.children.values()) == 8
    assert compute.tsg is not None
    assert compute.tsg.slice_us == 2048
    copies = [n.tsg for n in client.objects.values() if n.kind is Kind.TSG and n is not compute]
    assert [(t.slice_us, len(t.channels)) for t in copies if t] == [(1024, 4)] * 3
    for file in files.values():
        driver.rm.close(file)
    assert driver.rm.clients == {}
    assert driver.rm.resources == 0
    assert driver.gpu_models[0].tsgs == []


@pytest.mark.parametrize("shared", [True, False])
def test_the_mps_client_trace_needs_the_servers_permission(shared: bool) -> None:
    driver, records = load("mps-client")
    rm, abi = driver.rm, driver.abi
    rm.next_client = 0x79
    server = rm.open("/dev/nvidiactl")
    _, owner = rm.alloc(server, 0, 0, 0, abi.klass("NV01_ROOT_CLIENT"), pid=3)
    for handle, parent, klass in (
        (0x02, owner, abi.klass("NV01_DEVICE_0")),
        (0x15, BASE + 0x02, abi.klass("KEPLER_CHANNEL_GROUP_A")),
        (0x41, BASE + 0x02, 0x3E),
        (0x57, BASE + 0x02, 0x40),
    ):
        assert rm.alloc(server, owner, parent, BASE + handle, klass, engine=1, pid=3) == (0, BASE + handle)
        if shared:
            rm.share(server, owner, BASE + handle)
    rm.next_client = 0x7C
    if not shared:
        stop = next(n for n, r in enumerate(records) if r["op"] == "dup")
        files = replay(driver, records[:stop], lambda: None)
        dup = records[stop]
        status, _ = rm.dup(
            files[dup["fd"]],
            dup["client"],
            dup["parent"],
            dup["handle"],
            dup["source_client"],
            dup["source"],
        )
        assert abi.status_name(status) == "NV_ERR_INSUFFICIENT_PERMISSIONS"
        return
    files = replay(driver, records, lambda: None)
    client = rm.clients[0xC1D0007D]
    assert census(client)[Kind.TSG] == 5
    assert census(client)[Kind.CHANNEL] == 15
    assert census(client)[Kind.MPS] == 1
    assert client.objects[BASE + 0x0F].tsg is rm.clients[owner].objects[BASE + 0x15].tsg
    for file in files.values():
        rm.close(file)
    assert list(rm.clients) == [owner]
    assert len(driver.gpu_models[0].tsgs) == 1
    rm.close(server)
    assert driver.gpu_models[0].tsgs == []
