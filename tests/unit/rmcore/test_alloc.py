# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from blocks import REFERENCE, VERSIONS, data, number, pack, size
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import CTL, MPS_CLIENT, RUNTIME, ioctls
from rmshell import EINVAL, ENOENT, KINDS, Core, items

KIB, MIB = 1 << 10, 1 << 20
U64 = (1 << 64) - 1
MEMORY = "NV_MEMORY_ALLOCATION_PARAMS"
PAGE_4K, PAGE_BIG, PAGE_HUGE = 1 << 23, 2 << 23, 3 << 23
HUGE_512M, HUGE_256G = 2 << 20, 3 << 20
ALIGNMENT_FORCE, FIXED, VIRTUAL, HANDLE_GIVEN = 0x100, 0x10, 0x80000, 0x4000
EGM = 1 << 24
SYSTEM_MEMORY = 1 << 25


def memory(version: str = REFERENCE, **values: int) -> bytearray:
    return pack(MEMORY, values, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["NV01_MEMORY_LOCAL_USER", "NV_MEMORY_EXTENDED_USER"])
def test_gpu_memory_is_charged_by_its_size(decoder: Core, name: str, version: str) -> None:
    if name not in data("classes")[version]:
        assert decoder("abi", version)
        assert decoder.error("alloc", 0x42, memory(version)) == ENOENT
        return
    decoder("abi", version)
    found = decoder.numbers("alloc", number(name, version), memory(version, size=3 * MIB, hVASpace=9))
    assert (found["vidmem"], found["bytes"], found["request"], found["vaspace"]) == (1, 3 * MIB, 4 * MIB, 9)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("class_", "struct", "member", "add"),
    [
        ("NV_MEMORY_FABRIC", "NV00F8_ALLOCATION_PARAMETERS", "allocSize", 0),
        ("NV_MEMORY_MULTICAST_FABRIC", "NV00FD_ALLOCATION_PARAMETERS", "allocSize", 0),
        ("NV01_MEMORY_LIST_FBMEM", "NV_MEMORY_LIST_ALLOCATION_PARAMS", "limit", 1),
        ("NV01_MEMORY_LIST_OBJECT", "NV_MEMORY_LIST_ALLOCATION_PARAMS", "limit", 1),
    ],
)
def test_so_are_fabric_multicast_and_lists_of_pages(
    decoder: Core, class_: str, struct: str, member: str, add: int, version: str
) -> None:
    decoder("abi", version)
    found = decoder.numbers("alloc", number(class_, version), pack(struct, {member: 8 * MIB - add}, version))
    assert (found["vidmem"], found["bytes"], found["request"]) == (1, 8 * MIB, 8 * MIB)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fabric_object_made_of_memory_takes_none_of_its_own(decoder: Core, version: str) -> None:
    decoder("abi", version)
    params = pack("NV00F8_ALLOCATION_PARAMETERS", {"allocSize": 8 * MIB, "map.hVidMem": 0x5C000007}, version)
    found = decoder.numbers("alloc", 0xF8, params)
    assert (found["vidmem"], found["fabric"], found["attached"], found["request"]) == (0, 1, 0x5C000007, 0)


@pytest.mark.parametrize(
    ("class_", "params", "what"),
    [
        (0x3E, memory(size=MIB), "sysmem"),
        (0x90CE, memory(size=MIB), "sysmem"),
        (0x71, pack("NV_OS_DESC_MEMORY_ALLOCATION_PARAMS", {"limit": MIB - 1}), "sysmem"),
        (0x81, pack("NV_MEMORY_LIST_ALLOCATION_PARAMS", {"limit": MIB - 1}), "sysmem"),
        (0x70, pack("NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", {"limit": MIB - 1}), "virtual"),
        (0x50A0, memory(size=MIB), "virtual"),
        (0xC2, pack("NV_PHYSICAL_MEMORY_ALLOCATION_PARAMS", {"memSize": 80 << 30}), "window"),
        (0x3F, bytearray(), "window"),
    ],
)
def test_other_memory_is_told_apart_and_not_charged(decoder: Core, class_: int, params: bytearray, what: str) -> None:
    decoder("abi", REFERENCE)
    found = decoder.numbers("alloc", class_, params)
    assert {key: found[key] for key in ("vidmem", "sysmem", "virtual", "window", "request")} == {
        "vidmem": 0,
        "sysmem": 0,
        "virtual": 0,
        "window": 0,
        "request": 0,
        what: 1,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_channel_names_what_it_dies_with(decoder: Core, version: str) -> None:
    decoder("abi", version)
    values = {
        "hVASpace": 1,
        "hContextShare": 2,
        "hUserdMemory": 3,
        "userdOffset": 0x200,
        "gpFifoOffset": 0x7F0000,
        "gpFifoEntries": 1024,
        "engineType": 9,
        "hPhysChannelGroup": 4,
    }
    found = decoder(
        "alloc", 0xC86F if version[:2] != "53" else 0xC56F, pack("NV_CHANNEL_ALLOC_PARAMS", values, version)
    )
    # hPhysChannelGroup is the driver's own: it takes no other value
    assert sorted(items(found["deps"])) == [1, 2, 3]
    assert int(found["attached"]) == 3
    read = ("engine", "ctxshare", "vaspace", "userd_memory", "userd_offset", "gpfifo_va", "gpfifo_entries")
    assert [int(found[key]) for key in read] == [9, 2, 1, 3, 0x200, 0x7F0000, 1024]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("class_", "struct", "values", "deps"),
    [
        (0xA06C, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", {"hVASpace": 7, "engineType": 1}, [7]),
        (0x9067, "NV_CTXSHARE_ALLOCATION_PARAMETERS", {"hVASpace": 7}, [7]),
        (0x70, "NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", {"hVASpace": 7}, [7]),
        (0x50A0, MEMORY, {"hVASpace": 7}, [7]),
        (0x2, "NV_CONTEXT_DMA_ALLOCATION_PARAMS", {"hMemory": 7}, [7]),
        (0x503B, "NV503B_ALLOC_PARAMETERS", {"hSubDevice": 7, "hPeerSubDevice": 8}, [7, 8]),
        (0x40, MEMORY, {"hVASpace": 7}, []),
    ],
)
def test_dependencies_are_those_of_the_driver(
    decoder: Core, class_: int, struct: str, values: dict[str, int], deps: list[int], version: str
) -> None:
    decoder("abi", version)
    found = decoder("alloc", class_, pack(struct, values, version))
    assert items(found["deps"]) == deps
    assert int(found["engine"]) == values.get("engineType", 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_parameters_of_another_size_are_refused(decoder: Core, version: str) -> None:
    decoder("abi", version)
    for class_ in (0x40, 0x3E, 0xA06C, 0x9067, 0xC56F, 0x90F1, 0xF8, 0xFD, 0x50A0):
        right = decoder.numbers("class", class_)["size"]
        for wrong in (0, 1, right - 1, right + 1, 4096):
            assert decoder.error("alloc", class_, bytes(wrong)) == EINVAL, hex(class_)
    for class_ in (0x80, 0x2080, 0xC661, 0x0, 0x41):
        assert decoder.error("alloc", class_, b"") == 0
    assert decoder.error("alloc", 0xDEAD, bytes(16)) == ENOENT


def test_a_device_says_which_gpu_it_is(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    assert decoder.numbers("alloc", 0x80, pack("NV0080_ALLOC_PARAMETERS", {"deviceId": 3}))["device_id"] == 3


# ---- the most that a request may take


def unit(bytes_: int, attr: int, attr2: int) -> int:
    """The page that the driver takes, with the 64 KiB that are its smallest piece."""
    page = attr >> 23 & 3
    if page == 0:
        return 2 * MIB if bytes_ >= 2 * MIB else 64 * KIB
    if page < 3:
        return 64 * KIB
    return {2: 512 * MIB, 3: 256 << 30}.get(attr2 >> 20 & 3, 2 * MIB)


SIZES = st.one_of(st.integers(0, U64), st.integers(0, 1 << 40), st.integers(0, 4 * MIB))


@settings(max_examples=300)
@given(
    bytes_=SIZES, attr=st.integers(0, 0xFFFFFFFF), attr2=st.integers(0, 0xFFFFFFFF), flags=st.integers(0, 0xFFFFFFFF)
)
def test_a_request_is_rounded_to_whole_pages_and_never_wraps(
    decoder: Core, bytes_: int, attr: int, attr2: int, flags: int
) -> None:
    decoder("abi", REFERENCE)
    params = memory(size=bytes_, attr=attr, attr2=attr2, flags=flags & ~FIXED)
    step = unit(bytes_, attr, attr2)
    wanted = -(-bytes_ // step) * step
    assert decoder.numbers("alloc", 0x40, params)["request"] == min(wanted, U64)


@given(bytes_=st.integers(1, 1 << 40), alignment=st.integers(0, 1 << 34))
def test_a_fixed_address_is_rounded_to_its_alignment_too(decoder: Core, bytes_: int, alignment: int) -> None:
    decoder("abi", REFERENCE)
    params = memory(size=bytes_, alignment=alignment, flags=FIXED | ALIGNMENT_FORCE)
    step = max(alignment, unit(bytes_, 0, 0))
    assert decoder.numbers("alloc", 0x40, params)["request"] == -(-bytes_ // step) * step


def driver_answer(bytes_: int, attr: int, attr2: int) -> tuple[int, int]:
    """(size, attr) that the driver answers: rounded to the page of the request, which the attributes name then."""
    page = attr >> 23 & 3
    if page == 0:
        page = 3 if bytes_ >= 2 * MIB else 2
    step = {1: 4 * KIB, 2: 64 * KIB}.get(page) or unit(bytes_, attr | PAGE_HUGE, attr2 if attr >> 23 & 3 else 0)
    return -(-bytes_ // step) * step, (attr & ~PAGE_HUGE) | page << 23


@settings(max_examples=300)
@given(bytes_=st.integers(0, 1 << 45), attr=st.integers(0, 0xFFFFFFFF), attr2=st.integers(0, 0xFFFFFFFF))
def test_what_is_settled_is_what_the_driver_took_and_was_charged_before(
    decoder: Core, bytes_: int, attr: int, attr2: int
) -> None:
    decoder("abi", REFERENCE)
    asked = memory(size=bytes_, attr=attr, attr2=attr2)
    size_after, attr_after = driver_answer(bytes_, attr, attr2)
    answered = memory(size=size_after, attr=attr_after, attr2=attr2 if attr >> 23 & 3 else attr2 & ~(3 << 20))
    settled = decoder.numbers("answer-bytes", 0x40, asked, answered)["bytes"]
    assert size_after <= settled <= decoder.numbers("alloc", 0x40, asked)["request"]
    assert settled % (64 * KIB) == 0


def test_four_kib_pages_take_sixty_four(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    params = memory(size=4096, attr=PAGE_4K)
    assert decoder.numbers("answer-bytes", 0x40, params, params)["bytes"] == 64 * KIB


@pytest.mark.parametrize("name", [RUNTIME, MPS_CLIENT])
def test_recorded_allocations_are_charged_what_an_h100_took(decoder: Core, name: str) -> None:
    decoder("abi", "580.159.04")
    seen = 0
    for call in ioctls(name):
        if call.path != CTL or call.nr != 0x2B or int.from_bytes(call.before[12:16], "little") != 0x40:
            continue
        length = size(MEMORY, "580.142")
        before, after = call.params_before[:length], call.params_after[:length]
        took = int.from_bytes(after[64:72], "little")
        assert decoder.numbers("answer-bytes", 0x40, before, after)["bytes"] == took
        assert decoder.numbers("alloc", 0x40, before)["request"] == took
        seen += 1
    assert seen >= 17


# ---- legacy ways


def arm(function: int, name: str, version: str, **values: int) -> bytearray:
    members = {f"data.{name}.{key}": value for key, value in values.items()}
    return pack("NVOS32_PARAMETERS", {"function": function, "hVASpace": 5, **members}, version)


ARMS = ((2, "AllocSize"), (14, "AllocSizeRange"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("function", "name"), ARMS)
def test_vid_heap_allocates_gpu_memory(decoder: Core, function: int, name: str, version: str) -> None:
    decoder("abi", version)
    block = arm(function, name, version, size=5 * MIB, flags=HANDLE_GIVEN, hMemory=0x77)
    found = decoder.numbers("vid-heap", block)
    wanted = {"class": 0x40, "vidmem": 1, "bytes": 5 * MIB, "request": 6 * MIB, "handle": 0x77}
    assert {key: found[key] for key in wanted} == wanted
    answered = arm(function, name, version, size=6 * MIB, attr=PAGE_HUGE)
    assert decoder.numbers("answer-bytes", 0x4A0000, block, answered)["bytes"] == 6 * MIB


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("flags", "attr", "attr2", "class_"),
    [
        (VIRTUAL, 0, EGM, 0x50A0),
        (0, 0, EGM, 0x42),
        (0, 0, 0, 0x40),
        (0, SYSTEM_MEMORY, 0, 0x3E),
        (0, 3 * SYSTEM_MEMORY, 0, 0x3E),
    ],
)
def test_vid_heap_becomes_the_class_that_the_driver_makes_of_it(
    decoder: Core, flags: int, attr: int, attr2: int, class_: int, version: str
) -> None:
    if class_ == 0x42 and "NV_MEMORY_EXTENDED_USER" not in data("classes")[version]:
        class_ = 0x40
    decoder("abi", version)
    found = decoder("vid-heap", arm(2, "AllocSize", version, size=MIB, flags=flags, attr=attr, attr2=attr2, hMemory=3))
    assert int(found["class"]) == class_
    assert int(found["vidmem"]) == (class_ in {0x40, 0x42})
    assert int(found["handle"]) == 0  # the driver picks one unless the flag says otherwise
    assert items(found["deps"]) == ([5] if class_ == 0x50A0 else [])


@pytest.mark.parametrize("version", VERSIONS)
@given(height=st.integers(0, 0xFFFFFFFF), pitch=st.integers(-(1 << 31), (1 << 31) - 1))
def test_tiled_memory_is_height_times_pitch_with_its_sign(decoder: Core, version: str, height: int, pitch: int) -> None:
    decoder("abi", version)
    found = decoder.numbers("vid-heap", arm(6, "AllocTiledPitchHeight", version, height=height, pitch=pitch))
    assert found["bytes"] == height * pitch & U64
    assert found["vidmem"] == 1


def test_vid_heap_functions_that_take_no_gpu_memory(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    hardware = decoder.numbers("vid-heap", arm(19, "HwAlloc", REFERENCE, allocSize=MIB))
    assert (hardware["class"], hardware["vidmem"], hardware["request"]) == (0xB1, 0, 0)
    descriptor = decoder.numbers("vid-heap", arm(27, "AllocOsDesc", REFERENCE, limit=MIB - 1))
    assert (descriptor["class"], descriptor["sysmem"], descriptor["bytes"]) == (0x71, 1, MIB)
    for function in (3, 5, 11, 15, 16, 18, 20, 99):
        assert decoder.error("vid-heap", pack("NVOS32_PARAMETERS", {"function": function})) == ENOENT


def test_vid_heap_frees_by_handle(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    assert decoder.numbers("vid-heap-free", arm(3, "Free", REFERENCE, hMemory=9)) == {"handle": 9}
    assert decoder.numbers("vid-heap-free", arm(20, "HwFree", REFERENCE, hResourceHandle=9)) == {"handle": 9}
    assert decoder.error("vid-heap-free", arm(2, "AllocSize", REFERENCE, hMemory=9)) == ENOENT


def alloc_memory(class_: int, limit: int, version: str = REFERENCE) -> bytearray:
    return pack("nv_ioctl_nvos02_parameters_with_fd", {"params.hClass": class_, "params.limit": limit}, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_alloc_memory_of_the_frame_buffer_is_a_window_that_is_charged_until_answered(
    decoder: Core, version: str
) -> None:
    decoder("abi", version)
    asked = alloc_memory(0x40, 4 * MIB - 1, version)
    found = decoder.numbers("alloc-memory", asked)
    assert (found["vidmem"], found["window"], found["request"]) == (1, 1, 4 * MIB)
    # the genuine driver answers the size of the frame buffer and takes none of it
    assert decoder.numbers("answer-bytes", 0x270000, asked, alloc_memory(0x40, (80 << 30) - 1, version))["bytes"] == 0
    assert decoder.numbers("answer-bytes", 0x270000, asked, asked)["bytes"] == 4 * MIB


@pytest.mark.parametrize(
    ("class_", "kind", "charged"),
    [
        (0x3E, "system", 0),
        (0x71, "os", 0),
        (0x82, "list", 1),
        (0x81, "list", 0),
        (0x3F, "registers", 0),
        (0xF3, "import", 0),
    ],
)
def test_alloc_memory_of_other_classes(decoder: Core, class_: int, kind: str, charged: int) -> None:
    decoder("abi", REFERENCE)
    found = decoder.numbers("alloc-memory", alloc_memory(class_, MIB - 1))
    assert (KINDS[found["kind"]], found["vidmem"], found["bytes"]) == (kind, charged, MIB)


def test_a_limit_of_all_ones_asks_for_more_than_there_is(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    found = decoder.numbers("alloc-memory", alloc_memory(0x40, U64))
    assert (found["bytes"], found["request"]) == (U64, U64)
    assert decoder.error("alloc-memory", alloc_memory(0xDEAD, 1)) == ENOENT
