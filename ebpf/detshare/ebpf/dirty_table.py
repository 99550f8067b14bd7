# SPDX-License-Identifier: Apache-2.0
"""The functions of libcuda by which GPU memory comes, goes and is written, as dirty.bpf.c reads them."""

from __future__ import annotations

from enum import IntEnum

from detshare.ebpf.probes import Shape

WORDS = 32


class Kind(IntEnum):
    """enum ds_dirty_kind."""

    ALLOC = 1
    PITCH = 2
    MAP = 3
    RESERVE = 4
    FREE = 5
    MODULE = 6
    FUNCTION = 7
    CONTEXT = 8
    MANAGED = 9
    SYNC = 10
    LAUNCH = 11
    COOPERATIVE = 12
    LAUNCH_CONFIG = 13
    WRITE = 14
    WRITE_2D = 15
    WRITE_3D = 16
    ANYWHERE = 17
    GRAPH = 18
    GRAPH_CHANGE = 19
    CAPTURE = 20
    CAPTURED = 21
    UNLOAD = 22
    IMAGE = 253
    UNKNOWN = 254
    FREEING = 255


def entry_of(shape: Shape) -> str:
    """The function of dirty.bpf.c that sees a call."""
    if shape.timed:
        return "opened"
    return "launched" if shape.kind <= Kind.LAUNCH_CONFIG else "wrote"


def _timed(kind: Kind, target: int, *, bytes: int = 0, second: int = 0, third: int = 0) -> Shape:
    return Shape(kind, target=target, bytes=bytes, second=second, third=third, timed=True)


def _table() -> dict[str, Shape]:
    table = {
        "cuMemAlloc": _timed(Kind.ALLOC, 1, bytes=2),
        "cuMemAllocManaged": _timed(Kind.MANAGED, 1, bytes=2),
        "cuMemAllocAsync": _timed(Kind.ALLOC, 1, bytes=2),
        "cuMemAllocFromPoolAsync": _timed(Kind.ALLOC, 1, bytes=2),
        "cuMemAllocPitch": _timed(Kind.PITCH, 1, second=2, third=4),
        "cuMemAddressReserve": _timed(Kind.RESERVE, 1, bytes=2),
        "cuMemMap": _timed(Kind.MAP, 1, bytes=2, second=4),
        "cuMemUnmap": _timed(Kind.FREE, 1, bytes=2),
        "cuMemFree": _timed(Kind.FREE, 1),
        "cuMemFreeAsync": _timed(Kind.FREE, 1),
        "cuModuleLoad": _timed(Kind.MODULE, 1, second=2, third=1),
        "cuModuleLoadData": _timed(Kind.MODULE, 1, second=2),
        "cuModuleLoadDataEx": _timed(Kind.MODULE, 1, second=2),
        "cuModuleLoadFatBinary": _timed(Kind.MODULE, 1, second=2),
        "cuLibraryLoadData": _timed(Kind.MODULE, 1, second=2),
        "cuLibraryLoadFromFile": _timed(Kind.MODULE, 1, second=2, third=1),
        "cuModuleGetFunction": _timed(Kind.FUNCTION, 1, second=2, third=3),
        "cuLibraryGetKernel": _timed(Kind.FUNCTION, 1, second=2, third=3),
        "cuKernelGetFunction": _timed(Kind.FUNCTION, 1, second=2),
        "cuLibraryGetModule": _timed(Kind.FUNCTION, 1, second=2),
        "cuCtxCreate": _timed(Kind.CONTEXT, 1),
        "cuDevicePrimaryCtxRetain": _timed(Kind.CONTEXT, 1),
        "cuCtxSynchronize": Shape(Kind.SYNC, timed=True),
        "cuStreamSynchronize": Shape(Kind.SYNC, stream=1, timed=True),
        "cuLaunchKernel": Shape(Kind.LAUNCH, stream=9),
        "cuLaunchCooperativeKernel": Shape(Kind.COOPERATIVE, stream=9),
        "cuLaunchKernelEx": Shape(Kind.LAUNCH_CONFIG),
        "cuGraphLaunch": Shape(Kind.GRAPH, stream=2),
        "cuStreamBeginCapture": Shape(Kind.CAPTURE, stream=1),
        "cuStreamBeginCaptureToGraph": Shape(Kind.CAPTURE, stream=1),
        "cuStreamEndCapture": Shape(Kind.CAPTURED, stream=1),
        "cuMemcpy": Shape(Kind.WRITE, target=1),
        "cuMemcpyAsync": Shape(Kind.WRITE, target=1, stream=4),
        "cuMemcpyPeer": Shape(Kind.WRITE, target=1),
        "cuMemcpyPeerAsync": Shape(Kind.WRITE, target=1, stream=6),
        "cuMemcpyAtoD": Shape(Kind.WRITE, target=1),
        "cuMemcpy3DPeer": Shape(Kind.WRITE_3D, target=1),
        "cuMemcpy3DPeerAsync": Shape(Kind.WRITE_3D, target=1, stream=2),
        # pinned host memory under a device's address, or managed memory, may be the target of a copy to the host
        "cuMemcpyDtoH": Shape(Kind.WRITE, target=1),
        "cuMemcpyDtoHAsync": Shape(Kind.WRITE, target=1, stream=4),
        "cuMemcpyAtoH": Shape(Kind.WRITE, target=1),
        "cuMemcpyAtoHAsync": Shape(Kind.WRITE, target=1, stream=5),
        "cuStreamWriteValue32": Shape(Kind.WRITE, target=2, stream=1),
        "cuStreamWriteValue64": Shape(Kind.WRITE, target=2, stream=1),
    }
    for way in ("HtoD", "DtoD"):
        table[f"cuMemcpy{way}"] = Shape(Kind.WRITE, target=1)
        table[f"cuMemcpy{way}Async"] = Shape(Kind.WRITE, target=1, stream=4)
    for name, kind in (("2D", Kind.WRITE_2D), ("2DUnaligned", Kind.WRITE_2D), ("3D", Kind.WRITE_3D)):
        table[f"cuMemcpy{name}"] = Shape(kind, target=1)
        table[f"cuMemcpy{name}Async"] = Shape(kind, target=1, stream=2)
    for bits in (8, 16, 32):
        table[f"cuMemsetD{bits}"] = Shape(Kind.WRITE, target=1)
        table[f"cuMemsetD{bits}Async"] = Shape(Kind.WRITE, target=1, stream=4)
        table[f"cuMemsetD2D{bits}"] = Shape(Kind.WRITE, target=1)
        table[f"cuMemsetD2D{bits}Async"] = Shape(Kind.WRITE, target=1, stream=6)
    # the last of several who let go of a context ends it, with its modules; green contexts hold it too
    ends = ("cuCtxDestroy", "cuCtxDetach", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuGreenCtxDestroy")
    for name in ("cuModuleUnload", "cuLibraryUnload", *ends):
        table[name] = Shape(Kind.UNLOAD)
    for name in ("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync", "cuLaunchCooperativeKernelMultiDevice"):
        table[name] = Shape(Kind.ANYWHERE)
    for name in ("cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync", "cuStreamBatchMemOp", "cuMemPrefetchBatchAsync"):
        table[name] = Shape(Kind.ANYWHERE)
    for name in (
        "cuGraphAddKernelNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode",
        "cuGraphAddNode",
        "cuGraphAddBatchMemOpNode",
        "cuGraphKernelNodeSetParams",
        "cuGraphMemcpyNodeSetParams",
        "cuGraphMemsetNodeSetParams",
        "cuGraphNodeSetParams",
        "cuGraphBatchMemOpNodeSetParams",
        "cuGraphExecKernelNodeSetParams",
        "cuGraphExecMemcpyNodeSetParams",
        "cuGraphExecMemsetNodeSetParams",
        "cuGraphExecNodeSetParams",
        "cuGraphExecBatchMemOpNodeSetParams",
    ):
        table[name] = Shape(Kind.GRAPH_CHANGE)
    return table


TABLE = _table()
