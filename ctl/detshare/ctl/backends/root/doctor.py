# SPDX-License-Identifier: Apache-2.0
"""What this machine allows, as a list of checks with the next step for each that fails."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from detshare.ctl.abi.versions import Abi
from detshare.ctl.core import words
from detshare.ctl.core.driver import Driver, DriverError, Gpu
from detshare.ctl.core.snapshot import Check
from detshare.ebpf import checks as ebpf

_REAL = (
    "slices, levels, pause and resume of any program; no memory limit; a hostile program may undo its slice until "
    "the next look"
)
_KMOD = (
    "memory limits, classes, weights, buckets, ceilings, gates and pauses of any program, cgroup or tenant, held by "
    "the kernel also against a hostile one"
)
_MODEL = (
    "every verb acts on simulated programs; its figures are the simulation's, and what a GPU does may differ; for "
    "this machine's programs start detshared without --backend model"
)


def checks(
    driver: Driver, abi: Abi | None, branches: list[str], euid: int, run_dir: Path, backend: str
) -> list[Check]:
    """Checks of a driver and of our rights over it, for the backend of that name. Never raises."""
    model = backend == "model"
    found = [
        _root(euid, model),
        Check(
            "driver",
            abi is not None,
            f"{driver.version}, " + (f"ABI tables of {abi.table}" if abi is not None else "branch not in the tables"),
            "" if abi is not None else f"read-only here; supported branches: {', '.join(branches)}",
        ),
    ]
    try:
        gpus = driver.gpus()
        found.append(
            Check("gpus", bool(gpus), ", ".join(f"{g.name} ({_parts(g)})" for g in gpus) or "none listed",
                  "" if gpus else "is the GPU bound to nvidia.ko? see dmesg")
        )
        openers = driver.openers()
        found.append(Check("programs", None, f"{len(openers)} process(es) hold descriptors of /dev/nvidia*"))
        if abi is not None:
            found.append(Check("object count", True, f"{driver.counts().objects} RM objects; the driver answers us"))
            found.append(_borrowing(driver))
    except (DriverError, OSError) as error:
        found.append(Check("driver calls", False, str(error), "fix this first; nothing else can work"))
    found.append(_run_directory(run_dir))
    if not model:
        observers = ebpf.loading()
        found.append(Check(observers.name, observers.ok, observers.text, observers.advice))
    meaning = _KMOD if backend == "kmod" else _MODEL if model else _REAL
    found.append(Check("what it means", None, f"backend {backend}: {meaning}"))
    return found


def _parts(gpu: Gpu) -> str:
    return "; ".join(filter(None, (gpu.uuid, words.mig(asdict(gpu)))))


def _run_directory(run_dir: Path) -> Check:
    name, wrong = "run directory", "create it, or give --run-dir another"
    if run_dir.exists():
        writable = os.access(run_dir, os.W_OK)
        return Check(name, writable, str(run_dir), "" if writable else wrong)
    above = next(folder for folder in run_dir.absolute().parents if folder.exists())
    if above.is_dir() and os.access(above, os.W_OK):
        return Check(name, None, f"{run_dir} is not there yet; detshared makes it, or the first change")
    return Check(name, False, f"{run_dir} is not there, and cannot be made in {above}", wrong)


def _root(euid: int, model: bool) -> Check:
    if euid == 0:
        return Check("root", True, "running as root")
    if model:
        return Check("root", None, f"running as uid {euid}: enough for the model, real programs need root")
    advice = "run as root: duplicating another program's descriptors needs CAP_SYS_PTRACE"
    return Check("root", False, f"running as uid {euid}", advice)


def _borrowing(driver: Driver) -> Check:
    """Whether descriptors of some living program can be duplicated."""
    name = "descriptors of programs"
    for opener in driver.openers():
        for fd in opener.control_fds:
            try:
                with driver.borrow(opener.id, fd):
                    return Check(name, True, f"duplicated one of PID {opener.id.pid}")
            except DriverError as error:
                return Check(name, False, str(error), "run as root in the initial user namespace")
    return Check(name, None, "no program to try it on")
