# SPDX-License-Identifier: Apache-2.0
"""cuCheckpointProcess* through cuda-bindings (12.8 and newer; driver 570 and newer)."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from detshare.ctl.checkpoint.gpumap import raw

__all__ = ["Calls", "Failed", "Missing", "State", "absent"]

MODULE: Final = "cuda.bindings.driver"
NOT_READY: Final = 600
_MEANS: Final = {
    1: "it has no CUDA context",
    3: "libcuda is not initialised",
    NOT_READY: "its work did not end in time",
    401: "another tool is about to checkpoint or restore it",
    801: "the driver cannot checkpoint what it uses, such as IPC memory or MPS",
    2: "the GPU has no room for it",
}
"""CUresult in words, as the driver's reference documents these calls; any other by its name"""
_PAIRS: Final = (
    "the driver takes no such pairs of GPUs: it restores onto the same chip, and elsewhere only who sees all GPUs of "
    "this machine (without CUDA_VISIBLE_DEVICES, and in no container that has a part of them)"
)


class State(StrEnum):
    """CUprocessState. The last two are of drivers of CUDA 13: a call is under way."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"
    CHECKPOINTING = "checkpointing"
    RESTORING = "restoring"
    NONE = "none"
    """the driver knows no such process"""


_STATES: Final = tuple(State)[:6]


class Missing(Exception):
    """The driver way cannot be had here; the text says why and what to do."""


class Failed(Exception):
    """The driver refused a call. `status`: its CUresult."""

    def __init__(self, call: str, status: int, name: str, means: str = "") -> None:
        super().__init__(f"{means or _MEANS.get(status, name)} ({call}: {name})")
        self.status, self.name = status, name


def absent() -> str:
    """Why the driver way cannot be had in this Python; empty where its module is there. Imports nothing."""
    try:
        found = importlib.util.find_spec(MODULE) is not None
    except ImportError:
        found = False
    if found:
        return ""
    return f"cuda-bindings is not installed for {sys.executable}: pip install 'detshare[checkpoint]', or cuda-bindings"


class Calls:
    """Initialises libcuda in this process, without a context. Missing."""

    def __init__(self) -> None:
        if why := absent():
            raise Missing(why)
        self._driver: Any = importlib.import_module(MODULE)
        for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock"):
            if not hasattr(self._driver, f"cuCheckpointProcess{name}"):
                raise Missing("this cuda-bindings has no cuCheckpointProcess*: install 12.8 or newer")
        self._call("cuInit", 0)

    def _call(self, name: str, *args: object) -> tuple[Any, ...]:
        """What it returned behind its status. Failed, Missing."""
        try:
            status, *values = getattr(self._driver, name)(*args)
        except RuntimeError as error:  # no libcuda, or one without that function
            text = f"the driver has no {name} ({' '.join(str(error).split())[:200]}): it takes 570 or newer"
            raise Missing(text) from error
        if int(status):
            raise Failed(name, int(status), getattr(status, "name", str(int(status))))
        return tuple(values)

    def state(self, pid: int) -> State:
        """How a process stands; NONE where the driver has none of that PID. Failed, Missing."""
        try:
            (state,) = self._call("cuCheckpointProcessGetState", pid)
        except Failed as error:
            if error.status == 1:
                return State.NONE
            raise
        number = int(state)
        return _STATES[number] if number < len(_STATES) else State.FAILED

    def lock(self, pid: int, timeout_ms: int) -> None:
        """From now on its calls of CUDA wait; what it launched before ends first, in so many milliseconds at most."""
        args = self._driver.CUcheckpointLockArgs()
        args.timeoutMs = max(1, timeout_ms)  # 0 would be without end
        self._call("cuCheckpointProcessLock", pid, args)

    def checkpoint(self, pid: int) -> None:
        """Its GPU memory goes into its own host memory. It is locked."""
        self._call("cuCheckpointProcessCheckpoint", pid, None)

    def restore(self, pid: int, mapping: Any = None) -> None:
        """And back, onto the same GPUs, or as `mapping` says; it is locked afterwards."""
        try:
            self._call("cuCheckpointProcessRestore", pid, mapping)
        except Failed as error:
            if mapping is None or error.status != 1:
                raise
            raise Failed("cuCheckpointProcessRestore", 1, error.name, _PAIRS) from None

    def mapping(self, pairs: Sequence[str]) -> Any:
        """Pairs OLD=NEW of GPUs, as `restore` takes them (driver 580 and newer). Missing."""
        if not hasattr(self._driver, "CUcheckpointGpuPair"):
            raise Missing("this cuda-bindings restores onto the same GPU only: install 13.0 or newer")
        args, made = self._driver.CUcheckpointRestoreArgs(), []
        for old, _, new in (pair.partition("=") for pair in pairs):
            pair = self._driver.CUcheckpointGpuPair()
            pair.oldUuid, pair.newUuid = self._uuid(old), self._uuid(new)
            made.append(pair)
        args.gpuPairs, args.gpuPairsCount = made, len(made)
        return args

    def _uuid(self, name: str) -> Any:
        made = self._driver.CUuuid()
        ctypes.memmove(made.getPtr(), raw(name), 16)  # its bytes cannot be set
        return made

    def unlock(self, pid: int) -> None:
        """Its calls go on."""
        self._call("cuCheckpointProcessUnlock", pid, None)
