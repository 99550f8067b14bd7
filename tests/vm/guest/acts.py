# SPDX-License-Identifier: Apache-2.0
"""The module's calls, sent from user space by the module's own C code, act on the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from detshare.ctl.rm.kernel import KernelDriver
from detshare.tools.bench.acts import Acts, Answer, Recorded, Tenant, tenant

TSGS = Path("/sys/kernel/debug/nvsim/gpu0/tsgs")
PERMISSIONS = 0x1B  # NV_ERR_INSUFFICIENT_PERMISSIONS


@pytest.fixture(scope="module")
def driver() -> KernelDriver:
    return KernelDriver()


@pytest.fixture(scope="module")
def acts(driver: KernelDriver, tmp_path_factory: pytest.TempPathFactory) -> Acts:
    return Acts(driver.version, tmp_path_factory.mktemp("acts"))


@pytest.fixture
def program(driver: KernelDriver) -> Iterator[Tenant]:
    """A program with work."""
    path = Path(os.environ["DETSHARE_NVCLIENT"]) / "nvbackground"
    process = subprocess.Popen([str(path), "--us", "2000", "--depth", "8"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ready"
    with tenant(driver, process.pid) as found:
        yield found
    process.kill()
    process.wait()


def row(program: Tenant) -> dict[str, str]:
    head, *lines = TSGS.read_text().splitlines()
    rows = [dict(zip(head.split(), line.split(), strict=True)) for line in lines]
    return next(row for row in rows if int(row["handle"], 16) == program.tsg.handle)


def test_slice_and_level_are_set_and_read_back(acts: Acts, program: Tenant) -> None:
    client, tsg = program.client, program.tsg.handle
    assert program.send(acts.set_slice(client, tsg, 4321)).status == 0
    assert acts.slice_us(program.send(acts.get_slice(client, tsg))) == 4321
    assert program.send(acts.set_level(client, tsg, 2)).status == 0
    assert (row(program)["slice_us"], row(program)["level"]) == ("4321", "2")


def test_preempt_and_restart_are_accepted(acts: Acts, program: Tenant) -> None:
    before = int(row(program)["preempts"])
    assert program.send(acts.preempt(program.client, program.tsg.handle)).status == 0
    assert int(row(program)["preempts"]) > before
    assert program.send(acts.restart_runlist(program.client, program.tsg.channels[0], False)).status == 0


def test_channels_go_off_and_on(acts: Acts, program: Tenant) -> None:
    def switch(off: bool) -> Answer:
        return program.send(acts.disable(program.client, program.tsg.subdevice, program.channels, off))

    assert switch(True).status == 0
    assert row(program)["off"] == str(len(program.channels))
    assert switch(False).status == 0
    assert row(program)["off"] == "0"


def test_a_tpc_table_needs_more_than_root(acts: Acts, program: Tenant) -> None:
    share = program.tsg.context_shares[0]
    assert program.send(acts.tpc_mode(program.client, program.tsg.handle, 2, False)).status in (0, 0x56)
    assert program.send(acts.tpc_table(program.client, share, 10)).status == PERMISSIONS


def test_a_recorded_control_has_its_size_and_fields(program: Tenant) -> None:
    known = Recorded(program.abi.table)
    name = "NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID"
    raw = known.ask(program.client, program.tsg.subdevice, name, {"hClients": [1, 2], "numChannels": [7]})
    assert raw.params[:8] == bytes.fromhex("0100000002000000")
    assert raw.params[known.at(name, "numChannels")] == 7
