# SPDX-License-Identifier: Apache-2.0
"""A stand-in for cuda.bindings.driver: the calls of cuCheckpointProcess*, strict about what it is given.

Names, types, signatures and enumerations are those of cuda-bindings 13.5 (its own were looked at). States and which
error follows from which are those of the driver's reference: pairs name every GPU that was checkpointed, and a GPU's
memory comes back on the same chip. Reported by others: every GPU counts as checkpointed that the process could see,
used or not, and where that is not all of the machine's no pairs are taken. Assumed, for no GPU confirmed it: a process
without a context is INVALID_VALUE; a restore without room is OUT_OF_MEMORY and changes nothing; a restore under
CUDA_VISIBLE_DEVICES is INVALID_VALUE, and so is one whose pairs are wrong, name a GPU that is not there, or bring two
to one place.

A process is a file PID in the folder $STANDIN_CHECKPOINTS, JSON: state, and how it behaves: busy (its work does not
end), refuse (no checkpoint of it), full (no room to come back; or the UUID of the GPU that has none), seconds (each
copy), stops (the call before which it stands still, or `restored`), gpu (the UUID of its GPU), sees (the UUIDs of those
that it could use, unless it is all). `calls` there lists all calls, `gpus` the chip of each UUID, JSON.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["STANDIN_CHECKPOINTS"])


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_NOT_SUPPORTED = 801


class CUprocessState(enum.IntEnum):
    CU_PROCESS_STATE_RUNNING = 0
    CU_PROCESS_STATE_LOCKED = 1
    CU_PROCESS_STATE_CHECKPOINTED = 2
    CU_PROCESS_STATE_FAILED = 3


class CUcheckpointLockArgs:
    def __init__(self) -> None:
        self.timeoutMs = 0


class CUcheckpointCheckpointArgs:
    pass


class CUuuid:
    def __init__(self) -> None:
        self._raw = ctypes.create_string_buffer(16)

    @property
    def bytes(self) -> bytes:
        return self._raw.raw

    def getPtr(self) -> int:
        return ctypes.addressof(self._raw)


class CUcheckpointGpuPair:
    def __init__(self) -> None:
        self.oldUuid, self.newUuid = CUuuid(), CUuuid()


class CUcheckpointRestoreArgs:
    def __init__(self) -> None:
        self.gpuPairs: list[CUcheckpointGpuPair] = []
        self.gpuPairsCount = 0


class CUcheckpointUnlockArgs:
    pass


_ready = False
RUNNING, LOCKED, CHECKPOINTED, FAILED = CUprocessState


def _note(name: str, pid: int) -> None:
    with open(FOLDER / "calls", "a") as file:
        file.write(f"{name} {pid}\n")


def _read(pid: object) -> dict[str, Any] | CUresult:
    if not isinstance(pid, int):
        raise TypeError("an integer is required")
    if not _ready:
        return CUresult.CUDA_ERROR_NOT_INITIALIZED
    try:
        os.kill(pid, 0)
        return json.loads((FOLDER / str(pid)).read_text())
    except (OSError, OverflowError):
        return CUresult.CUDA_ERROR_INVALID_VALUE


def _write(pid: int, state: CUprocessState, **more: str) -> None:
    data = json.loads((FOLDER / str(pid)).read_text()) | {"state": int(state)} | more
    draft = FOLDER / f"{pid}.new"
    draft.write_text(json.dumps(data))
    draft.replace(FOLDER / str(pid))


def _check(args: object, kind: type) -> None:
    if args is not None and not isinstance(args, kind):
        raise TypeError(f"Argument 'args' has incorrect type (expected {kind.__name__}, got {type(args).__name__})")


def _change(name: str, pid: int, args: object, kind: type, before: CUprocessState) -> dict[str, Any] | CUresult:
    _check(args, kind)
    found = _read(pid)
    _stand(pid, name)
    _note(name, pid)
    if not isinstance(found, CUresult) and found["state"] != before:
        return CUresult.CUDA_ERROR_ILLEGAL_STATE
    return found


def _stand(pid: int, name: str) -> None:
    while not isinstance(found := _read(pid), CUresult) and found.get("stops") == name:
        time.sleep(0.005)


def cuInit(flags: int) -> tuple[CUresult]:
    global _ready
    if flags:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    _ready = True
    return (CUresult.CUDA_SUCCESS,)


def cuCheckpointProcessGetState(pid: int) -> tuple[CUresult, CUprocessState | None]:
    if os.environ.get("STANDIN_CHECKPOINTS_LACKS") == "cuCheckpointProcessGetState":  # as the bindings say it
        raise RuntimeError('Function "cuCheckpointProcessGetState" not found')
    found = _read(pid)
    if isinstance(found, CUresult):
        return found, None
    return CUresult.CUDA_SUCCESS, CUprocessState(found["state"])


def cuCheckpointProcessLock(pid: int, args: CUcheckpointLockArgs | None) -> tuple[CUresult]:
    found = _change("lock", pid, args, CUcheckpointLockArgs, RUNNING)
    if isinstance(found, CUresult):
        return (found,)
    until = time.monotonic() + args.timeoutMs / 1000 if args is not None and args.timeoutMs else float("inf")
    while json.loads((FOLDER / str(pid)).read_text()).get("busy"):
        if time.monotonic() > until:
            return (CUresult.CUDA_ERROR_NOT_READY,)
        time.sleep(0.005)
    _write(pid, LOCKED)
    return (CUresult.CUDA_SUCCESS,)


def cuCheckpointProcessCheckpoint(pid: int, args: CUcheckpointCheckpointArgs | None) -> tuple[CUresult]:
    found = _change("checkpoint", pid, args, CUcheckpointCheckpointArgs, LOCKED)
    if isinstance(found, CUresult):
        return (found,)
    if found.get("refuse"):
        return (CUresult.CUDA_ERROR_NOT_SUPPORTED,)
    time.sleep(found.get("seconds", 0))
    _write(pid, CHECKPOINTED)
    return (CUresult.CUDA_SUCCESS,)


def cuCheckpointProcessRestore(pid: int, args: CUcheckpointRestoreArgs | None) -> tuple[CUresult]:
    found = _change("restore", pid, args, CUcheckpointRestoreArgs, CHECKPOINTED)
    if isinstance(found, CUresult):
        return (found,)
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    gpu = _place(found, args)
    if gpu is None:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    if found.get("full") in (True, gpu):
        return (CUresult.CUDA_ERROR_OUT_OF_MEMORY,)
    time.sleep(found.get("seconds", 0))
    _write(pid, LOCKED, gpu=gpu)
    _stand(pid, "restored")
    return (CUresult.CUDA_SUCCESS,)


def _place(found: dict[str, Any], args: CUcheckpointRestoreArgs | None) -> str | None:
    """Where it comes back; None where its pairs are refused."""
    if args is None or not args.gpuPairsCount:
        return str(found.get("gpu", ""))
    chips = json.loads((FOLDER / "gpus").read_text())
    pairs = args.gpuPairs[: args.gpuPairsCount]
    places = {_name(pair.oldUuid): _name(pair.newUuid) for pair in pairs}
    once = len(set(places.values())) == len(places) == len(pairs)
    fits = all(old in chips and chips[old] == chips.get(new) for old, new in places.items())
    whole = set(places) >= set(chips) == set(found.get("sees", chips))
    return places[found["gpu"]] if once and fits and whole else None


def _name(gpu: CUuuid) -> str:
    return f"GPU-{uuid.UUID(bytes=gpu.bytes)}"


def cuCheckpointProcessUnlock(pid: int, args: CUcheckpointUnlockArgs | None) -> tuple[CUresult]:
    found = _change("unlock", pid, args, CUcheckpointUnlockArgs, LOCKED)
    if isinstance(found, CUresult):
        return (found,)
    _write(pid, RUNNING)
    return (CUresult.CUDA_SUCCESS,)
