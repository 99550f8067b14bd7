# SPDX-License-Identifier: Apache-2.0
"""Module images whose owner takes them away as soon as they are loaded, as cuBLAS and compilers at run time do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.epochs import Epoch
from tests.tracee import images
from tests.vm.guest.dirty_tools import Program, shapes, tracer

__all__ = ["shapes", "tracer"]  # fixtures

KERNELS = Path(images.__file__).with_name("kernels.ptx")
_BEGIN = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *words):
    status = getattr(cuda, name)(*words)
    assert status == 0, (name, status)
device, context, module, function = ctypes.c_int(), *(ctypes.c_void_p() for _ in range(3))
memory = [ctypes.c_uint64() for _ in range(3)]
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
for each in memory:
    call("cuMemAlloc_v2", ctypes.byref(each), ctypes.c_size_t(1 << 20))
"""
_PROGRAM = (
    _BEGIN
    + """
data = open(sys.argv[1], "rb").read() + bytes(8)
image = ctypes.create_string_buffer(data, len(data))
load = cuda.cuModuleLoadData
status = load(ctypes.byref(module), image)
ctypes.memset(image, 0x55, len(data))
assert status == 0, status
call("cuModuleGetFunction", ctypes.byref(function), module, sys.argv[2].encode())
words = (memory[1], ctypes.c_uint32(1))
params = (ctypes.c_void_p * 2)(*[ctypes.addressof(each) for each in words])
call("cuCtxSynchronize")
print(json.dumps([each.value for each in memory]), flush=True)
sys.stdin.readline()
call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, params, None)
call("cuMemsetD8_v2", memory[2], ctypes.c_ubyte(1), ctypes.c_size_t(64))
call("cuCtxSynchronize")
print("done", flush=True)
sys.stdin.readline()
"""
)
"""`look` reads its first parameter and writes nothing; what a fill writes is known in any case"""


@pytest.fixture(scope="module")
def forms(shapes: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images by form; `long`: more PTX text than is told with an event."""
    folder = tmp_path_factory.mktemp("texts")
    text = KERNELS.read_text()
    long, pieces = folder / "long.ptx", folder / "pieces.ptx"
    long.write_text(text + "// nothing\n" * (1 << 17))
    pieces.write_text(text + "// nothing\n" * 4000)
    return {**shapes, "text": KERNELS, "pieces": pieces, "long": long}


def run(tracer: DirtyTracer, image: Path, kernel: str = "look") -> tuple[Epoch, list[int]]:
    """The epoch of a launch of a kernel that came from an image which is gone, and of a fill."""
    with Program([sys.executable, "-c", _PROGRAM, str(image), kernel]) as program:
        tracer.end_epoch(program.pid)
        tracer.end_epoch(program.pid)
        program.say()
        found = tracer.end_epoch(program.pid)
    tracer.forget(program.pid)
    return found, program.addresses


@pytest.mark.parametrize("shape", ["text", "pieces", "lz4", "zstd", "code"])
def test_an_image_that_is_gone_was_told_with_its_load(tracer: DirtyTracer, forms: dict[str, Path], shape: str) -> None:
    if shape not in forms:
        pytest.skip(f"no library packs {shape} here")
    found, addresses = run(tracer, forms[shape])
    assert found.reasons == ()
    written = {addresses[2]} if shape != "code" else {addresses[1], addresses[2], addresses[0]}
    assert {addresses[2]} <= {each.address for each in found.dirty} <= written


@pytest.mark.parametrize("length", [255, 256, 1000, 4000])
def test_kernels_may_have_long_names(tracer: DirtyTracer, tmp_path: Path, length: int) -> None:
    name = "look" + "x" * (length - 4)
    image = tmp_path / "named.ptx"
    image.write_text(re.sub(r"\blook\b", name, KERNELS.read_text()))
    found, addresses = run(tracer, image, name)
    assert found.reasons == ()
    assert {each.address for each in found.dirty} == {addresses[2]}


def test_a_kernel_that_cannot_be_found_is_named(tracer: DirtyTracer, tmp_path: Path) -> None:
    name = "look" + "x" * 5000
    image = tmp_path / "named.ptx"
    image.write_text(re.sub(r"\blook\b", name, KERNELS.read_text()))
    found, _ = run(tracer, image, name)
    assert [reason[:20] for reason in found.reasons] == ["kernel " + name[:13]]
    assert found.reasons[0].endswith("its image does not have it")
    assert found.share == 1.0


def test_an_image_too_long_to_be_told_makes_everything_dirty(tracer: DirtyTracer, forms: dict[str, Path]) -> None:
    found, addresses = run(tracer, forms["long"])
    assert found.reasons
    assert {each.address for each in found.dirty} == set(addresses)
    assert tracer.trouble().lost == 0


_BIG = """.version 7.0
.target sm_70
.address_size 64
.visible .entry big(.param .align 8 .b8 big_where[256])
{
	.reg .b64 %d<4>;
	ld.param.u64 %d1, [big_where+248];
	cvta.to.global.u64 %d2, %d1;
	st.global.u64 [%d2], %d1;
	ret;
}
"""
_AGAIN = (
    _BEGIN
    + """
image = open(sys.argv[1], "rb").read() + bytes(1)
call("cuModuleLoadData", ctypes.byref(module), image)
where = (ctypes.c_uint64 * 32)()
where[31] = memory[1].value
params = (ctypes.c_void_p * 1)(ctypes.addressof(where))
print(json.dumps([each.value for each in memory]), flush=True)
for line in sys.stdin:
    if line.strip() == "unload":
        call("cuModuleUnload", module)
        call("cuModuleLoadData", ctypes.byref(module), image)
    if line.strip() == "release":
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuDevicePrimaryCtxRelease_v2", device)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"big")
    if line.strip() == "get":
        print("done", flush=True)
        continue
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    call("cuCtxSynchronize")
    print("done", flush=True)
"""
)


def test_a_function_that_is_got_again_stays_known_until_something_is_unloaded(
    tracer: DirtyTracer, tmp_path: Path
) -> None:
    """Its parameters are more than is told with a launch of a function that is not known."""
    image = tmp_path / "big.ptx"
    image.write_text(_BIG)
    with Program([sys.executable, "-c", _AGAIN, str(image)]) as program:

        def epoch(line: str) -> Epoch:
            program.say(line)
            return tracer.end_epoch(program.pid)

        epoch("get")
        for _ in range(3):
            found = epoch("launch")
            assert found.reasons == ()
            assert {each.address for each in found.dirty} == {program.addresses[1], program.addresses[0]}
        # nobody reads between the function's new begin and its launch: it could be any function
        for ending in ("release", "unload"):
            found = epoch(ending)
            assert found.reasons, ending
            assert found.share == 1.0
            assert epoch("launch").reasons == ()
    tracer.forget(program.pid)
