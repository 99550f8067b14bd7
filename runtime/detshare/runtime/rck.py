# SPDX-License-Identifier: Apache-2.0
"""``detshare rck``: the helper process of the resident control kernel.

A client of MPS of its own. It runs rck.ptx, one warp that copies every slot's word from the activity board to device
memory, and publishes that memory's IPC handle on the board, so that gates can wait on memory of the GPU. It ends on
SIGTERM, SIGINT, when the board file is gone, or when its parent is. The kernel ends with it.

Not the default, for good reasons (measured on an H100, driver 580): the host's word releases a held stream in 6 us
where this takes 10, it needs no SM, and nothing happens when a process dies. If this helper is killed by SIGKILL while
the kernel runs, the kernel touches memory that is gone, and the MPS server ends every client with error 700.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click

from detshare.ctl.core import options
from detshare.runtime import board_layout as layout
from detshare.runtime.board import Activity, BadBoard, monotonic_ns
from detshare.runtime.directory import default_path
from detshare.runtime.mps import PIPE

__all__ = ["Cuda", "CudaError", "find", "main", "map_board", "serve"]

KERNEL = Path(__file__).with_name("rck.ptx")
PULSE_SECONDS = 0.05
END_SECONDS = 2.0
_NOT_READY = 600
_NON_BLOCKING = 1
_HIGHEST = -5
_DEVICEMAP = 2


class CudaError(RuntimeError):
    """The driver refused; the text says which call and why."""


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]


class Cuda:
    """The few driver calls that the helper makes."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CudaError(f"{library} cannot be loaded: {error}; is an NVIDIA driver installed?") from error

    def function(self, name: str) -> Callable[..., int]:
        """The driver's function itself, which gives a status."""
        found = getattr(self._library, name)
        found.restype = ctypes.c_int
        bound: Callable[..., int] = found
        return bound

    def ask(self, name: str, *arguments: object) -> int:
        """The status of one call."""
        return self.function(name)(*arguments)

    def call(self, name: str, *arguments: object) -> None:
        """One call that must succeed."""
        if status := self.ask(name, *arguments):
            text = ctypes.c_char_p()
            self.ask("cuGetErrorString", status, ctypes.byref(text))
            raise CudaError(f"{name} gave {status} ({(text.value or b'?').decode(errors='replace')})")

    def device_of(self, uuid: bytes) -> int:
        """The device with that UUID, its primary context made current."""
        count = ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            device, found = ctypes.c_int(), (ctypes.c_char * 16)()
            self.call("cuDeviceGet", ctypes.byref(device), ordinal)
            self.call("cuDeviceGetUuid", found, device)
            if found.raw == uuid:
                context = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self.call("cuCtxSetCurrent", context)
                return device.value
        raise CudaError(f"none of {count.value} GPUs has the UUID {uuid.hex()}; is it in CUDA_VISIBLE_DEVICES?")


class _Kernel:
    """The running kernel and what it works on."""

    def __init__(self, cuda: Cuda, activity: Activity) -> None:
        self._cuda, self._activity = cuda, activity
        page = activity.address("magic")
        self.words = ctypes.c_uint64()
        module, function, self._stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuMemHostRegister_v2", ctypes.c_void_p(page), ctypes.c_size_t(layout.PAGE_BYTES), _DEVICEMAP)
        # IPC hands out whole allocations: a granule of its own, not a corner of a shared one
        cuda.call("cuMemAlloc_v2", ctypes.byref(self.words), ctypes.c_size_t(2 << 20))
        cuda.call("cuMemsetD8_v2", self.words, 0, ctypes.c_size_t(layout.RCK_WORDS_BYTES))
        self.handle = _IpcHandle()
        cuda.call("cuIpcGetMemHandle", ctypes.byref(self.handle), self.words)
        cuda.call("cuModuleLoadData", ctypes.byref(module), KERNEL.read_bytes() + b"\0")
        cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"detshare_rck")
        cuda.call("cuStreamCreateWithPriority", ctypes.byref(self._stream), _NON_BLOCKING, _HIGHEST)
        first = activity.slots[0].address("word")
        values = (
            ctypes.c_uint64(first),
            self.words,
            ctypes.c_uint64(activity.address("rck_stop")),
            ctypes.c_uint32(layout.SLOTS),
            ctypes.c_uint64(layout.RCK_STALE_NS),
        )
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        activity.put("rck_stop", 0)
        cuda.call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, self._stream, pointers, None)

    def running(self) -> bool:
        """False when it has ended; CudaError when it failed."""
        status = self._cuda.ask("cuStreamQuery", self._stream)
        if status not in (0, _NOT_READY):
            self._cuda.call("cuStreamQuery", self._stream)
        return status == _NOT_READY

    def end(self) -> None:
        """Stop it; CudaError if it does not."""
        self._activity.put("rck_stop", 1)
        until = time.monotonic() + END_SECONDS
        while self.running():
            if time.monotonic() > until:
                raise CudaError(f"the kernel has not ended {END_SECONDS:g} s after its flag was set")
            time.sleep(0.001)


def serve(activity: Activity, cuda: Cuda, stop: Callable[[], bool]) -> None:
    """Run the kernel until `stop` says so. CudaError where it cannot run or ends by itself."""
    cuda.device_of(activity.raw("gpu_uuid"))
    kernel = _Kernel(cuda, activity)
    # never one that a tenant may still remember
    generation = (monotonic_ns() >> 20) & 0xFFFFFFFF or 1
    activity.put_raw("rck_handle", bytes(kernel.handle))
    activity.put("rck_pid", os.getpid())
    activity.put("rck_beat", monotonic_ns())
    activity.put("rck_generation", generation)
    try:
        while not stop():
            activity.put("rck_pulse", (activity.get("rck_pulse") + 1) & 0xFFFFFFFF)
            if not kernel.running():
                raise CudaError("the resident control kernel ended by itself")
            activity.put("rck_beat", monotonic_ns())
            time.sleep(PULSE_SECONDS)
    finally:
        # no new gate waits on the words from here; the kernel opens them as it ends
        activity.put("rck_generation", 0)
        kernel.end()


def _run(board: Path) -> None:
    ended: list[int] = []
    parent = os.getppid()

    def end(number: int, _frame: FrameType | None) -> None:
        ended.append(number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)

    def stop() -> bool:
        return bool(ended) or os.getppid() != parent or not os.path.lexists(board)

    activity = Activity(map_board(board))
    activity.check()
    if activity.get("rck_generation") and activity.get("rck_beat") + layout.RCK_STALE_NS > monotonic_ns():
        pid = activity.get("rck_pid")
        raise CudaError(f"process {pid} runs the resident control kernel of this GPU already; end it first")
    try:
        serve(activity, Cuda(), stop)
    finally:
        activity.put("rck_pid", 0)


def map_board(board: Path) -> mmap.mmap:
    """Mapped until the process ends: the GPU may read it as long."""
    descriptor = os.open(board, os.O_RDWR | os.O_CLOEXEC)
    try:
        info = os.fstat(descriptor)
        if info.st_uid != os.geteuid():  # its daemon is gone, and another process has that one's number
            raise BadBoard(f"{board} belongs to uid {info.st_uid}: start detshared, or run this as its user")
        if info.st_size < layout.PAGE_BYTES:
            raise BadBoard(f"{board} is smaller than a board: remove the file")
        return mmap.mmap(descriptor, layout.PAGE_BYTES)
    finally:
        os.close(descriptor)


def find(folder: Path, gpu: str | None) -> Path:
    """The activity board of a GPU, or the only one there is. BadBoard."""
    boards = sorted(path for path in folder.glob("*.activity") if not path.stem.endswith(".observed"))
    if not boards:
        raise BadBoard(f"there is no activity board in {folder}: start a program by detshare run --lane spatial first")
    if gpu is None and len(boards) > 1:
        raise BadBoard(f"there are {len(boards)} GPUs: take one by --gpu: {', '.join(path.stem for path in boards)}")
    for path in boards:
        if gpu in (None, path.stem):
            return path
    raise BadBoard(f"no program of the spatial lane is on {gpu}; others: {', '.join(path.stem for path in boards)}")


@click.command("rck", context_settings={"help_option_names": ["-h", "--help"]}, epilog="Example: detshare rck")
@options.run_dir("Folder of the daemon whose programs it is for.")
@click.option("--gpu", metavar="UUID", help="Of which GPU.  [default: the only one with programs]")
@click.option("--board", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="That activity board.")
def main(run_dir: Path, gpu: str | None, board: Path | None) -> None:
    """Run the resident control kernel of a GPU in the foreground, until SIGTERM or SIGINT.

    Programs that were started by `detshare run --gate rck` then wait at words in the GPU's memory, which this kernel
    keeps like those in the host's; all others, and these without it, wait at the host's.

    The host's words are the default for good reasons. They release a held stream sooner (5 to 6 us on an H100, not
    8 to 9). The kernel occupies one SM. And NEVER END THIS BY SIGKILL: the kernel would touch memory that is gone, and
    the MPS server ends every one of its programs with error 700.
    """
    pipe = run_dir / "mps" / "pipe"
    if PIPE not in os.environ and pipe.is_dir():
        os.environ[PIPE] = str(pipe)  # one server with the programs, else they cannot share memory
    try:
        _run(board or find(default_path(run_dir), gpu))
    except (CudaError, BadBoard, OSError) as error:
        click.echo(f"rck: the resident control kernel is not there: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
