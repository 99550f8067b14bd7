# SPDX-License-Identifier: Apache-2.0
"""A stand-in for cuda.bindings.driver: cuCheckpointProcess* of the libcuda that is there (tests/fakecuda)."""

from __future__ import annotations

import ctypes
import enum

_cuda = ctypes.CDLL("libcuda.so.1")


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_NOT_SUPPORTED = 801


class CUcheckpointLockArgs:
    def __init__(self) -> None:
        self.timeoutMs = 0


class _LockArgs(ctypes.Structure):
    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


def cuInit(flags: int) -> tuple[CUresult]:
    return (CUresult(_cuda.cuInit(flags)),)


def cuCheckpointProcessGetState(pid: int) -> tuple[CUresult, int | None]:
    state = ctypes.c_int()
    result = CUresult(_cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state)))
    return result, None if result else state.value


def cuCheckpointProcessLock(pid: int, args: CUcheckpointLockArgs | None) -> tuple[CUresult]:
    made = _LockArgs(timeout_ms=args.timeoutMs if args else 0)
    return (CUresult(_cuda.cuCheckpointProcessLock(pid, ctypes.byref(made))),)


def cuCheckpointProcessCheckpoint(pid: int, args: None) -> tuple[CUresult]:
    return (CUresult(_cuda.cuCheckpointProcessCheckpoint(pid, args)),)


class CUuuid(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_ubyte * 16),)

    def getPtr(self) -> int:
        return ctypes.addressof(self)


class CUcheckpointGpuPair(ctypes.Structure):
    _fields_ = (("oldUuid", CUuuid), ("newUuid", CUuuid))


class CUcheckpointRestoreArgs:
    def __init__(self) -> None:
        self.gpuPairs: list[CUcheckpointGpuPair] = []
        self.gpuPairsCount = 0


class _RestoreArgs(ctypes.Structure):
    _fields_ = (("pairs", ctypes.c_void_p), ("count", ctypes.c_uint), ("reserved", ctypes.c_ubyte * 52))


def cuCheckpointProcessRestore(pid: int, args: CUcheckpointRestoreArgs | None) -> tuple[CUresult]:
    if args is None:
        return (CUresult(_cuda.cuCheckpointProcessRestore(pid, None)),)
    pairs = (CUcheckpointGpuPair * len(args.gpuPairs))(*args.gpuPairs)
    made = _RestoreArgs(pairs=ctypes.addressof(pairs), count=args.gpuPairsCount)
    return (CUresult(_cuda.cuCheckpointProcessRestore(pid, ctypes.byref(made))),)


def cuCheckpointProcessUnlock(pid: int, args: None) -> tuple[CUresult]:
    return (CUresult(_cuda.cuCheckpointProcessUnlock(pid, args)),)
