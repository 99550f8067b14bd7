# SPDX-License-Identifier: Apache-2.0
"""The few CUDA driver calls that the small workloads need, through ctypes: no PyTorch, no CUDA package is required.

Kernels are compiled by NVRTC (cuda-bindings) or, where that is absent, by nvcc; ``KERNELS_CACHE`` may name a folder
that keeps the compiled code between programs, ``KERNELS_IMAGE`` a file with code to take instead of compiling.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["CudaError", "Device", "Kernel", "compile_cubin"]

HERE = Path(__file__).resolve().parent
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76  # CUdevice_attribute
HOST_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
NOT_READY = 600  # CUDA_ERROR_NOT_READY


class CudaError(RuntimeError):
    """A driver call failed; the text names the call and the driver's own word for the error."""


def compile_cubin(source: Path, arch: str) -> bytes:
    """Machine code of ``source`` for ``arch`` ("sm_90"), by NVRTC or nvcc.

    :raises CudaError: neither compiler is there, or the source does not compile.
    """
    image = os.environ.get("KERNELS_IMAGE")
    if image:
        return Path(image).read_bytes()
    text = source.read_bytes()
    folder = os.environ.get("KERNELS_CACHE")
    kept = Path(folder) / f"{hashlib.sha256(text).hexdigest()[:16]}-{arch}.cubin" if folder else None
    if kept is not None and kept.exists():
        return kept.read_bytes()
    try:
        from cuda.bindings import nvrtc

        code = _by_nvrtc(nvrtc, text, arch)
    except (ImportError, RuntimeError) as error:  # absent, or present without its library
        nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
        if nvcc is None:
            raise CudaError(
                f"no nvcc here, and NVRTC does not work ({error}): install cuda-bindings or nvcc"
            ) from error
        code = _by_nvcc(nvcc, source, arch)
    if kept is not None:
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_bytes(code)
        part.rename(kept)  # other programs see the whole file or none
    return code


def _by_nvrtc(nvrtc: Any, text: bytes, arch: str) -> bytes:
    def call(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise CudaError(f"NVRTC failed with {result[0]!r}; is the source whole?")
        return result[1] if len(result) > 1 else None

    program = call(nvrtc.nvrtcCreateProgram(text, b"kernels.cu", 0, [], []))
    wanted = [f"--gpu-architecture={arch}".encode()]
    if int(nvrtc.nvrtcCompileProgram(program, len(wanted), wanted)[0]):
        log = b" " * call(nvrtc.nvrtcGetProgramLogSize(program))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise CudaError(f"NVRTC could not compile kernels.cu for {arch}: {log.decode(errors='replace')}")
    code = b" " * call(nvrtc.nvrtcGetCUBINSize(program))
    call(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def _by_nvcc(nvcc: str, source: Path, arch: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.cubin"
        done = subprocess.run(
            [nvcc, f"-arch={arch}", "-cubin", "-o", str(out), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CudaError(f"nvcc could not compile {source.name} for {arch}: {done.stderr[-500:]}")
        return out.read_bytes()


class Kernel:
    """A kernel with its arguments; the argument block is built once, so a launch is one driver call."""

    def __init__(self, device: Device, function: ctypes.c_void_p, grid: int, block: int, arguments: list[Any]) -> None:
        self.device, self.function, self.grid, self.block = device, function, grid, block
        self.iterations: Any = None
        """the first argument of a kernel whose work is set by it, for who wants to change it between launches"""
        self.stream: Any = None
        self._values = arguments
        self._block = (ctypes.c_void_p * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])

    def launch(self) -> None:
        """Launch on `stream`, the default stream unless it was set."""
        self.device.call(
            "cuLaunchKernel", self.function, self.grid, 1, 1, self.block, 1, 1, 0, self.stream, self._block, None
        )


class Device:
    """GPU ``ordinal`` with its primary context current in this thread."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"no CUDA driver on this machine ({error}); this workload needs an NVIDIA GPU") from error
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.device = device.value
        self.sms = self._attribute(MULTIPROCESSORS)
        self.arch = f"sm_{self._attribute(MAJOR)}{self._attribute(MINOR)}"
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)
        self._module: ctypes.c_void_p | None = None

    def call(self, name: str, *arguments: Any) -> None:
        """Call the driver's function ``name``; raise CudaError unless it answers CUDA_SUCCESS."""
        status = getattr(self.cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(f"{name} failed: {(text.value or b'unknown error').decode()} ({status})")

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, self.device)
        return value.value

    def function(self, name: str) -> ctypes.c_void_p:
        """The kernel ``name`` of kernels.cu, compiled on first use."""
        if self._module is None:
            self._module = ctypes.c_void_p()
            code = compile_cubin(HERE / "kernels.cu", self.arch)
            self.call("cuModuleLoadData", ctypes.byref(self._module), code)
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        return function

    def kernel(self, name: str, grid: int, block: int, *arguments: Any) -> Kernel:
        """The kernel ``name`` with a launch shape and ctypes arguments."""
        return Kernel(self, self.function(name), grid, block, list(arguments))

    def fit(self, function: ctypes.c_void_p, block: int) -> int:
        """How many blocks of ``block`` threads one SM holds."""
        blocks = ctypes.c_int()
        self.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), function, block, ctypes.c_size_t(0)
        )
        return blocks.value

    def memory(self, size: int) -> ctypes.c_uint64:
        """Zeroed device memory; the address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return address

    def read_u64(self, address: ctypes.c_uint64) -> int:
        """One 64-bit word of device memory; waits for earlier work."""
        value = ctypes.c_uint64()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(8))
        return value.value

    def mapped(self, size: int) -> tuple[int, ctypes.c_uint64]:
        """Zeroed host memory that kernels can reach: its address here and its address there."""
        host, there = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(size), HOST_MAPPED)
        ctypes.memset(host.value or 0, 0, size)
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0)
        return host.value or 0, there

    def event(self, blocking: bool = False) -> ctypes.c_void_p:
        """A CUDA event."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 1 if blocking else 0)
        return event

    def stream(self) -> ctypes.c_void_p:
        """A stream that does not wait for the default stream."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def record(self, event: ctypes.c_void_p, stream: ctypes.c_void_p | None = None) -> None:
        """Record an event behind all work of a stream, the default stream unless it is named."""
        self.call("cuEventRecord", event, stream)

    def wait(self, event: ctypes.c_void_p) -> None:
        """Wait for an event."""
        self.call("cuEventSynchronize", event)

    def over(self, event: ctypes.c_void_p) -> bool:
        """Whether all work before an event has ended."""
        if self.cuda.cuEventQuery(event) == NOT_READY:
            return False
        self.call("cuEventQuery", event)
        return True

    def elapsed_us(self, first: ctypes.c_void_p, last: ctypes.c_void_p) -> float:
        """Microseconds of GPU time between two finished events."""
        ms = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(ms), first, last)
        return ms.value * 1000.0

    def synchronize(self) -> None:
        """Wait for all work of the context."""
        self.call("cuCtxSynchronize")
