# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest
from blocks import REFERENCE, VERSIONS, member, number, pack, size, unpack
from hypothesis import given
from hypothesis import strategies as st
from rmshell import Core

KIB, GIB = 1 << 10, 1 << 30
INDEX = {
    name: number(f"NV2080_CTRL_FB_INFO_INDEX_{name}")
    for name in [
        "RAM_SIZE",
        "TOTAL_RAM_SIZE",
        "HEAP_SIZE",
        "MAPPABLE_HEAP_SIZE",
        "USABLE_RAM_SIZE",
        "PROTECTED_MEM_SIZE_TOTAL_KB",
        "HEAP_FREE",
        "LARGEST_FREE_REGION_SIZE_KB",
        "PROTECTED_MEM_SIZE_FREE_KB",
        "FB_TAX_SIZE_KB",
        "HEAP_BASE_KB",
        "LARGEST_FREE_REGION_BASE_KB",
        "BAR1_SIZE",
        "BUS_WIDTH",
        "HEAP_START",
        "HEAP_OFFLINE_SIZE",
        "RAM_TYPE",
        "L2CACHE_SIZE",
    ]
}
TOTALS = (
    "RAM_SIZE",
    "TOTAL_RAM_SIZE",
    "HEAP_SIZE",
    "MAPPABLE_HEAP_SIZE",
    "USABLE_RAM_SIZE",
    "PROTECTED_MEM_SIZE_TOTAL_KB",
)
FREES = ("HEAP_FREE", "LARGEST_FREE_REGION_SIZE_KB", "PROTECTED_MEM_SIZE_FREE_KB")
OTHERS = ("BAR1_SIZE", "BUS_WIDTH", "HEAP_START", "HEAP_OFFLINE_SIZE", "RAM_TYPE", "L2CACHE_SIZE")
V2 = "NV2080_CTRL_FB_GET_INFO_V2_PARAMS"
# an H100 80 GB as it answers, KiB
H100 = {
    "RAM_SIZE": 83518464,
    "TOTAL_RAM_SIZE": 83518464,
    "HEAP_SIZE": 82963456,
    "MAPPABLE_HEAP_SIZE": 82963456,
    "USABLE_RAM_SIZE": 83230720,
    "HEAP_FREE": 82430912,
    "LARGEST_FREE_REGION_SIZE_KB": 80000000,
    "LARGEST_FREE_REGION_BASE_KB": 2000000,
    "HEAP_BASE_KB": 0,
    "FB_TAX_SIZE_KB": 0,
    "BAR1_SIZE": 134217728,
    "BUS_WIDTH": 5120,
}


def entries(values: dict[str, int]) -> bytes:
    return b"".join(struct.pack("<II", INDEX[name], value) for name, value in values.items())


def read(data: str) -> dict[str, int]:
    names = {index: name for name, index in INDEX.items()}
    return {names[index]: value for index, value in struct.iter_unpack("<II", bytes.fromhex(data.strip("-")))}


def rewrite(core: Core, values: dict[str, int], limit: int | str, room: int) -> dict[str, int]:
    return read(core("answer", limit, room, "list", entries(values))["data"])


def test_without_a_limit_the_driver_has_the_word(decoder: Core) -> None:
    answer = decoder("answer", "no", 1 << 60, "list", entries(H100))
    assert (answer["changed"], read(answer["data"])) == ("0", H100)


def test_a_limit_above_the_gpu_changes_nothing(decoder: Core) -> None:
    answer = decoder("answer", 100 * GIB, 100 * GIB, "list", entries(H100))
    assert (answer["changed"], read(answer["data"])) == ("0", H100)


def test_an_h100_with_a_limit_of_ten_gib_of_which_six_are_used(decoder: Core) -> None:
    found = rewrite(decoder, H100, 10 * GIB, 4 * GIB)
    assert {found[name] for name in TOTALS if name in found} == {10 * GIB // KIB}
    assert found["HEAP_FREE"] == found["LARGEST_FREE_REGION_SIZE_KB"] == 4 * GIB // KIB
    assert found["LARGEST_FREE_REGION_BASE_KB"] == 2000000
    assert (found["BAR1_SIZE"], found["BUS_WIDTH"]) == (134217728, 5120)


def test_the_largest_free_region_lies_within_the_total(decoder: Core) -> None:
    values = {"LARGEST_FREE_REGION_SIZE_KB": 9 * GIB // KIB, "LARGEST_FREE_REGION_BASE_KB": 70 * GIB // KIB}
    found = rewrite(decoder, values, 10 * GIB, 4 * GIB)
    assert found == {
        "LARGEST_FREE_REGION_SIZE_KB": 4 * GIB // KIB,
        "LARGEST_FREE_REGION_BASE_KB": 6 * GIB // KIB,
    }


def test_a_gpu_fuller_than_the_quota_says_shows_its_own_free_memory(decoder: Core) -> None:
    found = rewrite(decoder, {**H100, "HEAP_FREE": 5000}, 10 * GIB, 4 * GIB)
    assert found["HEAP_FREE"] == 5000


def test_use_above_a_lowered_limit_leaves_nothing_free(decoder: Core) -> None:
    found = rewrite(decoder, H100, 10 * GIB, 0)
    assert found["HEAP_FREE"] == found["LARGEST_FREE_REGION_SIZE_KB"] == 0


VALUES = st.dictionaries(st.sampled_from(sorted(INDEX)), st.integers(0, 0xFFFFFFFF), max_size=len(INDEX))
LIMITS = st.one_of(st.integers(0, (1 << 63) - 2), st.integers(0, 1 << 42))


@given(values=VALUES, limit=LIMITS, part=st.floats(0, 1))
def test_all_indices_agree_with_each_other(decoder: Core, values: dict[str, int], limit: int, part: float) -> None:
    room = int(limit * part) if limit < 1 << 50 else limit
    found = rewrite(decoder, values, limit, room)
    assert found.keys() == values.keys()
    for name, value in values.items():
        if name in TOTALS:
            assert found[name] == min(value, limit // KIB)
        elif name in FREES:
            assert found[name] == min(value, room // KIB)
        elif name in OTHERS:
            assert found[name] == value
        else:
            assert found[name] <= min(value, limit // KIB)
    largest = found.get("LARGEST_FREE_REGION_SIZE_KB", 0)
    assert largest + found.get("LARGEST_FREE_REGION_BASE_KB", 0) <= max(limit // KIB, largest)
    assert found.get("HEAP_SIZE", 0) + found.get("FB_TAX_SIZE_KB", 0) <= limit // KIB
    assert rewrite(decoder, found, limit, room) == found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_control_has_another_size_in_each_branch(decoder: Core, version: str) -> None:
    decoder("abi", version)
    values = {name: value for name, value in H100.items() if name in INDEX}
    params = pack(V2, {"fbInfoListSize": len(values)}, version, fill=0xA5)
    start = member(V2, "fbInfoList", version)[0]
    params[start : start + 8 * len(values)] = entries(values)
    command = number("NV2080_CTRL_CMD_FB_GET_INFO_V2", version)
    answer = decoder("answer", 10 * GIB, GIB, command, params)
    after = bytes.fromhex(answer["data"])
    assert read(after[start : start + 8 * len(values)].hex()) == rewrite(decoder, values, 10 * GIB, GIB)
    assert after[start + 8 * len(values) :] == params[start + 8 * len(values) :]
    for wrong in (params[:-1], params + b"\0"):
        assert decoder("answer", 10 * GIB, GIB, command, wrong)["changed"] == "0"
    most = member(V2, "fbInfoList", version)[1] // 8
    params[0:4] = (most + 1).to_bytes(4, "little")
    assert decoder("answer", 10 * GIB, GIB, command, params)["changed"] == "0"


REGION = "NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO"
REGIONS = "NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_PARAMS"


@pytest.mark.parametrize("version", VERSIONS)
@given(
    sizes=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=16),
    reserved=st.integers(0, 1 << 41),
    limit=st.integers(0, 1 << 42),
)
def test_regions_add_up_to_the_limit(decoder: Core, version: str, sizes: list[int], reserved: int, limit: int) -> None:
    decoder("abi", version)
    params = pack(REGIONS, {"numFBRegions": len(sizes)}, version)
    first, step = member(REGIONS, "fbRegion", version)[0], size(REGION, version)
    base = 0
    for i, length in enumerate(sizes):
        params[first + i * step : first + (i + 1) * step] = pack(
            REGION, {"base": base, "limit": base + length - 1, "reserved": min(reserved, length)}, version
        )
        base += length
    command = number("NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO", version)
    after = bytes.fromhex(decoder("answer", limit, limit, command, params)["data"])
    count = unpack(REGIONS, after, "numFBRegions", version)
    shown = 0
    for i in range(count):
        region = after[first + i * step : first + (i + 1) * step]
        length = unpack(REGION, region, "limit", version) - unpack(REGION, region, "base", version) + 1
        assert 0 < length <= sizes[i]
        assert unpack(REGION, region, "reserved", version) <= length
        shown += length
    assert shown == min(sum(sizes), limit)


# ---- the legacy way

NVOS32 = "NVOS32_PARAMETERS"


@pytest.mark.parametrize("version", VERSIONS)
@given(
    total=st.integers(0, 1 << 42),
    free=st.floats(0, 1),
    largest=st.floats(0, 1),
    limit=LIMITS,
    part=st.floats(0, 1),
    tax=st.integers(0, 1 << 30),
)
def test_vid_heap_info_says_the_same(
    decoder: Core, version: str, total: int, free: float, largest: float, limit: int, part: float, tax: int
) -> None:
    decoder("abi", version)
    room = int(limit * part) if limit < 1 << 50 else limit
    size_ = int(total * free * largest)
    values = {"total": total, "free": int(total * free), "data.Info.size": size_, "data.Info.offset": total - size_}
    block = pack(NVOS32, {"function": 5, "data.Info.base": tax, **values}, version)
    after = bytes.fromhex(decoder("answer", limit, room, "heap", block)["data"])
    found = {name: unpack(NVOS32, after, name, version) for name in (*values, "data.Info.base")}
    assert found["total"] == min(total, limit // KIB * KIB)
    assert found["free"] == min(values["free"], room // KIB * KIB)
    assert found["data.Info.size"] == min(size_, room // KIB * KIB)
    assert found["data.Info.size"] <= found["free"] <= max(found["total"], values["free"])
    assert found["data.Info.offset"] + found["data.Info.size"] <= max(limit // KIB * KIB, total)


@pytest.mark.parametrize("version", VERSIONS)
def test_vid_heap_allocations_show_the_quota_and_keep_all_else(decoder: Core, version: str) -> None:
    decoder("abi", version)
    values = {"function": 2, "total": 80 * GIB, "free": 79 * GIB, "data.AllocSize.size": 90 * GIB}
    block = pack(NVOS32, values, version, fill=0)
    after = bytes.fromhex(decoder("answer", 10 * GIB, GIB, "heap", block)["data"])
    wanted = pack(NVOS32, {**values, "total": 10 * GIB, "free": GIB}, version)
    assert after == wanted


def test_a_failed_call_is_not_touched(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    block = pack(NVOS32, {"function": 5, "status": 0x51, "total": 80 * GIB, "free": 79 * GIB})
    assert decoder("answer", GIB, 0, "heap", block) == {"changed": "0", "data": block.hex()}
    short = block[:-1]
    assert decoder("answer", GIB, 0, "heap", short)["changed"] == "0"
