# SPDX-License-Identifier: Apache-2.0
"""The specification of this machine's devices: what each container gets that asks for one by name.

CDI adds device files, mounts, variables and hooks to a container. Its cgroup it cannot name: class and memory limit are
given to that by our hook, before the container's first program runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from detshare.ctl.cdi import form
from detshare.ctl.cdi.machine import LIBRARY, Machine
from detshare.ctl.core.containers import Device
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import DEFAULT_RUN_DIR

__all__ = ["HOOK", "INSIDE", "KIND", "make"]

KIND: Final = "detshare.io/gpu"
HOOK: Final = "detshare.ctl.cli.hook"
"""run by `python3 -I -m`: the same from a package, a wheel and a checkout"""
INSIDE: Final = f"/usr/lib/detshare/{LIBRARY}"
"""where our library lies in a container"""
TIMEOUT_S: Final = 60
"""after which an engine ends the hook, and the container with it; the hook itself gives up earlier"""
BOARDS: Final = "boards.sock"
REPORTS: Final = "reports.sock"
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "bind")

Json = dict[str, Any]


def make(
    devices: Mapping[str, Device],
    machine: Machine,
    *,
    required: bool = False,
    run_dir: Path = DEFAULT_RUN_DIR,
    python: str = sys.executable,
) -> Json:
    """The specification. ControlError where a device asks for what this machine has not."""
    made: Json = {
        "cdiVersion": form.KNOWN[0],
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": _edits(name, device, machine, required, run_dir, python)}
            for name, device in devices.items()
        ],
        "containerEdits": {
            "deviceNodes": [_node(path) for path in machine.control],
            "mounts": [_mount(file, name) for file, name in machine.driver],
        },
    }
    if not machine.driver:
        del made["containerEdits"]["mounts"]
    made["cdiVersion"] = form.least_version(made)
    assert form.problems(made) == []
    return made


def _edits(name: str, device: Device, machine: Machine, required: bool, run_dir: Path, python: str) -> Json:
    asked = f"make the device {name}"
    for number in device.gpus:
        if number not in machine.gpus:
            there = ", ".join(map(str, machine.gpus))
            raise ControlError(asked, f"there is no GPU {number}; there are {there}", "correct its gpus", usage=True)
    mounts: list[Json] = []
    env: list[str] = []
    if device.library != "off":
        if not machine.library:
            raise ControlError(asked, f"there is no {LIBRARY} on this machine", 'make -C runtime, or library = "off"')
        mounts.append(_mount(machine.library, INSIDE))
        env.append(f"DETSHARE_LIBRARY={INSIDE}")
    if device.library == "loaded":
        mounts.append(_mount(str(run_dir / BOARDS), f"{DEFAULT_RUN_DIR}/{BOARDS}"))
        env += [f"LD_PRELOAD={INSIDE}", f"DETSHARE_SOCKET={DEFAULT_RUN_DIR}/{BOARDS}", f"DETSHARE_TENANT={name}"]
        env += [f"DETSHARE_MEMORY={device.memory_bytes}"] if device.memory_bytes else []
    if device.reports:
        mounts.append(_mount(str(run_dir / REPORTS), f"{DEFAULT_RUN_DIR}/{REPORTS}"))
    start = [python, "-I", "-m", HOOK, "--run-dir", str(run_dir)]
    words = [*start, "--priority", device.priority]
    words += ["--memory", str(device.memory_bytes)] if device.memory_bytes else []
    words += ["--weight", str(device.weight)] if device.weight else []
    words += ["--floor", f"{device.floor:g}"] if device.floor else []
    words += ["--required"] if required else []
    edits: Json = {
        "env": env,
        "deviceNodes": [_node(machine.gpus[number]) for number in device.gpus or machine.gpus],
        "mounts": mounts,
        "hooks": [
            {"hookName": "createRuntime", "path": python, "args": words, "timeout": TIMEOUT_S},
            {"hookName": "poststop", "path": python, "args": [*start, "--forget"], "timeout": TIMEOUT_S},
        ],
    }
    return {key: value for key, value in edits.items() if value}


def _node(path: str) -> Json:
    # no numbers: nvidia-uvm has another one after each boot, and an engine asks the file itself
    return {"path": path, "permissions": "rw"}


def _mount(host: str, inside: str) -> Json:
    return {"hostPath": host, "containerPath": inside, "options": list(_READ_ONLY)}
