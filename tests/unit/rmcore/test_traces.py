# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from recording import MPS_CLIENT, RUNTIME, ioctls
from replay import Replay
from rmshell import Core, counts, items

CLIENT_MPS = 0xC1D0007D


@pytest.fixture
def runtime(core: Core) -> Replay:
    replay = Replay(core)
    replay.run(ioctls(RUNTIME))
    return replay


@pytest.fixture
def mps(core: Core) -> Replay:
    replay = Replay(core)
    replay.run(ioctls(MPS_CLIENT))
    return replay


def tsgs(core: Core, client: int) -> dict[int, tuple[bool, int]]:
    """TSG -> (has a compute object, number of channels)."""
    rows = [row.split(":") for row in core("dump", client)["tree"].split(",")]
    found = {}
    for row in rows:
        if int(row[2]) == 0xA06C:
            answer = core("children", client, row[0])
            children = set(items(answer["children"]))
            channels = [r for r in rows if int(r[0]) in children and int(r[2]) == 0xC86F]
            found[int(row[0])] = (answer["computes"] == "1", len(channels))
    return found


def test_a_cuda_program_has_four_tsgs_and_twenty_channels(runtime: Replay) -> None:
    wanted = {
        "tsg": 4,
        "channel": 20,
        "ctxshare": 1,
        "usermode": 2,
        "compute": 8,
        "copy": 20,
        "vaspace": 2,
        "device": 1,
    }
    assert {kind: runtime.peak[kind] for kind in wanted} == wanted


def test_eight_of_its_channels_are_in_the_compute_tsg(runtime: Replay) -> None:
    [client] = runtime.clients
    groups = tsgs(runtime.core, client)
    assert sorted(groups.values()) == [(False, 4), (False, 4), (False, 4), (True, 8)]


def test_its_memory_is_what_the_driver_said(runtime: Replay) -> None:
    [client] = runtime.clients
    payer = runtime.core("payer", client, 0)
    # the sum of the sizes that the H100's driver answered to its twenty RM_ALLOC of class 0x40
    answered = sum(
        int.from_bytes(call.params_after[64:72], "little")
        for call in ioctls(RUNTIME)
        if call.path == "/dev/nvidiactl" and call.nr == 0x2B and call.before[12:16] == b"\x40\0\0\0"
    )
    assert int(payer["bytes"]) == answered > 500 << 20
    assert counts(payer["counts"])["video"] == 20
    assert runtime.core.numbers("usage", 0)["used"] == answered


def test_its_context_share_and_channels_die_with_their_va_space_and_the_tsg_stays(runtime: Replay) -> None:
    [client] = runtime.clients
    died = items(runtime.core("free", client, 0x5C000009)["died"])
    assert {0x5C000009, 0x5C000016, 0x5C00001C} <= set(died)
    assert 0x5C000015 not in died  # it was made without a VA space of its own


def test_after_its_files_are_closed_there_is_nothing(runtime: Replay) -> None:
    runtime.close()
    usage = runtime.core.numbers("usage", 0)
    assert usage["used"] == 0
    assert usage["peak"] > 500 << 20


def test_every_recorded_call_was_understood(runtime: Replay) -> None:
    assert runtime.calls["alloc"] == 122
    assert runtime.calls["control"] == 191
    # SYS_PARAMS, CARD_INFO, NUMA_INFO, ATTACH_GPUS and the like
    assert runtime.calls["not followed"] < 15
    assert runtime.refused <= 2


def test_an_mps_client_says_so_and_takes_three_objects_of_its_server(mps: Replay) -> None:
    assert mps.peak["mps"] == 1
    assert mps.clients == [CLIENT_MPS]
    assert mps.foreign_dups == [
        (0x5C00000F, 0xC1D00079, 0x5C000015),
        (0x5C000066, 0xC1D00079, 0x5C000041),
        (0x5C00007E, 0xC1D00079, 0x5C000057),
    ]


def test_the_servers_tsg_carries_the_clients_channels_once_it_is_known_for_what_it_is(mps: Replay) -> None:
    wanted = {"tsg": 4, "channel": 15, "ctxshare": 1, "usermode": 2, "compute": 2, "vaspace": 2}
    assert {kind: mps.peak[kind] for kind in wanted} == wanted
    children = mps.core("children", CLIENT_MPS, 0x5C00000F)
    assert children["computes"] == "1"
    channels = [row for row in mps.core("dump", CLIENT_MPS)["tree"].split(",") if row.split(":")[1] == str(0x5C00000F)]
    assert sum(row.split(":")[2] == str(0xC86F) for row in channels) == 2
    assert sum(row.split(":")[2] == str(0x9067) for row in channels) == 1


def test_after_the_mps_client_there_is_nothing(mps: Replay) -> None:
    mps.close()
    assert mps.core.numbers("usage", 0)["used"] == 0
