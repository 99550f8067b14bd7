# SPDX-License-Identifier: Apache-2.0
"""The calls that the module makes, byte by byte: as each version's headers say, and as CUDA made them on an H100."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest
from blocks import REFERENCE, VERSIONS, data
from recording import CTL, RUNTIME, ioctls
from rmshell import EINVAL, ROOT, Core

CLIENT, OBJECT = 0xC1D0001E, 0x5C000012
RECORDED_ON: Final = "580.159.04"
CONTROL: Final = 42
CHANNELS_MAX: Final = 64
BUSY_CHECK: Final = 3 | 1 << 8 | 4 << 8  # behaviour: force a busy check; a list; push buffer and graphics idle

# act -> words behind client and object, control, members that are not zero
ACTS: Final[dict[str, tuple[tuple[object, ...], str, dict[str, int]]]] = {
    "get_slice": ((), "NVA06C_CTRL_CMD_GET_TIMESLICE", {}),
    "set_slice": ((0x123456789,), "NVA06C_CTRL_CMD_SET_TIMESLICE", {"timesliceUs": 0x123456789}),
    "set_level": ((2,), "NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL", {"tsgInterleaveLevel": 2}),
    "preempt": ((), "NVA06C_CTRL_CMD_PREEMPT", {"bWait": 1}),
    "no_realtime": ((), "NVA06C_CTRL_CMD_MAKE_REALTIME", {}),
    "preemptible": (
        (0x5C000019,),
        "NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE",
        {"flags": 1, "hChannel": 0x5C000019, "cilpPreemptMode": 2},
    ),
    "restart_runlist": ((1,), "NVA06F_CTRL_CMD_RESTART_RUNLIST", {"bForceRestart": 1}),
    "tpc_mode": ((1, 1), "NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE", {"mode": 1, "bEnableAllTpcs": 1}),
}


def control(version: str, name: str) -> tuple[int, str]:
    """Its number and the name of its parameters."""
    entry = next(control for control in data("controls")[version] if control["name"] == name)
    return int(entry["id"]), str(entry["param"])


def layout(version: str, name: str) -> tuple[int, dict[str, tuple[int, int]]]:
    """Bytes of a structure, and its members' places and sizes."""
    entry: dict[str, Any] = data("structs")[name][version]
    return entry["size"], {field: (at, size) for at, size, field, _ in entry["fields"]}


def expected(version: str, name: str, members: dict[str, int]) -> tuple[int, bytearray]:
    cmd, params = control(version, name)
    size, fields = layout(version, params)
    block = bytearray(size)
    for member, number in members.items():
        at, width = fields[member]
        block[at : at + width] = number.to_bytes(width, "little")
    return cmd, block


def built(core: Core, act: str, *words: object) -> tuple[int, int, int, bytes]:
    step = core("act", act, CLIENT, OBJECT, *words)
    params = step["params"]
    return int(step["client"]), int(step["object"]), int(step["cmd"]), bytes.fromhex(params)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("act", ACTS)
def test_an_act_is_what_the_version_says(decoder: Core, version: str, act: str) -> None:
    words, name, members = ACTS[act]
    decoder("abi", version)
    cmd, block = expected(version, name, members)
    assert built(decoder, act, *words) == (CLIENT, OBJECT, cmd, bytes(block))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("off", "count"), [(1, 1), (0, 2), (1, CHANNELS_MAX)])
def test_channels_are_listed(decoder: Core, version: str, off: int, count: int) -> None:
    decoder("abi", version)
    pairs = [(CLIENT + i, OBJECT + 7 * i) for i in range(count)]
    name = "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS"
    cmd, block = expected(version, name, {"bDisable": off, "numChannels": count})
    _, fields = layout(version, control(version, name)[1])
    for member, numbers in zip(("hClientList", "hChannelList"), zip(*pairs, strict=True), strict=True):
        struct.pack_into(f"<{count}I", block, fields[member][0], *numbers)
    words = [word for pair in pairs for word in pair]
    assert built(decoder, "disable", off, *words) == (CLIENT, OBJECT, cmd, bytes(block))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, CHANNELS_MAX])
def test_a_question_whether_channels_are_idle_waits_for_a_moment_only(decoder: Core, version: str, count: int) -> None:
    decoder("abi", version)
    name = "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS"
    # a timeout of 0 would be the driver's own; at 100 an H100 has not looked yet
    _, block = expected(version, name, {"numChannels": count, "flags": BUSY_CHECK, "timeout": 400})
    struct.pack_into(f"<{count}I", block, 4, *range(OBJECT, OBJECT + count))
    assert bytes.fromhex(decoder("act_ask_idle", *range(OBJECT, OBJECT + count))["params"]) == block


def test_lists_that_no_call_can_hold_are_refused(decoder: Core) -> None:
    assert decoder.error("act", "disable", CLIENT, OBJECT, 1) == EINVAL
    assert decoder.error("act", "disable", CLIENT, OBJECT, 1, *(CLIENT, OBJECT) * (CHANNELS_MAX + 1)) == EINVAL
    assert decoder.error("act_ask_idle") == EINVAL
    assert decoder.error("act_ask_idle", *[OBJECT] * (CHANNELS_MAX + 1)) == EINVAL
    for used in (0, 257):
        assert decoder.error("act", "tpc_table", CLIENT, OBJECT, used) == EINVAL


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("used", [1, 66, 256])
def test_a_table_holds_the_first_tpcs(decoder: Core, version: str, used: int) -> None:
    decoder("abi", version)
    cmd, block = expected(version, "NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE", {"numUsedTpc": used})
    struct.pack_into(f"<{2 * used}H", block, 2, *(number // 2 for number in range(2 * used)))
    assert built(decoder, "tpc_table", used) == (CLIENT, OBJECT, cmd, bytes(block))


@pytest.mark.parametrize(
    ("every", "percent", "tpcs"), [(66, 100, 66), (66, 400, 66), (66, 50, 33), (66, 1, 1), (1, 1, 1), (66, 99, 65)]
)
def test_a_percentage_is_some_tpcs_and_never_none(decoder: Core, every: int, percent: int, tpcs: int) -> None:
    assert decoder.numbers("act_tpcs", every, percent)["tpcs"] == tpcs


def test_what_the_driver_answers_is_the_slice(decoder: Core) -> None:
    assert decoder.numbers("act_slice", (2048).to_bytes(8, "little"))["us"] == 2048


def recorded(name: str) -> list[tuple[int, int, bytes]]:
    """Client, object and parameters of each such control of the recorded program."""
    cmd = control(REFERENCE, name)[0]
    found = []
    for call in ioctls(RUNTIME):
        if call.path == CTL and call.nr == CONTROL:
            client, handle, number, _, _, size = struct.unpack_from("<IIIIQI", call.before)
            if number == cmd:
                found.append((client, handle, call.params_before[:size]))
    return found


def test_cuda_makes_the_same_call_for_its_slice(decoder: Core) -> None:
    """The bytes that CUDA gave the driver of an H100, which took them."""
    decoder("abi", RECORDED_ON)
    calls = recorded("NVA06C_CTRL_CMD_SET_TIMESLICE")
    assert calls
    for client, tsg, params in calls:
        step = decoder("act", "set_slice", client, tsg, int.from_bytes(params, "little"))
        assert bytes.fromhex(step["params"]) == params
        assert (int(step["client"]), int(step["object"])) == (client, tsg)


def test_every_act_is_tried_here() -> None:
    header = (ROOT / "kmod" / "rm" / "act.h").read_text()
    names = {line.partition("rm_act_")[2].partition("(")[0] for line in header.splitlines() if "rm_act_" in line}
    assert names == {*ACTS, "ask_idle", "disable", "tpc_table", "slice"}
