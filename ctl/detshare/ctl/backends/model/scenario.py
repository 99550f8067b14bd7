# SPDX-License-Identifier: Apache-2.0
"""Ready-made programs: what a CUDA process, an NVML reader or MPS looks like to the driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.objects import CONTROL_PATH, OpenFile
from detshare.ctl.backends.model.process import ModelProcess

CUDA_BASE = 0x5C000000
"""where libcuda's object handles begin"""
NVML_BASE = 0xA55A0000
_SYSTEM_MEMORY = 0x3E
_LOCAL_MEMORY = 0x40


def _recorded(name: str) -> list[list[int]]:
    text = files("detshare.ctl.backends.model").joinpath(name).read_text(encoding="utf-8")
    rows: list[list[int]] = json.loads(text)["objects"]
    return rows


def _alloc(
    driver: ModelDriver, process: ModelProcess, file: OpenFile, client: int, row: Sequence[int], base: int, gpu: int
) -> None:
    handle, parent, klass, engine = row[:4]
    above = base + parent if parent else client
    status, _ = driver.rm.alloc(file, client, above, base + handle, klass, engine=engine, gpu=gpu, pid=process.id.pid)
    if status:
        raise ValueError(f"cannot make object {handle:#x} of class {klass:#x}: {driver.abi.status_name(status)}")


def new_client(driver: ModelDriver, process: ModelProcess) -> tuple[int, OpenFile, int]:
    """Open /dev/nvidiactl in `process` and make a client on it: (descriptor, file, client handle)."""
    fd = process.open(CONTROL_PATH)
    file = process.fds[fd]
    _, client = driver.rm.alloc(file, 0, 0, 0, driver.abi.klass("NV01_ROOT_CLIENT"), pid=process.id.pid)
    return fd, file, client


def nvml_client(driver: ModelDriver, process: ModelProcess) -> int:
    """NVML inside `process`: a descriptor with a client that has a device and subdevice. Returns the client."""
    _, file, client = new_client(driver, process)
    for gpu in range(len(driver.gpu_models)):
        device = 0x20 + 0x10 * gpu
        _alloc(driver, process, file, client, (device, 0, driver.abi.klass("NV01_DEVICE_0"), 0), NVML_BASE, gpu)
        _alloc(
            driver, process, file, client, (device + 1, device, driver.abi.klass("NV20_SUBDEVICE_0"), 0), NVML_BASE, gpu
        )
    return client


def make_context(
    driver: ModelDriver,
    process: ModelProcess,
    *,
    gpu: int = 0,
    base: int = CUDA_BASE,
    memory: int = 1 << 30,
    client: tuple[OpenFile, int] | None = None,
) -> int:
    """What creating a CUDA context adds to `process`: the recorded tree, object for object.

    Without `client` on a descriptor of its own. Returns the client handle.
    """
    if client is None:
        _, file, handle = new_client(driver, process)
    else:
        file, handle = client
    for row in _recorded("tree-cuda.json"):
        _alloc(driver, process, file, handle, row, base, gpu)
    uuid = driver.gpu_models[gpu].info.uuid
    process.open(f"/dev/nvidia{driver.gpu_models[gpu].info.minor}")
    process.memory[uuid] = process.memory.get(uuid, 0) + memory
    return handle


def cuda_process(
    driver: ModelDriver,
    command: str = "python3 train.py",
    *,
    gpu: int = 0,
    pid: int | None = None,
    base: int = CUDA_BASE,
    memory: int = 1 << 30,
) -> ModelProcess:
    """A PyTorch-like process: one context, 4 groups, 20 channels, and NVML's second descriptor.

    `base` other than CUDA_BASE is the program of another runtime, whose handles cannot be guessed.
    """
    process = driver.machine.spawn(command, pid=pid)
    make_context(driver, process, gpu=gpu, base=base, memory=memory)
    nvml_client(driver, process)
    return process


def nvml_process(driver: ModelDriver, command: str = "nvidia-smi dmon") -> ModelProcess:
    """A process that only reads NVML."""
    process = driver.machine.spawn(command)
    nvml_client(driver, process)
    return process


def opened_only(driver: ModelDriver, command: str = "python3 -c 'import torch'") -> ModelProcess:
    """A process that opened /dev/nvidiactl and made a client, but no context yet."""
    process = driver.machine.spawn(command)
    new_client(driver, process)
    return process


def two_contexts(driver: ModelDriver, command: str = "python3 two.py", *, gpu: int = 0) -> ModelProcess:
    """A process with two contexts on one GPU, each with its own client."""
    process = driver.machine.spawn(command)
    make_context(driver, process, gpu=gpu)
    make_context(driver, process, gpu=gpu)
    return process


def multi_gpu(driver: ModelDriver, command: str = "torchrun ddp.py") -> ModelProcess:
    """A process with a context on every GPU, all under one client, as libcuda does it."""
    process = driver.machine.spawn(command)
    _, file, client = new_client(driver, process)
    for gpu in range(len(driver.gpu_models)):
        make_context(driver, process, gpu=gpu, base=CUDA_BASE + 0x400 * gpu, client=(file, client))
    nvml_client(driver, process)
    return process


def mps_server(driver: ModelDriver, *, gpu: int = 0) -> ModelProcess:
    """nvidia-cuda-mps-server: the compute group that its clients share, with one channel of its own."""
    process = driver.machine.spawn("nvidia-cuda-mps-server")
    _, file, client = new_client(driver, process)
    klass = driver.abi.klass
    compute, share = klass("KEPLER_CHANNEL_GROUP_A"), klass("FERMI_CONTEXT_SHARE_A")
    channel, copy = klass("HOPPER_CHANNEL_GPFIFO_A"), klass("HOPPER_DMA_COPY_A")
    rows = [
        (0x02, 0, klass("NV01_DEVICE_0"), 0),
        (0x03, 0x02, klass("NV20_SUBDEVICE_0"), 0),
        (0x15, 0x02, compute, 1),
        (0x16, 0x15, share, 0),
        (0x1C, 0x15, channel, 0),
        (0x1D, 0x1C, klass("HOPPER_COMPUTE_A"), 1),
        (0x1E, 0x1C, copy, 10),
        (0x41, 0x02, _SYSTEM_MEMORY, 0),
        (0x57, 0x02, _LOCAL_MEMORY, 0),
    ]
    for number in range(3):
        group, engine = 0x20 + 9 * number, 11 + number
        rows.append((group, 0x02, compute, engine))
        for index in range(4):
            rows.append((group + 1 + 2 * index, group, channel, engine))
            rows.append((group + 2 + 2 * index, group + 1 + 2 * index, copy, engine))
    for row in rows:
        _alloc(driver, process, file, client, row, CUDA_BASE, gpu)
    for handle in (0x15, 0x41, 0x57):
        driver.rm.share(file, client, CUDA_BASE + handle)
    process.comm = "nvidia-cuda-mps"
    process.memory[driver.gpu_models[gpu].info.uuid] = 30 << 20
    return process


def mps_control(driver: ModelDriver) -> ModelProcess:
    """nvidia-cuda-mps-control: a client with a device and no group."""
    process = driver.machine.spawn("nvidia-cuda-mps-control -d")
    _, file, client = new_client(driver, process)
    _alloc(driver, process, file, client, (0x02, 0, driver.abi.klass("NV01_DEVICE_0"), 0), CUDA_BASE, 0)
    return process


def mps_client(
    driver: ModelDriver, server: ModelProcess, command: str = "python3 infer.py", *, gpu: int = 0
) -> ModelProcess:
    """A client of `server` with the recorded tree: its compute group is a duplicate of the server's."""
    giver = next(c.handle for f in server.fds.values() for c in driver.rm.clients_of(f))
    process = driver.machine.spawn(command)
    _, file, client = new_client(driver, process)
    for row in _recorded("tree-mps-client.json"):
        handle, parent, klass, _, source = row
        if klass:
            _alloc(driver, process, file, client, row, CUDA_BASE, gpu)
            continue
        status, _ = driver.rm.dup(file, client, CUDA_BASE + parent, CUDA_BASE + handle, giver, CUDA_BASE + source)
        if status:
            raise ValueError(f"cannot duplicate {source:#x}: {driver.abi.status_name(status)}")
    process.open(f"/dev/nvidia{driver.gpu_models[gpu].info.minor}")
    process.memory[driver.gpu_models[gpu].info.uuid] = 1 << 30
    return process
