# SPDX-License-Identifier: Apache-2.0
"""What a run inserts into its guest: a driver, the fake GPUs below a genuine one, detshare.ko. Built if need be."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.vm import builds, checkout, forward, nvidia
from detshare.tools.vm.errors import VmError
from detshare.tools.vm.kernels import Kernel
from detshare.tools.vm.options import DRIVERS, FORWARD, Options

_SPAN = 64  # MiB of registers for each fake GPU; as in tests/fakegpu
_ABOVE = 64  # MiB of RAM above them, for the initramfs and the firmware's tables
_LEAST = 512  # MiB of RAM below them
# QEMU's q35 machine: with so many MiB or more, RAM below 4 GiB ends at 2 GiB
_SPLIT, _LOW = 2816, 2048


@dataclass(frozen=True)
class Loads:
    """Module files, by role; None: this run has none. `needs`: modules of the kernel that the driver depends on.

    `window`: address and size, in MiB, of RAM that the kernel leaves to the fake GPUs.
    """

    driver: Path | None = None
    uvm: Path | None = None
    needs: tuple[str, ...] = ()
    fakegpu: Path | None = None
    module: Path | None = None
    window: tuple[int, int] | None = None
    forwarding: forward.Forwarding | None = None

    @property
    def reserved(self) -> str:
        """The window as the kernel's memmap= wants it, with the margin that tests/fakegpu asks for."""
        return "" if self.window is None else f"{self.window[1] + 2}M${self.window[0] - 1}M"

    def environment(self) -> dict[str, str]:
        """For the command: where the modules are."""
        files = {
            "DETSHARE_VM_DRIVER_KO": self.driver,
            "DETSHARE_VM_UVM_KO": self.uvm,
            "DETSHARE_VM_MODULE_KO": self.module,
        }
        return {name: str(path) for name, path in files.items() if path is not None}

    def settings(self, options: Options) -> dict[str, str]:
        """For the guest's scripts."""
        roles = [role for role, path in (("driver", self.driver), ("module", self.module)) if path is not None]
        if options.order == "module-first":
            roles.reverse()
        # the genuine driver counts PCI functions; the simulated one is told
        driver_options = options.driver_options
        if options.driver == "sim":
            driver_options = (f"gpus={options.gpus}", *driver_options)
        return {
            "LOAD": " ".join(roles),
            "DRIVER_KO": str(self.driver or ""),
            "UVM_KO": str(self.uvm or ""),
            "DRIVER_NEEDS": " ".join(self.needs),
            "DRIVER_OPTIONS": shlex.join(driver_options),
            "FAKEGPU_KO": str(self.fakegpu or ""),
            "WINDOW": f"{self.window[0] << 20:#x}" if self.window is not None else "",
            "MODULE_KO": str(self.module or ""),
            "MODULE_OPTIONS": shlex.join(options.module_options),
        }


def window(memory: int, gpus: int) -> tuple[int, int]:
    """Address and size, in MiB, of the fake GPUs' registers in a guest of so many MiB."""
    size = gpus * _SPAN
    low = memory if memory < _SPLIT else _LOW
    start = (low - _ABOVE) // _SPAN * _SPAN - size
    if start < _LEAST:
        raise VmError(
            f"give {gpus} fake GPUs to a guest with {memory} MiB",
            f"they take {size} MiB of it",
            f"use --mem {_LEAST + size + _ABOVE} or more",
            usage=True,
        )
    return start, size


def check(options: Options) -> None:
    """VmError, usage, for what cannot be meant; before anything is fetched or built."""
    options.check()
    if options.driver in nvidia.BRANCHES:
        nvidia.check(options.driver, options.kernel)
    if options.driver in nvidia.BRANCHES or options.driver not in DRIVERS:
        window(options.memory, options.gpus)
    if options.driver == FORWARD:
        forward.check(options.recording)


def gather(options: Options, kernel: Kernel) -> Loads:
    """The modules that `options` ask for, built for `kernel`."""
    module = _file(builds.build(checkout.MODULE, kernel), "detshare.ko") if options.load else None
    if options.driver in ("sim", FORWARD):
        folder = builds.build(checkout.NVSIM if options.driver == "sim" else checkout.NVFWD, kernel)
        nvidia_ko, uvm_ko = _file(folder, "nvidia.ko"), _file(folder, "nvidia-uvm.ko")
        needs = [each for file in (nvidia_ko, uvm_ko) for each in builds.depends(file) if each != "nvidia"]
        asked = forward.Forwarding(forward.build(), options.recording) if options.driver == FORWARD else None
        return Loads(nvidia_ko, uvm_ko, tuple(needs), None, module, forwarding=asked)
    if options.driver in nvidia.BRANCHES or options.driver not in DRIVERS:
        own = options.driver not in DRIVERS
        genuine = (
            nvidia.given(Path(options.driver).absolute(), kernel) if own else nvidia.driver(options.driver, kernel)
        )
        fake = _file(builds.build(checkout.FAKEGPU, kernel), "fakegpu.ko")
        return Loads(genuine.nvidia, genuine.uvm, genuine.needs, fake, module, window(options.memory, options.gpus))
    return Loads(module=module)


def _file(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.exists():
        raise VmError(f"load {name}", f"the build made none in {folder}", "check the Kbuild's obj-m")
    return file
