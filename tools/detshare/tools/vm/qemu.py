# SPDX-License-Identifier: Apache-2.0
"""QEMU's command line, and the QEMU process with one socket for each of the guest's channels."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detshare.tools.vm import emulator, trixie
from detshare.tools.vm.forward import Forwarding, Helper
from detshare.tools.vm.kernels import DEBUG, Kernel, bootable

# in the order of the guest's ports 1, 2, 3; the kernel's log is the serial port
PORTS = ("control", "out", "err")
# Devices interrupt by pin: without vectors they have no MSI-X. QEMU 10.0 with two CPUs has ended itself while the
# kernel wrote into a device's table of vectors (msix_table_mmio_write: Assertion).
_NO_MSIX = "vectors=0"


@dataclass(frozen=True)
class Machine:
    """The hardware. `reserved`: a memmap= that keeps RAM from the kernel, for the fake GPUs' registers.

    `tsc_khz`: rate of the CPU's time stamp counter; None: the guest finds out by itself.
    """

    memory: int
    cpus: int
    shares: tuple[Path, ...] = ()
    reserved: str = ""
    tty: bool = False
    tsc_khz: int | None = None
    forwarding: Forwarding | None = None
    disk: Path | None = None
    """its image; what the guest writes there is forgotten"""


class Qemu:
    """A running guest. `channels` are the host's ends: log, control, out, err."""

    def __init__(self, kernel: Kernel, image: Path, machine: Machine) -> None:
        names = ("log", *PORTS)
        self._helper = Helper(machine.forwarding) if machine.forwarding is not None else None
        self.helper_said = ""
        pairs = {name: socket.socketpair() for name in names}
        self.channels = {name: pair[0] for name, pair in pairs.items()}
        far = {name: pair[1].fileno() for name, pair in pairs.items()}
        helper = self._helper.socket.fileno() if self._helper is not None else None
        try:
            self.process = subprocess.Popen(
                arguments(kernel, image, machine, far, helper),
                stdin=None if machine.tty else subprocess.DEVNULL,
                stdout=None if machine.tty else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[*far.values(), *([] if helper is None else [helper])],
                # Ctrl-C is for us: we end the guest in our own order
                start_new_session=not machine.tty,
            )
        finally:
            for pair in pairs.values():
                pair[1].close()
            if self._helper is not None:
                self._helper.started()

    def end(self) -> str:
        """Ends the guest if it still runs; what QEMU itself complained of."""
        if self.process.poll() is None:
            self.process.kill()
        _, complaint = self.process.communicate()
        for channel in self.channels.values():
            channel.close()
        if self._helper is not None:
            self.helper_said = self._helper.end()
        return str(complaint.decode(errors="replace").strip())

    @property
    def aborted(self) -> bool:
        """QEMU has ended itself, by an assertion say: no doing of the guest's, nor of ours."""
        return self.process.poll() == -signal.SIGABRT


def arguments(
    kernel: Kernel, image: Path, machine: Machine, sockets: dict[str, int], helper: int | None = None
) -> list[str]:
    """The whole command line. KVM is never asked for: the bed must behave alike where there is none.

    `helper`: the descriptor of a socket to a forwarding helper.

    `-cpu max` has SMAP, so that a module which reads a program's memory by mistake faults as on real machines.
    """
    append = [
        "console=ttyS0",
        "loglevel=5",  # warnings and worse while booting: the serial line is slow
        "printk.devkmsg=on",
        "panic=-1",  # with -no-reboot: a panic ends QEMU at once
        "oops=panic",
        "tsc=reliable",
        "nokaslr",
        "audit=0",
        "random.trust_cpu=on",
        "mitigations=off",
        "nmi_watchdog=0",
        # the host's CPUs may be busy: a guest that waits for them is no lockup
        "watchdog_thresh=60",
        "rcupdate.rcu_cpu_stall_timeout=120",
    ]
    if kernel.series == DEBUG:
        append.append("kasan_multi_shot")  # a report is a fault of the run, but the ones after it may tell more
    if machine.tsc_khz is not None:
        append.append(f"tsc_early_khz={machine.tsc_khz}")
    if machine.reserved:
        append.append(f"memmap={machine.reserved}")
    command = [
        # the guest ends when we do, however we end
        *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
        *(*(emulator.command() if helper is None else trixie.command()), "-accel", "tcg,thread=multi", "-cpu", "max"),
        *(
            "-machine",
            "q35" if helper is None else "q35,memory-backend=ram",
            "-smp",
            str(machine.cpus),
            "-m",
            f"{machine.memory}M",
        ),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none"),
        *("-kernel", str(bootable(kernel)), "-initrd", str(image), "-append", " ".join(append)),
        *("-device", f"virtio-rng-pci,{_NO_MSIX}", "-device", f"virtio-serial-pci,{_NO_MSIX}"),
    ]
    if helper is not None:
        command += forwarding(machine.memory, f"fd={helper}")
    for name, number in sockets.items():
        command += ["-chardev", f"socket,id={name},fd={number}"]
    command += ["-serial", "chardev:log"]
    for nr, name in enumerate(PORTS, 1):
        command += ["-device", f"virtserialport,chardev={name},name=detshare.{name},nr={nr}"]
    if machine.disk is not None:
        # without a lock: guests beside each other may have the same image, none of them changes it
        command += ["-drive", f"id=disk,file={machine.disk},format=raw,if=none,snapshot=on,file.locking=off"]
        command += ["-device", f"virtio-blk-pci,drive=disk,{_NO_MSIX}"]
    if machine.tty:
        command += ["-chardev", "stdio,id=tty,signal=off", "-device", "virtconsole,chardev=tty"]
    command += _filesystem("host", Path("/"), read_only=True)
    for nr, path in enumerate(machine.shares):
        command += _filesystem(f"share{nr}", path, read_only=False)
    return command


def forwarding(memory: int, channel: str) -> Sequence[str]:
    """The device whose calls a helper serves, at the other end of a socket (QEMU's words), and RAM that it can see."""
    return (
        *("-object", f"memory-backend-memfd,id=ram,size={memory}M,share=on"),
        *("-chardev", f"socket,id=nvfwd,{channel}"),
        # 38: an id that QEMU has a name for, and no Linux a driver
        # vq_size: the most that QEMU has; each question for events keeps two entries until it is answered
        *("-device", "vhost-user-test-device-pci,chardev=nvfwd,virtio-id=38,num_vqs=1,vq_size=1024,config_size=60"),
    )


def _filesystem(tag: str, path: Path, *, read_only: bool) -> Sequence[str]:
    mode = ",readonly=on" if read_only else ""
    return (
        *("-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{mode}"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag},{_NO_MSIX}"),
    )
