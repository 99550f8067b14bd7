# SPDX-License-Identifier: Apache-2.0
"""What a program may call itself: the decision, on recorded programs and on tricks."""

from __future__ import annotations

import re
import struct
from collections import Counter
from typing import Final

import pytest
from recording import CTL, MPS_CLIENT, RUNTIME, ioctls
from rmshell import KINDS, ROOT, Core

OWN, OTHER = 0xC1D0001E, 0xC1D00079
CONTROL: Final = 42
VERSIONS: Final = ("535.288.01", "550.163.01", "570.211.01", "580.159.04", "590.48.01", "595.45.04")
PERMISSIONS: Final = 0x1B

SET_TIMESLICE: Final = 0xA06C0103
DISABLE_CHANNELS: Final = 0x2080110B
PREEMPTION_MODE: Final = 0x20801210
PREEMPTION_BIND: Final = 0x20801211
GROUP_IDS: Final = 0x20801123
CHANNEL_IDS: Final = 0x20801124
CHANNEL_INFO: Final = 0x20801116
IDLE_CHANNELS: Final = 0x00801714
TRUSTED_ONLY: Final = {0x00000283, 0x2080111A, 0x2080111C}
SCHEDULE: Final = (
    0x00801705, 0xA06C0101, 0xA06F0103, 0xA16F0103, 0xA26F0103, 0xB06F0103, 0xC06F0103, 0x83DE0318,
)  # fmt: skip
SWALLOWED: Final = {SET_TIMESLICE, 0x00801108, 0x00900101, 0x2080122C}
REFUSED: Final = {
    0xA06C0105, 0xA06C0107, 0xA06C0110, 0xA06F0109, 0xA06F0111, 0x906F0102, 0xB06F010D, 0xB06F0110, 0xB06F0112,
    0x0080170F, 0x00801711, 0x00801712, 0x20800130, 0x20800194, 0x20801110, 0x20801115, 0x20801121,
    0x90670102, 0x90670202, 0x00FE0101, 0x208001AC, 0x20801102, 0x20801103, 0x00000B03, 0x00000B04, 0x2080121C,
    0x90CC0103, 0x2080130E, 0x20801702, 0x2080220A, 0x208F0506, 0x208001A9, 0x208001AA, 0x208001AD, 0x83DE031D,
    0x00E00101, 0x00E00102, 0x506F0105, 0x50800101, 0x50800103, 0x00410116, 0x00801805, 0xB0CC010A,
    0xA06F0102, 0xA16F0102, 0xA26F0102, 0xB06F0102, 0xC06F0102, 0xC36F0102,
    0x2080130F, 0x20801318, 0x20801709, 0x208F0703, 0x208F1206, *range(0x01000102, 0x0100010A),
    0x20800112, 0x20800602, 0x20800604, 0x20801353, 0x20801818, 0x20801824, 0x20801832, 0x2080205B, 0x2080206F,
    0x20802092, 0x20804102, 0x208F050E, 0x208F0511, 0x208F0701, 0x208F1102,
}  # fmt: skip
NAMING: Final = {
    0x20800122: 0, 0x20801205: 1, 0x20802502: 0, 0x208F0403: 1, 0x503C0106: 0,
    0x20801208: 0, 0x20801209: 0, 0x2080123A: 0, 0x208001A6: 0, 0x00000D03: 1,
}  # fmt: skip
"""which of their words names a client, if not 0"""
SIZES: Final = {0x20800122: 48, 0x503C0106: 4, 0x20801208: 24, 0x20801209: 40, 0x208001A6: 1832, 0x00000D03: 12}
"""of their parameters; of the others 16"""
OF_ITSELF: Final = {0x20800122, 0x20801205, 0x20801208, 0x20801209, 0x2080123A, 0x208001A6}
"""those of them that a managed program may not ask for with its own clients either"""
EXPORTS: Final = (0x00E00101, 0x00E00102)
KNOWN_RAW: Final = {0x20808159, 0x20808162, 0x20809038, 0x20810108}


def judge(
    core: Core,
    who: str,
    cmd: int,
    params: bytes = b"",
    *,
    client: int = OWN,
    owns: str = str(OWN),
    flags: int = 0,
    raw: int = 0,
) -> dict[str, str]:
    return core("verdict", who, owns, client, cmd, flags, raw, params)


def verdict(core: Core, who: str, cmd: int, params: bytes = b"", **more: int) -> str:
    return judge(core, who, cmd, params, **more)["verdict"]


def sized(core: Core, cmd: int, *words: int) -> bytes:
    """Parameters of just the size that is judged, which begin with these words."""
    size = int(judge(core, "free", cmd)["size"])
    return struct.pack(f"<{len(words)}I", *words).ljust(size, b"\0")


def channels_off(core: Core, *clients: int) -> bytes:
    params = bytearray(sized(core, DISABLE_CHANNELS, 1, len(clients)))
    struct.pack_into(f"<{len(clients)}I", params, 0x18, *clients)
    return bytes(params)


def queried(core: Core, *clients: int) -> bytes:
    params = bytearray(sized(core, CHANNEL_IDS, *clients))
    struct.pack_into("<I", params, 0x400, len(clients))
    return bytes(params)


@pytest.mark.parametrize("name", [RUNTIME, MPS_CLIENT])
def test_what_cuda_calls_goes_on_while_it_is_managed(decoder: Core, name: str) -> None:
    made: Counter[str] = Counter()
    for call in ioctls(name):
        if call.path != CTL or call.nr != CONTROL:
            continue
        client, _, cmd, flags, _, size = struct.unpack_from("<IIIIQI", call.before)
        answer = judge(decoder, "managed", cmd, call.params_before[:size], client=client, owns=f"{client}", flags=flags)
        made[answer["verdict"]] += 1
        if answer["verdict"] not in ("pass", "wait"):
            assert (answer["verdict"], cmd, int(answer["status"])) == ("swallow", SET_TIMESLICE, 0)
    assert made["wait"] >= 4, "its TSGs are scheduled"
    assert made["pass"] > 100
    assert made["swallow"] == (name == RUNTIME)


@pytest.mark.parametrize("cmd", sorted(SWALLOWED | REFUSED), ids=hex)
def test_what_is_ordered_is_not_undone(decoder: Core, cmd: int) -> None:
    answer = judge(decoder, "managed", cmd)
    assert answer["wanted"] == "1"
    assert (answer["verdict"], answer["reason"]) == ("swallow" if cmd in SWALLOWED else "refuse", "order")
    assert int(answer["status"]) == (0 if cmd in SWALLOWED else PERMISSIONS)
    assert verdict(decoder, "free", cmd) == "pass", "nobody ordered anything"
    assert verdict(decoder, "trusted", cmd) == "pass"


def test_every_rule_is_tried_here(decoder: Core) -> None:
    source = (ROOT / "kmod" / "rm" / "controls.c").read_text()
    table = source[source.index("rules[] = {") : source.index("known_raw")]
    looked_at = {DISABLE_CHANNELS, PREEMPTION_MODE, PREEMPTION_BIND, GROUP_IDS, CHANNEL_IDS, CHANNEL_INFO}
    tried = SWALLOWED | REFUSED | looked_at | set(NAMING) | TRUSTED_ONLY | {IDLE_CHANNELS} | set(SCHEDULE)
    assert len(re.findall(r"\{ \w+, RM_", table)) == len(tried)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("cmd", sorted(NAMING), ids=hex)
def test_nobody_names_the_client_of_another(decoder: Core, version: str, cmd: int) -> None:
    decoder("abi", version)
    if (version, cmd) == ("535.288.01", 0x2080123A):
        assert not sized(decoder, cmd), "it does not have this one"
        return
    size = SIZES.get(cmd, 16)
    for client, reason in ((OTHER, "foreign"), (OWN, "order"), (0, "order")):
        words = [0x77777777] * min(size // 4, 4)
        words[NAMING[cmd]] = client
        params = sized(decoder, cmd, *words)
        assert len(params) == size
        for who in ("managed", "free"):
            answer = judge(decoder, who, cmd, params)
            refused = client == OTHER or (who == "managed" and cmd in OF_ITSELF)
            assert answer["wanted"] == "1"
            assert answer["verdict"] == ("refuse" if refused else "pass"), (hex(client), who)
            assert not refused or answer["reason"] == reason
        assert verdict(decoder, "trusted", cmd, params) == "pass"


@pytest.mark.parametrize("cmd", EXPORTS, ids=hex)
def test_who_has_a_limit_gives_no_memory_to_other_nodes(decoder: Core, cmd: int) -> None:
    answer = judge(decoder, "limited", cmd)
    assert (answer["wanted"], answer["verdict"], answer["reason"]) == ("1", "refuse", "order")
    assert verdict(decoder, "limited", 0x20802502) == "pass", "a limit is no order"


@pytest.mark.parametrize("cmd", sorted(TRUSTED_ONLY), ids=hex)
def test_lists_that_nobody_reads_are_for_the_trusted(decoder: Core, cmd: int) -> None:
    """Keys of confidential computing, and waiting for channels by lists behind pointers."""
    for who in ("free", "managed"):
        for params in (b"", b"\1" * 520):
            answer = judge(decoder, who, cmd, params)
            assert (answer["wanted"], answer["verdict"], answer["reason"]) == ("1", "refuse", "foreign")
    assert judge(decoder, "free", cmd | 0x8000)["reason"] == "foreign", "raw too"
    assert verdict(decoder, "trusted", cmd) == "pass"
    assert judge(decoder, "free", 0x1234111A, b"\1" * 520, raw=1)["reason"] == "foreign"


def test_nobody_holds_the_drivers_lock_by_waiting(decoder: Core) -> None:
    params = bytearray(sized(decoder, IDLE_CHANNELS, 1, 0x5C000015))
    assert len(params) == 16396
    for us, left in ((0, 10_000), (1, 1), (400, 400), (10_000, 10_000), (10_001, 10_000), (0xFFFFFFFF, 10_000)):
        struct.pack_into("<I", params, 0x4008, us)
        for cmd, raw in ((IDLE_CHANNELS, 0), (IDLE_CHANNELS | 0x8000, 0)):
            short = bytes.fromhex(decoder("verdict_shorten", cmd, raw, bytes(params))["params"])
            assert struct.unpack_from("<I", short, 0x4008) == (left,)
            assert short[:0x4008] == params[:0x4008], "nothing else"
        for who in ("free", "managed", "trusted"):
            assert verdict(decoder, who, IDLE_CHANNELS, bytes(params)) == "pass"
    off = channels_off(decoder, OWN)
    assert bytes.fromhex(decoder("verdict_shorten", DISABLE_CHANNELS, 0, off)["params"]) == off


@pytest.mark.parametrize("cmd", SCHEDULE, ids=hex)
def test_scheduling_waits_for_the_end_of_a_pause(decoder: Core, cmd: int) -> None:
    for who in ("managed", "free"):
        assert verdict(decoder, who, cmd, b"\1\0\0") == "wait"
    assert verdict(decoder, "trusted", cmd, b"\1\0\0") == "pass"


@pytest.mark.parametrize("version", VERSIONS)
def test_only_modes_that_let_go_of_the_gpu_pass(decoder: Core, version: str) -> None:
    decoder("abi", version)
    wfi, cta, cilp = 0, 1, 2
    for mode, passes in ((wfi, False), (cta, False), (cilp, True)):
        params = sized(decoder, PREEMPTION_MODE, 1, 0x5C000015, 0, mode)
        assert verdict(decoder, "managed", PREEMPTION_MODE, params) == ("pass" if passes else "refuse")
        assert verdict(decoder, "free", PREEMPTION_MODE, params) == "pass"
    assert verdict(decoder, "managed", PREEMPTION_MODE, sized(decoder, PREEMPTION_MODE, 2, 0, 0, wfi)) == "pass"
    bind = bytearray(sized(decoder, PREEMPTION_BIND, 1, OWN, 0x5C000015))
    at = {104: 0x54, 112: 0x5C}[len(bind)]
    assert verdict(decoder, "managed", PREEMPTION_BIND, bytes(bind)) == "refuse"
    struct.pack_into("<I", bind, at, cilp)
    assert verdict(decoder, "managed", PREEMPTION_BIND, bytes(bind)) == "pass"
    struct.pack_into("<I", bind, 4, OTHER)
    assert judge(decoder, "free", PREEMPTION_BIND, bytes(bind))["reason"] == "foreign"


def test_channels_of_others_are_out_of_reach_for_all(decoder: Core) -> None:
    for clients in ((OTHER,), (OWN, OTHER), (*(OWN,) * 63, OTHER)):
        for who in ("free", "managed"):
            answer = judge(decoder, who, DISABLE_CHANNELS, channels_off(decoder, *clients))
            assert (answer["verdict"], answer["reason"]) == ("refuse", "foreign")
        assert verdict(decoder, "trusted", DISABLE_CHANNELS, channels_off(decoder, *clients)) == "pass"
    assert verdict(decoder, "free", DISABLE_CHANNELS, channels_off(decoder, OWN, OWN)) == "pass"
    assert judge(decoder, "managed", DISABLE_CHANNELS, channels_off(decoder, OWN))["reason"] == "order"
    assert judge(decoder, "managed", DISABLE_CHANNELS)["reason"] == "order", "whatever its size"


def test_what_identifies_others_is_not_told(decoder: Core) -> None:
    decoder("abi", "580.159.04")
    for who in ("free", "managed"):
        assert judge(decoder, who, GROUP_IDS, sized(decoder, GROUP_IDS, OTHER, 1))["reason"] == "query"
        assert verdict(decoder, who, GROUP_IDS, sized(decoder, GROUP_IDS, OWN, 1)) == "pass"
        assert judge(decoder, who, CHANNEL_IDS, queried(decoder, OWN, OTHER))["reason"] == "query"
        assert verdict(decoder, who, CHANNEL_IDS, queried(decoder, OWN, OWN)) == "pass"
        assert judge(decoder, who, CHANNEL_INFO, sized(decoder, CHANNEL_INFO, OTHER, 1))["reason"] == "foreign"
        assert verdict(decoder, who, CHANNEL_INFO, sized(decoder, CHANNEL_INFO, OWN, 1)) == "pass"


def test_a_driver_without_a_control_refuses_it_itself(decoder: Core) -> None:
    decoder("abi", "535.288.01")
    try:
        assert judge(decoder, "free", GROUP_IDS, b"\1" * 1552)["size"] == "0"
        assert verdict(decoder, "managed", GROUP_IDS, b"\1" * 1552) == "pass"
    finally:
        decoder("abi", "580.159.04")


def test_raw_commands_are_for_the_own_client_and_those_that_cuda_makes(decoder: Core) -> None:
    for cmd in KNOWN_RAW:
        assert verdict(decoder, "managed", cmd, raw=int(cmd >> 16 == 0x2081)) == "pass"
    for cmd, raw in (
        (0x2080810B, 0),
        (0x2080910B, 0),
        (0xA06C8103, 0),
        (0x20810109, 1),
        (SET_TIMESLICE, 1),
        (0x20820101, 0),
    ):
        answer = judge(decoder, "managed", cmd, b"\1" * 8, raw=raw)
        assert (answer["wanted"], answer["verdict"], answer["reason"]) == ("1", "refuse", "raw"), hex(cmd)
        assert verdict(decoder, "free", cmd, b"\1" * 8, raw=raw) == "pass"
    for cmd in (0x20808159, 0x2080910B):
        for who in ("free", "managed"):
            assert judge(decoder, who, cmd, client=OTHER)["reason"] == "foreign"
        assert verdict(decoder, "trusted", cmd, client=OTHER) == "pass"


def test_raw_forms_of_a_control_name_nobody_else_either(decoder: Core) -> None:
    for cmd, raw in (
        (0x2081110B, 1),
        (0x2080110B, 1),
        (0x1234110B, 1),
        (0x0000110B, 1),
        (0x2080910B, 0),
        (0x2080D10B, 0),
    ):
        params = channels_off(decoder, OWN, OTHER)
        assert int(judge(decoder, "free", cmd, raw=raw)["size"]) == len(params)
        assert judge(decoder, "free", cmd, params, raw=raw)["reason"] == "foreign", hex(cmd)
        assert verdict(decoder, "free", cmd, channels_off(decoder, OWN), raw=raw) == "pass"


def test_what_cannot_be_read_is_refused(decoder: Core) -> None:
    serialised = 4
    for who in ("free", "managed"):
        answer = judge(decoder, who, 0x20801303, flags=serialised)
        assert (answer["wanted"], answer["verdict"], answer["reason"]) == ("1", "refuse", "raw")
    assert judge(decoder, "free", 0x20801303)["wanted"] == "0"


def test_lists_of_idle_channels(decoder: Core) -> None:
    def idle(who: str, *clients: int) -> str:
        return decoder("verdict_idle", who, OWN, struct.pack(f"<{len(clients)}I", *clients))["verdict"]

    assert idle("free", OWN, OWN) == idle("managed", OWN) == idle("trusted", OTHER) == "pass"
    assert idle("free", OTHER) == idle("managed", *(OWN,) * 4095, OTHER) == "refuse"


def test_no_doorbell_by_a_side_door(decoder: Core) -> None:
    doorbell, registers, raw, memory = (KINDS.index(kind) for kind in ("usermode", "registers", "binapi", "video"))
    assert decoder("verdict_object", "managed", "-", KINDS.index("channel"), 1)["verdict"] == "refuse", "a bare one"
    assert decoder("verdict_object", "free", "-", KINDS.index("channel"), 1)["verdict"] == "pass"
    assert decoder("verdict_object", "limited", "-", KINDS.index("channel"), 1)["verdict"] == "refuse", "not counted"
    assert decoder("verdict_object", "limited", "-", registers, 1)["verdict"] == "pass", "a limit is no order"
    for who, mapped in (("trusted", "pass"), ("managed", "refuse"), ("free", "refuse")):
        assert decoder("verdict_map", who, "-", doorbell)["verdict"] == mapped
        assert decoder("verdict_map", who, "-", registers)["verdict"] == mapped
        assert decoder("verdict_map", who, "-", memory)["verdict"] == "pass"
    for who, made in (("trusted", "pass"), ("managed", "refuse"), ("free", "pass")):
        assert decoder("verdict_object", who, "-", registers, 1)["verdict"] == made
        assert decoder("verdict_object", who, "-", raw, 0)["verdict"] == made
        assert decoder("verdict_object", who, "-", raw, 1)["verdict"] == "pass"
        assert decoder("verdict_object", who, "-", doorbell, 1)["verdict"] == "pass"
