# SPDX-License-Identifier: Apache-2.0
"""Programs and machines of the model that only tests meet."""

from __future__ import annotations

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import NEVER, Workload
from detshare.ctl.core.driver import Gpu

_SYSTEM_MEMORY = 0x3E
_LOCAL_MEMORY = 0x40


def second_gpu(minor: int = 1) -> Gpu:
    """Another H100 of the same machine."""
    return Gpu(f"GPU-{minor:08x}-5005-67c3-4026-6cc0bb057439", minor, H100.name, f"0000:{6 + minor:02x}:00.0", 80 << 30)


class Endless(Workload):
    """One kernel that never ends."""

    def start(self, now: int) -> None:
        self.submit(now, NEVER)

    def on_wake(self, now: int) -> None:
        raise AssertionError("an endless kernel is never woken")


def nvml_process(driver: ModelDriver, command: str = "nvidia-smi dmon") -> ModelProcess:
    """A process that only reads NVML."""
    process = driver.machine.spawn(command)
    scenario.nvml_client(driver, process)
    return process


def multi_gpu(driver: ModelDriver, command: str = "torchrun ddp.py") -> ModelProcess:
    """A process with a context on every GPU, all under one client, as libcuda does it."""
    process = driver.machine.spawn(command)
    _, file, client = scenario.new_client(driver, process)
    for gpu in range(len(driver.gpu_models)):
        scenario.make_context(driver, process, gpu=gpu, base=scenario.CUDA_BASE + 0x400 * gpu, client=(file, client))
    scenario.nvml_client(driver, process)
    return process


def mps_server(driver: ModelDriver, *, gpu: int = 0) -> ModelProcess:
    """nvidia-cuda-mps-server: the compute group that its clients share, with one channel of its own."""
    process = driver.machine.spawn("nvidia-cuda-mps-server")
    _, file, client = scenario.new_client(driver, process)
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
        scenario.alloc(driver, process, file, client, row, scenario.CUDA_BASE, gpu)
    for handle in (0x15, 0x41, 0x57):
        driver.rm.share(file, client, scenario.CUDA_BASE + handle)
    process.comm = "nvidia-cuda-mps"
    process.memory[driver.gpu_models[gpu].info.uuid] = 30 << 20
    return process


def mps_control(driver: ModelDriver) -> ModelProcess:
    """nvidia-cuda-mps-control: a client with a device and no group."""
    process = driver.machine.spawn("nvidia-cuda-mps-control -d")
    _, file, client = scenario.new_client(driver, process)
    scenario.alloc(
        driver, process, file, client, (0x02, 0, driver.abi.klass("NV01_DEVICE_0"), 0), scenario.CUDA_BASE, 0
    )
    return process


def mps_client(
    driver: ModelDriver, server: ModelProcess, command: str = "python3 infer.py", *, gpu: int = 0
) -> ModelProcess:
    """A client of `server` with the recorded tree: its compute group is a duplicate of the server's."""
    giver = next(c.handle for f in server.fds.values() for c in driver.rm.clients_of(f))
    process = driver.machine.spawn(command)
    _, file, client = scenario.new_client(driver, process)
    for row in scenario.recorded("tree-mps-client.json"):
        handle, parent, klass, _, source = row
        if klass:
            scenario.alloc(driver, process, file, client, row, scenario.CUDA_BASE, gpu)
            continue
        status, _ = driver.rm.dup(
            file, client, scenario.CUDA_BASE + parent, scenario.CUDA_BASE + handle, giver, scenario.CUDA_BASE + source
        )
        if status:
            raise ValueError(f"cannot duplicate {source:#x}: {driver.abi.status_name(status)}")
    process.open(f"/dev/nvidia{driver.gpu_models[gpu].info.minor}")
    process.memory[driver.gpu_models[gpu].info.uuid] = 1 << 30
    return process
