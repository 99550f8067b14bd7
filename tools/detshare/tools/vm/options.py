# SPDX-License-Identifier: Apache-2.0
"""What one run of a guest is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from detshare.tools.vm import kernels
from detshare.tools.vm.errors import VmError

FORWARD = "forward"
DRIVERS = ("sim", "nvidia-535", "nvidia-550", FORWARD, "none")
ORDERS = ("driver-first", "module-first", "by-hand")
MAX_GPUS = 4
MEMORY = range(256, (1 << 20) + 1)
"""MiB of RAM"""
CPUS = range(1, 256)
"""as many as QEMU's machine has without an interrupt remapper"""


def here() -> Path:
    """The folder that we are in: the command's, too."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise VmError(
            "start in this folder", "the folder that you are in is gone", "cd to one that is there"
        ) from error


@dataclass(frozen=True)
class Options:
    """Everything about one run. Times in seconds, memory in MiB.

    `driver`: a name of DRIVERS, or a folder with the modules of a genuine driver, built for the kernel.

    `timeout`: how long the guest may do nothing, all in all; between two of its words it may work for three times as
    long. What this machine does instead does not count.

    `order`: what is inserted first of driver and detshare.ko; by-hand: neither, the command calls vm-load.
    `disk`: an image with a file system, /dev/vda in the guest, for `vm-root`; what is written there is forgotten.

    `environment` is the command's whole environment, but for PATH's last entry and DETSHARE_VM_*, which are added.
    """

    command: tuple[str, ...]
    kernel: str = kernels.DEFAULT
    driver: str = "none"
    gpus: int = 1
    load: bool = False
    order: str = "driver-first"
    mounts: tuple[Path, ...] = ()
    disk: Path | None = None
    timeout: float = 600.0
    memory: int = 2048
    cpus: int = 2
    cwd: Path = field(default_factory=here)
    environment: tuple[tuple[str, str], ...] = ()
    driver_options: tuple[str, ...] = ()
    module_options: tuple[str, ...] = ()
    tty: bool = False
    recording: Path | None = None

    def check(self) -> None:
        """VmError, usage, for what cannot be meant."""
        if self.kernel not in kernels.NAMES:
            raise VmError(
                f"run kernel {self.kernel}", "unknown series", f"choose one of {', '.join(kernels.NAMES)}", usage=True
            )
        if not 1 <= self.gpus <= MAX_GPUS:
            raise VmError(
                f"give the guest {self.gpus} GPUs", f"1 to {MAX_GPUS} can be had", "choose --gpus", usage=True
            )
        self.check_hardware()
        if not self.driver:
            raise VmError("load a driver", "its name is empty", f"choose one of {', '.join(DRIVERS)}", usage=True)
        if self.driver not in DRIVERS and not Path(self.driver).is_dir():
            raise VmError(
                f"load {self.driver}",
                "it is neither a driver's name nor a folder",
                f"choose one of {', '.join(DRIVERS)}, or name a folder with nvidia.ko and nvidia-uvm.ko",
                usage=True,
            )
        for path in self.mounts:
            if not path.is_dir():
                raise VmError(f"mount {path}", "it is no folder", "make the folder or name another", usage=True)
            if path.resolve() == Path("/"):
                raise VmError("mount /", "the guest could change all of this machine", "name a folder", usage=True)
            if any(letter in str(path) for letter in ",\n"):
                raise VmError(f"mount {path}", "QEMU takes no comma in a path", "mount another folder", usage=True)
        if self.disk is not None and not self.disk.is_file():
            raise VmError(f"give the guest the disk {self.disk}", "it is no file", "name an image", usage=True)
        if self.disk is not None and any(letter in str(self.disk) for letter in ",\n"):
            raise VmError(f"give the guest {self.disk}", "QEMU takes no comma in a path", "move the image", usage=True)
        if self.driver_options and self.driver == "none":
            raise VmError(
                "give the driver options", "the run has no driver", "choose --driver, or leave them out", usage=True
            )
        if self.recording is not None and self.driver != FORWARD:
            raise VmError("answer from a recording", "the driver is another", "add --driver forward", usage=True)
        if self.module_options and not self.load:
            raise VmError("give detshare.ko options", "the run does not load it", "add --load", usage=True)
        if not self.timeout > 0:  # NaN neither
            raise VmError(f"stop after {self.timeout} s", "there is no time to run", "choose --timeout", usage=True)

    def check_hardware(self) -> None:
        """The part of check() that a packed guest has too."""
        for option, given, can, what in (
            ("--mem", self.memory, MEMORY, "MiB of RAM"),
            ("--cpus", self.cpus, CPUS, "CPUs"),
        ):
            if given not in can:
                raise VmError(
                    f"give the guest {given} {what}",
                    f"{can[0]} to {can[-1]} can be had",
                    f"choose {option}",
                    usage=True,
                )
