# SPDX-License-Identifier: Apache-2.0
"""What NVML says that a process has of the GPUs."""

from __future__ import annotations

import pynvml

__all__ = ["used_by"]


def used_by(pid: int) -> int | None:
    """Bytes over all GPUs; 0 where other processes are listed, None where nobody is, or NVML is not there.

    In a container NVML may know processes by other numbers, or none at all.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        listed = [each for handle in handles for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    if not listed:
        return None
    return sum(int(each.usedGpuMemory or 0) for each in listed if each.pid == pid)
