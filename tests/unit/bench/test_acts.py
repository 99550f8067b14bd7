# SPDX-License-Identifier: Apache-2.0
"""The module's C code builds the same calls as the control plane's tables, for every branch."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import threading
import time
from pathlib import Path

import pytest

from detshare.ctl.abi import tables
from detshare.ctl.abi.versions import for_version
from detshare.tools.bench import userd
from detshare.tools.bench.acts import Acts, ActsError, Answer, Recorded

CLIENT, TSG, SUBDEVICE = 0xC1D00001, 0x5C000015, 0x5C000003


@pytest.fixture(scope="module", params=sorted(tables.VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def acts(version: str, tmp_path_factory: pytest.TempPathFactory) -> Acts:
    return Acts(version, tmp_path_factory.mktemp("acts"))


def test_steps_are_what_the_tables_say(acts: Acts, version: str) -> None:
    abi = for_version(version)
    for step, name, target, values in (
        (acts.set_slice(CLIENT, TSG, 12345), "NVA06C_CTRL_CMD_SET_TIMESLICE", TSG, {"timesliceUs": 12345}),
        (acts.set_level(CLIENT, TSG, 2), "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", TSG, {"tsgInterleaveLevel": 2}),
        (acts.preempt(CLIENT, TSG), "NVA06C_CTRL_CMD_PREEMPT", TSG, {"bWait": 1}),
        (acts.get_slice(CLIENT, TSG), "NVA06C_CTRL_CMD_GET_TIMESLICE", TSG, {}),
    ):
        wanted = bytes(abi.params(name).pack(**values))
        assert (step.client, step.object, step.cmd) == (CLIENT, target, abi.control(name).number)
        assert bytes(step.params)[: step.size] == wanted


def test_a_pause_names_all_channels_in_one_call(acts: Acts, version: str) -> None:
    abi = for_version(version)
    name = "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"
    channels = [(CLIENT, 0x5C000020 + number) for number in range(8)]
    step = acts.disable(CLIENT, SUBDEVICE, channels, True)
    layout = abi.params(name)
    wanted = layout.pack(bDisable=1, numChannels=8)
    for index, (client, channel) in enumerate(channels):
        layout.put(wanted, "hClientList", client, index)
        layout.put(wanted, "hChannelList", channel, index)
    assert (step.object, step.cmd, bytes(step.params)[: step.size]) == (SUBDEVICE, abi.control(name).number, wanted)
    with pytest.raises(ActsError):
        acts.disable(CLIENT, SUBDEVICE, [], True)


def test_the_slice_is_read_from_the_answer(acts: Acts, version: str) -> None:
    params = for_version(version).params("NVA06C_CTRL_CMD_GET_TIMESLICE").pack(timesliceUs=2048)
    assert acts.slice_us(Answer(0, 1.0, bytes(params))) == 2048


def test_an_unknown_driver_is_told(tmp_path: Path) -> None:
    with pytest.raises(ActsError, match=r"no table for driver 1\.2\.3"):
        Acts("1.2.3", tmp_path)


def test_recorded_controls_have_their_size() -> None:
    known = Recorded(for_version("580.159.04").table)
    name = "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE"
    raw = known.ask(CLIENT, SUBDEVICE, name, {"flags": [1], "hChannel": [TSG], "cilpPreemptMode": [2]})
    assert (raw.size, struct.unpack_from("<4I", raw.params)) == (32, (1, TSG, 0, 2))


def test_a_slot_whose_put_moves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    mapping = userd.Mapping(_address(page), mmap.PAGESIZE, "/dev/nvidia0")
    monkeypatch.setattr(userd, "mappings", lambda _pid: [mapping])
    struct.pack_into("<II", page, 3 * userd.SLOT + userd.GET, 5, 5)

    def submit() -> None:
        time.sleep(0.05)
        struct.pack_into("<II", page, 3 * userd.SLOT + userd.GET, 6, 7)

    thread = threading.Thread(target=submit)
    thread.start()
    found = userd.moving(os.getpid(), 0.3)
    thread.join()
    assert [(one.get, one.put, other.get, other.put) for one, other in found] == [(5, 5, 6, 7)]
    assert found[0][1].address == mapping.start + 3 * userd.SLOT


def _address(page: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(page)
    try:
        return ctypes.addressof(view)
    finally:
        del view
