# SPDX-License-Identifier: Apache-2.0
"""Fat binaries and machine code: what is in them, and that nothing in them is taken for less than it may be."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ebpf import cubin, packing
from detshare.ebpf.images import MACHINE_CODE, NotUnderstood, from_memory, understand
from detshare.ebpf.packing import Packing, PackingError
from detshare.ebpf.ptx import Word
from tests.tracee import images
from tests.tracee.images import CUBIN, LZ4, PTX, ZSTD, Part

HEAD = ".version 8.3\n.target {target}\n.address_size 64\n"
# writes its second parameter, reads its first
TEXT = """.visible .entry k(.param .u64 a, .param .u64 b)
{
	.reg .b64 %d<3>;
	.reg .b32 %r<2>;
	ld.param.u64 %d1, [a];
	ld.param.u64 %d2, [b];
	ld.global.u32 %r1, [%d1];
	st.global.u32 [%d2], %r1;
	ret;
}
"""
SECOND = (Word(1, 0, 8),)
BOTH = (Word(0, 0, 0), Word(1, 0, 8))


def ptx(target: str = "sm_90") -> bytes:
    return (HEAD.format(target=target) + TEXT).encode() + b"\0"


def code(arch: int = 90, origin: int = 90, special: bool = False, *, wide: bool = False) -> bytes:
    return images.cubin({"k": [(0, 8), (8, 8)]}, arch, origin, special, wide=wide)


@pytest.mark.parametrize("how", [0, LZ4, ZSTD])
def test_ptx_of_a_fat_binary_is_read_however_it_is_stored(how: int) -> None:
    found = understand(images.fatbin([Part(PTX, 90, ptx(), how)])).kernel("k")
    assert found is not None
    assert (found.words, found.anywhere, found.assumed) == (SECOND, "", "")


@pytest.mark.parametrize("how", [0, LZ4, ZSTD])
@pytest.mark.parametrize("wide", [False, True])
def test_machine_code_alone_may_write_from_every_parameter_and_says_so(how: int, wide: bool) -> None:
    data = images.cubin({"k": [(0, 8), (8, 4), (16, 40)]}, wide=wide)
    found = understand(images.fatbin([Part(CUBIN, 90, data, how)])).kernel("k")
    assert found is not None
    assert found.words == (Word(0, 0, 0), Word(2, 0, 16, 40))
    assert (found.parameters, found.anywhere, found.assumed) == (3, "", MACHINE_CODE)
    assert understand(data).kernel("k") == found


@pytest.mark.parametrize("wide", [False, True])
def test_ptx_of_the_same_target_beside_machine_code_counts(wide: bool) -> None:
    parts = [Part(CUBIN, 90, code(wide=wide), LZ4), Part(PTX, 90, ptx(), LZ4)]
    found = understand(images.fatbin(parts)).kernel("k")
    assert found is not None
    assert (found.words, found.assumed) == (SECOND, "")


def test_a_variant_of_a_target_is_another_target() -> None:
    for mine, other, same in (("sm_90a", True, True), ("sm_90", True, False), ("sm_90a", False, False)):
        parts = [Part(CUBIN, 90, code(special=other)), Part(PTX, 90, ptx(mine))]
        found = understand(images.fatbin(parts)).kernel("k")
        assert found is not None
        assert found.words == (SECOND if same else BOTH)


def test_machine_code_that_was_made_from_other_ptx_counts_with_all_its_parameters() -> None:
    for origin in (80, 90):
        parts = [Part(CUBIN, 90, code(90, origin)), Part(PTX, 90, ptx())]
        found = understand(images.fatbin(parts)).kernel("k")
        assert found is not None
        assert found.words == (SECOND if origin == 90 else BOTH)


def test_ptx_whose_kernel_has_other_parameters_does_not_count_for_machine_code() -> None:
    data = images.cubin({"k": [(0, 8), (8, 8), (16, 8)]})
    found = understand(images.fatbin([Part(CUBIN, 90, data), Part(PTX, 90, ptx())])).kernel("k")
    assert found is not None
    assert {word.parameter for word in found.words} == {0, 1, 2}


def test_only_what_may_run_on_the_devices_here_counts() -> None:
    parts = [Part(CUBIN, 80, code(80, 80)), Part(CUBIN, 86, code(86, 80)), Part(CUBIN, 90, code())]
    data = images.fatbin([*parts, Part(PTX, 90, ptx())])
    seen = {devices: understand(data, devices).kernel("k") for devices in ((), (90,), (86,), (80, 90), (100,))}
    words = {devices: kernel.words for devices, kernel in seen.items() if kernel is not None}
    assert words == {(): BOTH, (90,): SECOND, (86,): BOTH, (80, 90): BOTH, (100,): SECOND}


SHORT = images.cubin({"k": [(0, 8), (32, 8)]}).replace(struct.pack("<BBH", 3, 0x19, 40), b"\3\x19\xff\0")
"""it says that there are more bytes of parameters than it tells of"""


@pytest.mark.parametrize(
    "part", [Part(8, 90, b"some other code"), Part(CUBIN, 90, b"\x7fELF and nothing more"), Part(CUBIN, 90, SHORT)]
)
def test_a_part_that_cannot_be_read_may_write_anywhere(part: Part) -> None:
    found = understand(images.fatbin([part, Part(PTX, 80, ptx("sm_80"))])).kernel("k")
    assert found is not None
    assert found.anywhere


def test_a_kernel_that_no_part_has_is_not_known() -> None:
    assert understand(images.fatbin([Part(CUBIN, 90, code()), Part(PTX, 90, ptx())])).kernel("other") is None


def test_images_are_read_from_the_memory_of_a_process() -> None:
    for data in (images.fatbin([Part(CUBIN, 90, code(), LZ4), Part(PTX, 90, ptx(), ZSTD)]), code(), ptx()):
        held = ctypes.create_string_buffer(data, len(data) + 16)
        found = from_memory(os.getpid(), ctypes.addressof(held)).kernel("k")
        assert found is not None
        assert found.words == (BOTH if data[:4] == b"\x7fELF" else SECOND)
    data = images.fatbin([Part(PTX, 90, ptx(), LZ4)])
    held = ctypes.create_string_buffer(data, len(data))
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(held), 0))
    wrapped = from_memory(os.getpid(), ctypes.addressof(wrapper)).kernel("k")
    assert wrapped is not None
    assert wrapped.words == SECOND
    with pytest.raises(NotUnderstood):
        from_memory(os.getpid(), 8)


repeating = st.lists(st.sampled_from([b"abcd", b"\0" * 9, b"x"]), max_size=900).map(b"".join)
blobs = st.one_of(st.binary(max_size=3000), repeating)
begins = st.sampled_from([b"", b"\x7fELF\x02\x01", struct.pack("<IHH", 0xBA55ED50, 1, 16), b".version .entry k("])


@given(blobs)
def test_what_an_independent_encoder_packed_comes_back(data: bytes) -> None:
    if data:
        assert packing.unpack(Packing.LZ4, images.lz4(data), len(data)) == data
        assert packing.unpack(Packing.ZSTD, images.zstd(data), len(data)) == data
        assert packing.unpack(Packing.ZSTD, images.zstd_raw(data), len(data)) == data


@given(st.sampled_from([Packing.LZ4, Packing.ZSTD]), st.binary(max_size=300), st.integers(-1, 5000))
def test_damaged_data_is_refused_or_has_the_size_it_says(how: Packing, data: bytes, size: int) -> None:
    with suppress(PackingError):
        assert len(packing.unpack(how, data, size)) == size


@settings(max_examples=300)
@given(st.data())
def test_damaged_images_are_refused_by_words_or_understood(data: st.DataObject) -> None:
    how = data.draw(st.sampled_from([0, LZ4, ZSTD]))
    whole = bytearray(images.fatbin([Part(CUBIN, 90, code(), how)]))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))]) if data.draw(st.booleans()) else bytes(whole)
    try:
        understand(cut).kernel("k")
        understand(cut, (90,)).kernel("k")
    except NotUnderstood:
        return


@given(st.binary(max_size=400), begins)
def test_garbage_is_refused_or_understood(garbage: bytes, begin: bytes) -> None:
    with suppress(NotUnderstood):
        understand(begin + garbage).kernel("k")


@given(st.integers(0, 600), st.binary(min_size=1, max_size=8))
def test_damaged_machine_code_is_refused_by_words(at: int, change: bytes) -> None:
    whole = bytearray(code())
    whole[at : at + len(change)] = change
    with suppress(ValueError):
        cubin.read(bytes(whole))
