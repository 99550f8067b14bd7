# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from blocks import REFERENCE, VERSIONS, member, number, pack, size
from hypothesis import given, settings
from hypothesis import strategies as st
from rmshell import EINVAL, ENOENT, OPS, Core, items

BLOCK_MAX = 16384


@dataclass(frozen=True)
class Escape:
    """An escape: its block, what it is decoded to, and which member becomes which field."""

    name: str
    struct: str
    op: str
    fields: dict[str, str]
    status: str | None = "status"
    object: str | None = None
    fixed: dict[str, int] = field(default_factory=dict)


P = "params."
ESCAPES = (
    Escape(
        "NV_ESC_RM_ALLOC",
        "NVOS21_PARAMETERS",
        "alloc",
        {
            "client": "hRoot",
            "parent": "hObjectParent",
            "object": "hObjectNew",
            "class": "hClass",
            "params": "pAllocParms",
            "params_size": "paramsSize",
        },
        object="hObjectNew",
    ),
    Escape(
        "NV_ESC_RM_ALLOC",
        "NVOS64_PARAMETERS",
        "alloc",
        {
            "client": "hRoot",
            "parent": "hObjectParent",
            "object": "hObjectNew",
            "class": "hClass",
            "params": "pAllocParms",
            "params_size": "paramsSize",
            "flags": "flags",
        },
        object="hObjectNew",
    ),
    Escape(
        "NV_ESC_RM_ALLOC_MEMORY",
        "nv_ioctl_nvos02_parameters_with_fd",
        "alloc_memory",
        {
            "client": P + "hRoot",
            "parent": P + "hObjectParent",
            "object": P + "hObjectNew",
            "class": P + "hClass",
            "flags": P + "flags",
            "params": P + "pMemory",
            "limit": P + "limit",
            "fd": "fd",
        },
        status=P + "status",
        object=P + "hObjectNew",
    ),
    Escape(
        "NV_ESC_RM_ALLOC_OBJECT",
        "NVOS05_PARAMETERS",
        "alloc_object",
        {"client": "hRoot", "parent": "hObjectParent", "object": "hObjectNew", "class": "hClass"},
        object="hObjectNew",
    ),
    Escape(
        "NV_ESC_RM_ALLOC_CONTEXT_DMA2",
        "NVOS39_PARAMETERS",
        "ctxdma",
        {
            "client": "hObjectParent",
            "object": "hObjectNew",
            "class": "hClass",
            "src_object": "hMemory",
            "offset": "offset",
            "limit": "limit",
        },
        object="hObjectNew",
    ),
    Escape(
        "NV_ESC_RM_FREE",
        "NVOS00_PARAMETERS",
        "free",
        {"client": "hRoot", "parent": "hObjectParent", "object": "hObjectOld"},
    ),
    Escape(
        "NV_ESC_RM_DUP_OBJECT",
        "NVOS55_PARAMETERS",
        "dup",
        {
            "client": "hClient",
            "parent": "hParent",
            "object": "hObject",
            "src_client": "hClientSrc",
            "src_object": "hObjectSrc",
            "flags": "flags",
        },
        object="hObject",
    ),
    Escape(
        "NV_ESC_RM_SHARE",
        "NVOS57_PARAMETERS",
        "share",
        {"client": "hClient", "object": "hObject", "src_client": "sharePolicy.target", "flags": "sharePolicy.type"},
    ),
    Escape(
        "NV_ESC_RM_CONTROL",
        "NVOS54_PARAMETERS",
        "control",
        {
            "client": "hClient",
            "object": "hObject",
            "cmd": "cmd",
            "flags": "flags",
            "params": "params",
            "params_size": "paramsSize",
        },
    ),
    Escape(
        "NV_ESC_RM_MAP_MEMORY",
        "nv_ioctl_nvos33_parameters_with_fd",
        "map",
        {
            "client": P + "hClient",
            "parent": P + "hDevice",
            "object": P + "hMemory",
            "offset": P + "offset",
            "length": P + "length",
            "address": P + "pLinearAddress",
            "flags": P + "flags",
            "fd": "fd",
        },
        status=P + "status",
    ),
    Escape(
        "NV_ESC_RM_UNMAP_MEMORY",
        "NVOS34_PARAMETERS",
        "unmap",
        {"client": "hClient", "parent": "hDevice", "object": "hMemory", "address": "pLinearAddress", "flags": "flags"},
    ),
    Escape(
        "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO",
        "NVOS56_PARAMETERS",
        "map_update",
        {"client": "hClient", "parent": "hDevice", "object": "hMemory", "address": "pNewCpuAddress"},
    ),
    Escape(
        "NV_ESC_RM_MAP_MEMORY_DMA",
        "NVOS46_PARAMETERS",
        "map_dma",
        {
            "client": "hClient",
            "parent": "hDevice",
            "object": "hDma",
            "src_object": "hMemory",
            "offset": "offset",
            "length": "length",
            "address": "dmaOffset",
            "flags": "flags",
        },
    ),
    Escape(
        "NV_ESC_RM_UNMAP_MEMORY_DMA",
        "NVOS47_PARAMETERS",
        "unmap_dma",
        {
            "client": "hClient",
            "parent": "hDevice",
            "object": "hDma",
            "src_object": "hMemory",
            "address": "dmaOffset",
            "flags": "flags",
        },
    ),
    Escape(
        "NV_ESC_RM_BIND_CONTEXT_DMA",
        "NVOS49_PARAMETERS",
        "bind_ctxdma",
        {"client": "hClient", "parent": "hChannel", "object": "hCtxDma"},
    ),
    Escape(
        "NV_ESC_RM_IDLE_CHANNELS",
        "NVOS30_PARAMETERS",
        "idle",
        {
            "client": "hClient",
            "parent": "hDevice",
            "object": "hChannel",
            "length": "numChannels",
            "params": "phClients",
        },
    ),
    Escape("NV_ESC_REGISTER_FD", "nv_ioctl_register_fd_t", "register_fd", {"fd": "ctl_fd"}, status=None),
    Escape(
        "NV_ESC_ALLOC_OS_EVENT",
        "nv_ioctl_alloc_os_event_t",
        "os_event",
        {"client": "hClient", "parent": "hDevice", "fd": "fd"},
        status="Status",
    ),
    Escape(
        "NV_ESC_EXPORT_TO_DMABUF_FD",
        "nv_ioctl_export_to_dma_buf_fd_t",
        "dmabuf",
        {"client": "hClient", "fd": "fd", "length": "totalSize"},
    ),
    Escape("NV_ESC_CHECK_VERSION_STR", "nv_ioctl_rm_api_version_t", "version", {"cmd": "cmd"}, status=None),
    *(
        Escape(
            "NV_ESC_RM_VID_HEAP_CONTROL",
            "NVOS32_PARAMETERS",
            "vid_heap",
            {"client": "hRoot", "parent": "hObjectParent", "object": f"data.{arm}"},
            object=f"data.{arm}" if "Free" not in arm else None,
            fixed={"function": value},
        )
        for value, arm in (
            (2, "AllocSize.hMemory"),
            (14, "AllocSizeRange.hMemory"),
            (6, "AllocTiledPitchHeight.hMemory"),
            (19, "HwAlloc.allochMemory"),
            (27, "AllocOsDesc.hMemory"),
            (3, "Free.hMemory"),
            (20, "HwFree.hResourceHandle"),
        )
    ),
)
SIGNED = {"fd"}


def ident(escape: Escape) -> str:
    return f"{escape.struct}-{escape.fixed.get('function', escape.op)}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("escape", ESCAPES, ids=ident)
@settings(max_examples=5)
@given(data=st.data())
def test_every_member_is_read_where_the_version_has_it(
    decoder: Core, escape: Escape, version: str, data: st.DataObject
) -> None:
    values = dict(escape.fixed)
    for name in {*escape.fields.values(), *filter(None, [escape.status])}:
        values[name] = data.draw(st.integers(0, (1 << 8 * member(escape.struct, name, version)[1]) - 1))
    block = pack(escape.struct, values, version, data.draw(st.integers(0, 255)))
    decoder("abi", version)
    found = decoder.numbers("decode", number(escape.name, version), block)
    assert OPS[found["op"]] == escape.op
    for key, name in escape.fields.items():
        wanted = values[name]
        assert found[key] == (wanted - (1 << 32) if key in SIGNED and wanted >> 31 else wanted), key
    if escape.status is not None:
        assert found["status"] == values[escape.status]
        assert found["off_status"] == member(escape.struct, escape.status, version)[0]
    else:
        assert found["off_status"] == 0xFFFF
    wanted = member(escape.struct, escape.object, version)[0] if escape.object else 0xFFFF
    assert found["off_object"] == wanted
    for key in {"client", "object", "class", "src_client", "src_object"} - set(escape.fields):
        assert found[key] == 0, key


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("escape", ESCAPES[:21], ids=ident)
def test_a_block_of_another_size_is_the_drivers_to_refuse(decoder: Core, escape: Escape, version: str) -> None:
    decoder("abi", version)
    right = size(escape.struct, version)
    both = {size("NVOS21_PARAMETERS"), size("NVOS64_PARAMETERS")} if escape.op == "alloc" else {right}
    for wrong in {0, 1, right - 1, right + 1, 2 * right, BLOCK_MAX} - both:
        assert decoder.error("decode", number(escape.name, version), bytes(wrong)) == EINVAL


def test_magic_and_direction_do_not_reach_the_decoder(decoder: Core) -> None:
    # the caller passes _IOC_NR alone; anything above it is another number
    assert decoder.error("decode", 0xC030462B, bytes(48)) == ENOENT


@pytest.mark.parametrize(
    "name", ["NV_ESC_RM_I2C_ACCESS", "NV_ESC_RM_ACCESS_REGISTRY", "NV_ESC_CARD_INFO", "NV_ESC_SYS_PARAMS"]
)
def test_other_escapes_are_not_of_interest(decoder: Core, name: str) -> None:
    assert decoder.error("decode", number(name), bytes(72)) == ENOENT


def test_a_header_of_xfer_names_the_real_call(decoder: Core) -> None:
    header = pack("nv_ioctl_xfer_t", {"cmd": 0x2B, "size": 48, "ptr": 0x7FFF12345678})
    assert decoder.numbers("xfer", header) == {"nr": 0x2B, "size": 48, "ptr": 0x7FFF12345678}
    found = decoder.numbers("decode", number("NV_ESC_IOCTL_XFER_CMD"), header)
    assert (OPS[found["op"]], found["cmd"], found["params"], found["params_size"]) == ("xfer", 0x2B, 0x7FFF12345678, 48)
    assert decoder.error("xfer", header[:-1]) == EINVAL
    assert decoder.error("xfer", pack("nv_ioctl_xfer_t", {"cmd": 0x2B, "size": BLOCK_MAX + 1})) == EINVAL
    assert decoder.numbers("xfer", pack("nv_ioctl_xfer_t", {"cmd": 0x2B, "size": BLOCK_MAX}))["size"] == BLOCK_MAX
    assert decoder.error("xfer", pack("nv_ioctl_xfer_t", {"cmd": 211, "size": 16})) == EINVAL


# ---- objects through descriptors


def handles(count: int) -> dict[str, bytes]:
    return {str(i): (0x5C000001 + i).to_bytes(4, "little") for i in range(count)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("direction", ["EXPORT_OBJECT_TO_FD", "IMPORT_OBJECT_FROM_FD"])
def test_one_object_through_a_descriptor(decoder: Core, direction: str, version: str) -> None:
    decoder("abi", version)
    name = "object.data.rmObject."
    values = {"fd": 7, name + "hDevice": 0x11, name + "hParent": 0x22, name + "hObject": 0x33}
    params = pack(f"NV0000_CTRL_OS_UNIX_{direction}_PARAMS", values, version)
    found = decoder("export", number(f"NV0000_CTRL_CMD_OS_UNIX_{direction}", version), params)
    assert items(found["handles"]) == [0x33]
    assert (found["import"], found["fd"], found["device"], found["parent"]) == (
        str(int("IMPORT" in direction)),
        "7",
        str(0x11),
        str(0x22),
    )
    assert decoder.error("export", number(f"NV0000_CTRL_CMD_OS_UNIX_{direction}", version), params[:-1]) == EINVAL


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("struct", "command", "most"),
    [
        ("NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS", "NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD", 512),
        ("NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS", "NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD", 128),
    ],
)
def test_many_objects_through_a_descriptor(decoder: Core, struct: str, command: str, most: int, version: str) -> None:
    decoder("abi", version)
    for count in (0, 1, most):
        params = pack(struct, {"fd": -1, "numObjects": count, "index": 3}, version)
        start = member(struct, "objects", version)[0]
        for i in range(count):
            params[start + 4 * i : start + 4 * i + 4] = (1000 + i).to_bytes(4, "little")
        found = decoder("export", number(command, version), params)
        assert items(found["handles"]) == [1000 + i for i in range(count)]
        assert (found["fd"], found["index"]) == ("-1", "3")
    params = pack(struct, {"numObjects": most + 1}, version)
    assert decoder.error("export", number(command, version), params) == EINVAL


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dma_buf_names_its_handles(decoder: Core, version: str) -> None:
    decoder("abi", version)
    struct = "nv_ioctl_export_to_dma_buf_fd_t"
    params = pack(struct, {"fd": -1, "numObjects": 2, "handles": 0x22_0000_0011}, version)
    assert items(decoder("dmabuf", params)["handles"]) == [0x11, 0x22]
    assert decoder.error("dmabuf", pack(struct, {"numObjects": 129}, version)) == EINVAL


def test_other_controls_export_nothing(decoder: Core) -> None:
    assert decoder.error("export", number("NVA06C_CTRL_CMD_SET_TIMESLICE"), bytes(8)) == ENOENT


# ---- hostile bytes

DECODERS = ("decode", "xfer", "alloc", "vid-heap", "vid-heap-free", "alloc-memory", "export", "dmabuf", "answer")
INTERESTING = sorted(
    {
        size(struct, version)
        for version in VERSIONS
        for struct in ("NVOS21_PARAMETERS", "NVOS32_PARAMETERS", "NVOS46_PARAMETERS")
    }
    | {size(escape.struct, version) for escape in ESCAPES for version in VERSIONS}
    | {1028, 436, 444, 460, 904, 776, 652, 2128, 120, 128, 360, 368}
)
BYTES = st.one_of(
    st.binary(max_size=400),
    st.sampled_from(INTERESTING).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
    st.builds(lambda n, b: bytes([b]) * n, st.sampled_from(INTERESTING), st.integers(0, 255)),
)
CLASSES = st.one_of(
    st.integers(0, 0xFFFFFFFF), st.sampled_from([0, 0x40, 0x3E, 0x42, 0x82, 0xC2, 0xF8, 0xFD, 0xC86F, 0xA06C])
)
CONTROLS = st.sampled_from([0x20801303, 0x20801320, 0x20801301, 0x3D05, 0x3D06, 0x3D0B, 0x3D0C, 0xA06C0103, 0])


@settings(max_examples=600)
@given(
    version=st.sampled_from(VERSIONS),
    command=st.sampled_from(DECODERS),
    nr=st.one_of(st.integers(0, 255), st.integers(0, 0xFFFFFFFF)),
    class_=CLASSES,
    control=CONTROLS,
    view=st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1)),
    block=BYTES,
)
def test_no_bytes_lead_a_decoder_out_of_its_block(
    decoder: Core,
    version: str,
    command: str,
    nr: int,
    class_: int,
    control: int,
    view: tuple[int, int],
    block: bytes,
) -> None:
    decoder("abi", version)
    before = {
        "decode": [nr],
        "alloc": [class_],
        "export": [control],
        "answer": [max(view), min(view), control],
    }.get(command, [])
    assert decoder.error(command, *before, block) in {0, EINVAL, ENOENT}


def test_every_number_with_every_size_is_answered(decoder: Core) -> None:
    decoder("abi", REFERENCE)
    accepted = {
        (nr, length) for nr in range(256) for length in INTERESTING if decoder.error("decode", nr, bytes(length)) == 0
    }
    wanted = {(number(escape.name), size(escape.struct)) for escape in ESCAPES}
    wanted |= {(number("NV_ESC_IOCTL_XFER_CMD"), 16), (number("NV_ESC_FREE_OS_EVENT"), 16)}
    assert accepted == wanted
