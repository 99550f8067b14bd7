# SPDX-License-Identifier: Apache-2.0
"""The calls that detshare.ko makes to steer a program, built by the module's own C code and sent from user space.

`kmod/rm/act.c` is compiled into a library; each step that it builds goes through the program's own descriptor, as root.
"""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from detshare.ctl.abi.versions import Abi, for_version
from detshare.ctl.backends.root.tree import Depth, read_tree
from detshare.ctl.core.driver import Descriptor, DriverError, ProcessId
from detshare.ctl.core.snapshot import Kind, Tsg
from detshare.ctl.rm.client import RmClient
from detshare.ctl.rm.kernel import KernelDriver

__all__ = ["Acts", "ActsError", "Answer", "Raw", "Recorded", "Tenant", "tenant"]

_CORE = Path(__file__).resolve().parents[4] / "kmod" / "rm"
_SOURCES = ("act.c", "abi.c", "tables.c")
_PARAMS = 1040  # RM_STEP_PARAMS_MAX
_CLIENTS = 0x1000  # handles below the newest client that are tried


class ActsError(RuntimeError):
    """The library cannot be built, or a program's objects cannot be found; the text says what to do."""


class _Step(ctypes.Structure):
    """struct rm_step of kmod/rm/act.h."""

    _fields_ = (
        ("client", ctypes.c_uint32),
        ("object", ctypes.c_uint32),
        ("cmd", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("params", ctypes.c_uint8 * _PARAMS),
    )


class _Channel(ctypes.Structure):
    """struct rm_channel."""

    _fields_ = (("client", ctypes.c_uint32), ("channel", ctypes.c_uint32))


@dataclass(frozen=True)
class Answer:
    """What the driver answered to one step, and how long the ioctl took."""

    status: int
    us: float
    params: bytes


class Acts:
    """The library, for the loaded driver's version. Methods build one step each; `Tenant.send` sends it."""

    def __init__(self, version: str, folder: Path) -> None:
        library = folder / "libacts.so"
        flags = ("-shared", "-fPIC", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-pthread")
        sources = [str(_CORE / name) for name in _SOURCES]
        try:
            subprocess.run(["gcc", *flags, "-o", str(library), *sources], check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise ActsError(f"compile {_CORE}/act.c: there is no gcc here; next: apt-get install gcc") from error
        except subprocess.CalledProcessError as error:
            raise ActsError(f"compile {_CORE}/act.c: {error.stderr.strip()}; next: run it from a checkout") from error
        self._library = ctypes.CDLL(str(library))
        self._library.rm_abi_lookup.restype = ctypes.c_void_p
        self._library.rm_act_slice.restype = ctypes.c_uint64
        match = ctypes.c_int()
        self._abi = ctypes.c_void_p(self._library.rm_abi_lookup(version.encode(), ctypes.byref(match)))
        if not self._abi:
            raise ActsError(f"the core has no table for driver {version}; next: see docs/develop/development.md")
        self._recorded = Recorded(for_version(version).table)

    def _step(self, name: str, *words: object) -> _Step:
        step = _Step()
        failed = getattr(self._library, name)(self._abi, *words, ctypes.byref(step))
        if name in ("rm_act_disable", "rm_act_tpc_table") and failed:
            raise ActsError(f"{name} refused its arguments ({failed})")
        return step

    def get_slice(self, client: int, tsg: int) -> _Step:
        return self._step("rm_act_get_slice", ctypes.c_uint32(client), ctypes.c_uint32(tsg))

    def slice_us(self, answer: Answer) -> int:
        """The answer to `get_slice`, microseconds."""
        step = _Step()
        ctypes.memmove(step.params, answer.params, len(answer.params))
        return int(self._library.rm_act_slice(self._abi, ctypes.byref(step)))

    def set_slice(self, client: int, tsg: int, us: int) -> _Step:
        return self._step("rm_act_set_slice", ctypes.c_uint32(client), ctypes.c_uint32(tsg), ctypes.c_uint64(us))

    def set_level(self, client: int, tsg: int, level: int) -> _Step:
        return self._step("rm_act_set_level", ctypes.c_uint32(client), ctypes.c_uint32(tsg), ctypes.c_uint32(level))

    def preempt(self, client: int, tsg: int) -> _Step:
        return self._step("rm_act_preempt", ctypes.c_uint32(client), ctypes.c_uint32(tsg))

    def disable(self, client: int, subdevice: int, channels: Sequence[tuple[int, int]], off: bool) -> _Step:
        """`channels`: (client, channel) pairs of one GPU."""
        pairs = (_Channel * len(channels))(*(_Channel(*pair) for pair in channels))
        words = (ctypes.c_uint32(client), ctypes.c_uint32(subdevice), pairs, ctypes.c_uint(len(channels)))
        return self._step("rm_act_disable", *words, ctypes.c_bool(off))

    def restart_runlist(self, client: int, channel: int, force: bool) -> _Step:
        words = (ctypes.c_uint32(client), ctypes.c_uint32(channel), ctypes.c_bool(force))
        return self._step("rm_act_restart_runlist", *words)

    def ask_idle(self, client: int, device: int, channels: Sequence[int]) -> Raw:
        """The question whether these channels have nothing left to do, without waiting for it."""
        recorded = self._recorded.ask(client, device, "NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS")
        params = ctypes.create_string_buffer(recorded.size)  # too long for a step
        handles = (ctypes.c_uint32 * len(channels))(*channels)
        if self._library.rm_act_ask_idle(self._abi, handles, ctypes.c_uint(len(channels)), params):
            raise ActsError(f"rm_act_ask_idle refused {len(channels)} channels")
        return Raw(client, device, recorded.cmd, params.raw)

    def tpc_mode(self, client: int, tsg: int, mode: int, every: bool) -> _Step:
        """mode: 0 none, 1 static, 2 dynamic."""
        words = (ctypes.c_uint32(client), ctypes.c_uint32(tsg), ctypes.c_int(mode), ctypes.c_bool(every))
        return self._step("rm_act_tpc_mode", *words)

    def tpc_table(self, client: int, share: int, used: int) -> _Step:
        return self._step("rm_act_tpc_table", ctypes.c_uint32(client), ctypes.c_uint32(share), ctypes.c_uint(used))


class Raw:
    """Controls that the module does not send: probes. `params` are bytes of the recorded structures."""

    def __init__(self, client: int, target: int, command: int, params: bytes) -> None:
        self.client, self.object, self.cmd, self.size, self.params = client, target, command, len(params), params


class Recorded:
    """Controls and structures of a driver version as they were recorded, for what no table in use names."""

    def __init__(self, table: str) -> None:
        def data(name: str) -> Any:
            return json.loads(files("detshare.tools.abi").joinpath("data", name).read_text(encoding="utf-8"))

        self._controls = {each["name"]: each for each in data("controls.json")[table]}
        self._structs = {name: each[table] for name, each in data("structs.json").items() if table in each}

    def ask(self, client: int, target: int, name: str, values: Mapping[str, Sequence[int]] | None = None) -> Raw:
        """The control with its parameters zero but for `values`, elements of 32 bits each by field."""
        control = self._controls[name]
        params = bytearray(control["size"])
        for field, words in (values or {}).items():
            struct.pack_into(f"<{len(words)}I", params, self.at(name, field), *words)
        return Raw(client, target, control["id"], bytes(params))

    def at(self, name: str, field: str) -> int:
        """Offset of a field of a control's parameters."""
        fields = self._structs[self._controls[name]["param"]]["fields"]
        return int(next(each[0] for each in fields if each[2] == field))


class Tenant:
    """A living program with its compute channel group, reached through its own descriptor while this is open."""

    def __init__(self, driver: KernelDriver, pid: int) -> None:
        self.pid = pid
        self._stack = ExitStack()
        self.abi: Abi = for_version(driver.version)
        process = driver.find(pid)
        if process is None:
            raise ActsError(f"PID {pid} has ended")
        self.descriptor, self.tsg = self._adopt(driver, process)

    def _adopt(self, driver: KernelDriver, process: ProcessId) -> tuple[Descriptor, Tsg]:
        newest = driver.newest_client()
        (opener,) = (each for each in driver.openers() if each.id.pid == self.pid)
        for fd in opener.control_fds:
            with ExitStack() as held:
                descriptor = held.enter_context(driver.borrow(process, fd))
                for client in list(filter(descriptor.owns, range(newest, newest - _CLIENTS, -1))):
                    tree = read_tree(RmClient(descriptor, self.abi, client), self.abi, fd, Depth())
                    compute = [tsg for tsg in tree.tsgs if tsg.kind is Kind.COMPUTE and tsg.channels]
                    if compute:
                        self._stack = held.pop_all()
                        return descriptor, compute[0]
        raise ActsError(f"PID {self.pid} has no compute channel group on any of its descriptors")

    @property
    def client(self) -> int:
        return self.tsg.client

    @property
    def channels(self) -> list[tuple[int, int]]:
        """(client, channel) of the compute channel group."""
        return [(self.client, channel) for channel in self.tsg.channels]

    def send(self, step: _Step | Raw) -> Answer:
        """NV_ESC_RM_CONTROL with the step. OSError where the ioctl fails."""
        params = bytearray(bytes(step.params)[: step.size])
        begin = time.perf_counter_ns()
        status = self.descriptor.control(step.client, step.object, step.cmd, params)
        return Answer(status, (time.perf_counter_ns() - begin) / 1000.0, bytes(params))

    def close(self) -> None:
        """Give the descriptor back: while it is open the program's objects outlive it."""
        self._stack.close()

    def __enter__(self) -> Tenant:
        return self

    def __exit__(self, *_unused: object) -> None:
        self.close()


def tenant(driver: KernelDriver, pid: int) -> Tenant:
    """The program of that PID; ActsError with the reason where it cannot be reached."""
    try:
        return Tenant(driver, pid)
    except (DriverError, ValueError) as error:
        raise ActsError(f"reach PID {pid}: {error}") from error
