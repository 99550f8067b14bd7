# SPDX-License-Identifier: Apache-2.0
"""What kernels may write, from their PTX."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from detshare.ebpf.ptx import Word
from detshare.ebpf.ptx_flow import kernels
from tests.unit.ebpf import ptx_programs

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
    assert kernel(".param .align 8 .b8 s[16]", body) == ({(0, 0)}, "")
    text = f"{HEAD}.visible .entry k(.param .u32 n, .param .align 8 .b8 s[16])\n{{\n{body}\nret;\n}}\n"
    assert kernels(text)["k"].words == (Word(1, 0, 8, 16),)


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


@pytest.mark.parametrize(
    "store",
    [
        ".loc 1 27 3\nst.global.u32 [%d1], %r1",
        ".loc\t1 5 9, function_name $L__info_string0, inlined_at 1 10 3\nst.global.u32 \t[%d1], %r1",
        "{ .reg .pred p;\n setp.eq.u32 p, %r1, 1;\n @p st.global.v2.f32 [%d1], {%f1, %f2};\n }",
        "{ .reg .pred p;\n setp.eq.u32 p, %r1, 1;\n @!p  st.global.v2.u32 [%d1], {-1, 0};\n }",
        "$L__1: @%p1 st.global.v4.b32 [ %d1 + 0 ], { %r1, %r2, %r3, %r4 }",
        "wmma.store.d.sync.aligned.m16n16k16.global.row.f32 [%d1], {%f1, %f2}, %r1",
        "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], %r3",
        "discard.global.L2 [%d1], 128",
        "invented.global.u32 [%d1], %r1",
    ],
)
def test_stores_are_seen_however_they_are_written(store: str) -> None:
    assert kernel(TWO, f"ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\n{store};") == ({(0, 0)}, "")


@pytest.mark.parametrize(
    "statement",
    [
        "cp.async.cg.shared.global [%r1], [%d1], 16",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], %r2, [%r3]",
        "cp.async.bulk.wait_group.read 0",
        "prefetch.global.L2 [%d1]",
        "wmma.load.a.sync.aligned.m16n16k16.global.row.f16 {%r1, %r2}, [%d1], %r3",
        "st.shared.u64 [%r1], %d1",
        "mbarrier.arrive.shared.b64 %d2, [%r1]",
        "call.uni __assertfail, (%d1, %d1, %r1, %d1, %d1)",
        "call (%r1), vprintf, (%d1, %d2)",
    ],
)
def test_what_writes_no_allocation_does_not_count(statement: str) -> None:
    assert kernel(".param .u64 a", f"ld.param.u64 %d1, [a];\n{statement};") == (set(), "")


CALLEE = """.func (.param .b64 f_back) f(.param .b64 f_0, .param .b64 f_1)
{
    ld.param.u64 %d1, [f_0];
    ld.param.u64 %d2, [f_1];
    st.u32 [%d1], %r1;
    st.param.b64 [f_back], %d2;
    ret;
}
"""


def test_a_function_writes_for_who_calls_it() -> None:
    body = """ld.param.u64 %d1, [b];
ld.param.u64 %d2, [a];
{ .param .b64 param0; st.param.b64 [param0+0], %d1;
.param .b64 param1; st.param.b64 [param1+0], %d2;
.param .b64 retval0;
call.uni (retval0), f, (param0, param1);
ld.param.b64 %d3, [retval0+0]; }"""
    for store, expected in (("", {1}), ("st.u32 [%d3], %r1;", {0, 1})):
        text = f"{HEAD}{CALLEE}.visible .entry k({TWO})\n{{\n{body}\n{store}\nret;\n}}\n"
        found = kernels(text)["k"]
        assert ({word.parameter for word in found.words}, found.anywhere) == (expected, "")


def test_a_struct_that_is_copied_to_local_memory_is_followed() -> None:
    body = """.local .align 8 .b8 depot[32];
mov.u64 %d1, depot;
cvta.local.u64 %d2, %d1;
ld.param.u64 %d3, [s+8];
st.local.u64 [%d1+8], %d3;
mul.wide.u32 %d4, %r1, 8;
add.s64 %d5, %d2, %d4;
ld.u64 %d6, [%d5];
st.global.u32 [%d6], %r2;"""
    assert kernel(".param .align 8 .b8 s[32]", body) == ({(0, 8)}, "")


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %d1, 4398046511104;\nst.global.u32 [%d1], %r1;",
        "st.global.u32 [%d7], %r1;",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r1, %r2}], [%r3];",
        "ld.param.u32 %r1, [a];\nmov.b64 %d1, {%r1, %r2};\nst.u32 [%d1], %r3;",
        "ld.param.u64 %d1, [a];\ncall (%d2), %d1, (%d3), proto;",
        "ld.param.u64 %d1, [a];\nld.global.u32 %r1, [%d1];\nld.global.u32 %r2, [%d1+4];\ncvt.u64.u32 %d2, %r1;\n"
        "cvt.u64.u32 %d3, %r2;\nshl.b64 %d4, %d3, 32;\nor.b64 %d5, %d4, %d2;\nst.u32 [%d5], %r1;",
    ],
)
def test_an_address_that_is_not_seen_to_be_of_a_parameter_may_be_any(body: str) -> None:
    assert kernel(TWO, body)[1] != ""


def test_an_index_of_bytes_that_was_loaded_stays_an_index() -> None:
    body = """ld.param.u64 %d1, [a];
ld.param.u64 %d2, [b];
ld.global.u64 %d3, [%d2];
shl.b64 %d4, %d3, 32;
shr.s64 %d5, %d4, 30;
add.s64 %d6, %d1, %d5;
st.global.u32 [%d6], %r1;"""
    assert kernel(TWO, body) == ({(0, 0)}, "")


def test_comments_do_not_count() -> None:
    body = "ld.param.u64 %d1, [a];\n// st.global.u32 [%d1], %r1;\n/* st.global.u32 [%d1],\n%r1; */"
    assert kernel(".param .u64 a", body) == (set(), "")


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 1 << 40))
def test_a_random_kernel_never_writes_what_is_not_reported(seed: int) -> None:
    made = ptx_programs.program(seed)
    found = kernels(made.text)["k"]
    if found.anywhere:
        return
    pointed = set()
    for word in found.words:
        for at in range(word.packed, word.packed + word.size - 7, 4):
            value = struct.unpack_from("<Q", made.parameters, at)[0]
            inside = [value - ptx_programs.base(number) for number in range(ptx_programs.ALLOCATIONS)]
            pointed |= {number for number, offset in enumerate(inside) if 0 <= offset <= ptx_programs.SIZE}
    assert made.written <= pointed, made.text


def test_random_kernels_are_not_all_given_up() -> None:
    """So that the test above says something: most kernels that follow no pointer in memory are understood."""
    plain = [each for each in map(ptx_programs.program, range(300)) if "ld.global" not in each.text]
    understood = [each for each in plain if not kernels(each.text)["k"].anywhere]
    assert len(understood) > len(plain) / 3


LETTERS = '.,;{}[]()%@:$ \n/*"+=0Aat'


@settings(max_examples=200)
@given(st.integers(0, 1 << 20), st.lists(st.tuples(st.integers(0, 1 << 20), st.text(LETTERS, max_size=6)), max_size=8))
@example(9735, [(47923, '"')])  # a shift by less than nothing
def test_damaged_text_is_read_without_an_error(seed: int, changes: list[tuple[int, str]]) -> None:
    text = ptx_programs.program(seed).text
    for at, put in changes:
        at %= len(text)
        text = text[:at] + put + text[at + len(put) // 2 :]
    for name, found in kernels(text).items():
        assert found.name == name


HUGE = 100_000


@pytest.mark.parametrize(
    "text",
    [
        ".entry a " * HUGE,
        ".entry " + "a" * HUGE,
        ".entry k(" * HUGE,
        ".entry k(" + ".param .u64 a " * HUGE + "){}",
        ".entry k(" + ".param .u64 a, " * HUGE + "){}",
        ".func (" * HUGE,
        ".func .attribute(" * HUGE,
        ".global " * HUGE,
        ".global .b8 " + "a " * HUGE + ";",
        "/*" * HUGE,
        '"\\' * HUGE,
        ".loc 1 " * HUGE,
        ".loc 1 1 1, function_name " * HUGE,
        ".entry k(){" + "{ a" * HUGE,
        ".entry k(){ st.u32 " + "[(" * HUGE + "; }",
        ".entry k(){ " + "a:" * HUGE + " }",
        ".entry k(){ " + "a " * HUGE + " }",
        ".entry k(.param .u64 p){ ld.param.u64 %r1, [p];"
        + "".join(f"add.u64 %r{n}, %r{n + 1}, %r{n + 2};" for n in range(20000, 1, -1))
        + "mov.u64 %r20001, %r1; st.u32 [%r2], %r1; }",
    ],
)
def test_a_text_that_was_made_to_take_long_does_not(text: str) -> None:
    """Images are whatever a program loads. What takes quadratic time would need hours for these."""
    begun = time.thread_time()
    kernels(text)
    assert time.thread_time() - begun < 60
