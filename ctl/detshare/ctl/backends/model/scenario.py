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


def recorded(name: str) -> list[list[int]]:
    """The objects of a recorded tree."""
    text = files("detshare.ctl.backends.model").joinpath(name).read_text(encoding="utf-8")
    rows: list[list[int]] = json.loads(text)["objects"]
    return rows


def alloc(
    driver: ModelDriver, process: ModelProcess, file: OpenFile, client: int, row: Sequence[int], base: int, gpu: int
) -> None:
    """Makes the object of a recorded row; ValueError where the driver refuses it."""
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
        alloc(driver, process, file, client, (device, 0, driver.abi.klass("NV01_DEVICE_0"), 0), NVML_BASE, gpu)
        alloc(
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
    for row in recorded("tree-cuda.json"):
        alloc(driver, process, file, handle, row, base, gpu)
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


def ranks(driver: ModelDriver, command: str = "python3 ddp.py", *, count: int = 2) -> list[ModelProcess]:
    """Programs of one job, a GPU each, after a first collective: each has its peers' buffers as objects of its own."""
    processes = [cuda_process(driver, command, gpu=gpu) for gpu in range(count)]
    for process in processes:
        for gpu, peer in enumerate(processes):
            if peer is not process:
                reach(driver, process, peer, gpu)
    return processes


def reach(driver: ModelDriver, process: ModelProcess, peer: ModelProcess, gpu: int) -> None:
    """Let `process` use a new buffer of `peer`, which computes on GPU number `gpu`."""
    klass, (file, client), (theirs, giver) = driver.abi.klass, _control(driver, process), _control(driver, peer)
    buffer = _free(driver, giver)
    own = next(h for h, node in driver.rm.clients[giver].objects.items() if node.klass == klass("NV01_DEVICE_0"))
    given = (
        driver.rm.alloc(theirs, giver, own, buffer, klass("NV01_MEMORY_LOCAL_USER"), gpu=gpu)[0],
        driver.rm.share(theirs, giver, buffer),
    )
    number = _free(driver, client)
    taken = (
        driver.rm.alloc(file, client, client, number, klass("NV01_DEVICE_0"), gpu=gpu)[0],
        driver.rm.alloc(file, client, number, number + 1, klass("NV20_SUBDEVICE_0"), gpu=gpu)[0],
        driver.rm.alloc(file, client, client, number + 2, klass("NV50_P2P"))[0],
        driver.rm.dup(file, client, number, number + 3, giver, buffer)[0],
    )
    answers = [driver.abi.status_name(status) for status in (*given, *taken)]
    if set(answers) != {"NV_OK"}:
        raise ValueError(f"{process.id.pid} cannot reach {peer.id.pid}: {answers}")


def _free(driver: ModelDriver, client: int) -> int:
    """The handle after the last that libcuda gave."""
    return max(handle for handle in driver.rm.clients[client].objects if handle < client) + 1


def _control(driver: ModelDriver, process: ModelProcess) -> tuple[OpenFile, int]:
    """Its first descriptor of /dev/nvidiactl, and the client on it."""
    file = next(file for _, file in sorted(process.fds.items()) if file.is_control)
    return file, driver.rm.clients_of(file)[0].handle


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
