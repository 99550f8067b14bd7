# SPDX-License-Identifier: Apache-2.0
"""What kernels may write, from their PTX."""

from __future__ import annotations

import pytest

from detshare.ebpf.ptx import kernels

HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"


def kernel(parameters: str, body: str) -> tuple[set[tuple[int, int]], str]:
    text = f"{HEAD}.visible .entry k({parameters})\n{{\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n{body}\nret;\n}}\n"
    found = kernels(text)["k"]
    return {(word.parameter, word.offset) for word in found.words}, found.anywhere


TWO = ".param .u64 a, .param .u64 b"


def test_only_what_reaches_a_store_is_written() -> None:
    body = "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.global.u32 %r1, [%d2];\nst.global.u32 [%d1], %r1;"
    assert kernel(TWO, body) == ({(0, 0)}, "")


def test_an_address_passes_through_arithmetic_and_branches() -> None:
    body = """ld.param.u64 %d1, [a];
ld.param.u64 %d2, [b];
cvta.to.global.u64 %d3, %d2;
again:
add.s64 %d3, %d3, 4;
@%p1 bra again;
selp.b64 %d4, %d3, %d1, %p2;
st.global.v2.u32 [%d4+8], {%r1, %r2};"""
    assert kernel(TWO, body) == ({(0, 0), (1, 0)}, "")


def test_values_that_flow_backwards_in_a_loop_are_followed() -> None:
    body = """ld.param.u64 %d1, [a];
ld.param.u64 %d2, [b];
mov.u64 %d5, %d1;
again:
st.global.u32 [%d5], %r1;
mov.u64 %d5, %d6;
mov.u64 %d6, %d2;
@%p1 bra again;"""
    assert kernel(TWO, body) == ({(0, 0), (1, 0)}, "")


@pytest.mark.parametrize(
    "store", ["atom.global.add.u32 %r2, [%d1], 1", "red.global.max.s32 [%d1], %r1", "st.u8 [%d1], %r1"]
)
def test_every_kind_of_store_counts(store: str) -> None:
    assert kernel(".param .u64 a", f"ld.param.u64 %d1, [a];\n{store};") == ({(0, 0)}, "")


@pytest.mark.parametrize(
    "store", ["st.shared.u32 [%d1], %r1", "st.local.u32 [%d1], %r1", "atom.shared.add.u32 %r2, [%d1], 1"]
)
def test_shared_and_local_memory_are_no_allocations(store: str) -> None:
    assert kernel(".param .u64 a", f"ld.param.u64 %d1, [a];\n{store};") == (set(), "")


def test_a_member_of_a_struct_is_found_by_its_offset() -> None:
    body = "ld.param.v2.u64 {%d1, %d2}, [s+16];\nst.global.u32 [%d2], %r1;"
    assert kernel(".param .align 8 .b8 s[40]", body) == ({(0, 24)}, "")


def test_a_struct_whose_address_is_taken_may_hold_pointers_anywhere() -> None:
    body = "mov.b64 %d1, s;\nld.param.u64 %d2, [%d1+8];\nst.global.u32 [%d2], %r1;"
    assert kernel(".param .align 8 .b8 s[16]", body) == ({(0, offset) for offset in range(9)}, "")


def test_offsets_in_the_packed_buffer_follow_alignment() -> None:
    text = f"{HEAD}.visible .entry k(.param .u32 n, .param .u64 a, .param .u8 c, .param .align 16 .b8 s[24])\n{{\n"
    text += "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [s+8];\nst.u32 [%d1], %r1;\nst.u32 [%d2], %r1;\nret;\n}"
    assert [word.packed for word in kernels(text)["k"].words] == [8, 32 + 8]


@pytest.mark.parametrize(
    "body",
    [
        "ld.param.u64 %d1, [a];\nld.global.u64 %d2, [%d1];\nst.global.u32 [%d2], %r1;",
        "ld.param.u64 %d1, [a];\nld.global.v2.u32 {%r1, %r2}, [%d1];\nmov.b64 %d2, {%r1, %r2};\nst.u32 [%d2], %r1;",
        "ld.param.u64 %d1, [a];\nld.u64 %d2, [%d1];\nand.b64 %d3, %d2, -16;\nshl.b64 %d4, %d3, 0;\nst.u32 [%d4], %r1;",
        "call.uni (%r1), somewhere, (%r2);",
        "sust.b.2d.b32.clamp [surface, {%r1, %r2}], {%r3};",
        "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%d2], %r1;",
    ],
)
def test_what_may_write_anywhere_says_so(body: str) -> None:
    assert kernel(TWO, body)[1] != ""


def test_a_loaded_index_stays_in_its_array() -> None:
    body = """ld.param.u64 %d1, [a];
ld.param.u64 %d2, [b];
ld.global.s64 %d3, [%d2];
shl.b64 %d4, %d3, 2;
add.s64 %d5, %d1, %d4;
st.global.u32 [%d5], %r1;"""
    written, anywhere = kernel(TWO, body)
    assert written == {(0, 0)}
    assert anywhere == ""


def test_two_halves_of_an_address_are_put_together() -> None:
    body = "ld.param.u32 %r1, [s+8];\nld.param.u32 %r2, [s+12];\nmov.b64 %d1, {%r1, %r2};\nst.u32 [%d1], %r1;"
    assert (0, 8) in kernel(".param .align 4 .b8 s[24]", body)[0]


def test_parameters_that_are_not_understood_may_point_anywhere() -> None:
    assert kernel(".param .texref t", "")[1] != ""


def test_comments_do_not_count() -> None:
    body = "ld.param.u64 %d1, [a];\n// st.global.u32 [%d1], %r1;\n/* st.global.u32 [%d1],\n%r1; */"
    assert kernel(".param .u64 a", body) == (set(), "")
