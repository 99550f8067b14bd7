# SPDX-License-Identifier: Apache-2.0
"""What the machine lacks: driver, device nodes, rights, the kernel module, the spatial lane."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from stage import Stage, checked, left_alone, makes, raising

from detshare.ctl import oneshot
from detshare.ctl.abi.versions import for_version
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.module import limits, module
from detshare.ctl.backends.module.orders import refused
from detshare.ctl.backends.root import doctor
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.core import accounts, procfs
from detshare.ctl.core.backend import NoSpatialLane
from detshare.ctl.core.snapshot import Check
from detshare.ctl.core.verbs import request
from detshare.ctl.gputime import measure
from detshare.ctl.netlink import events, genl, presence
from detshare.ctl.netlink import link as links
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link
from detshare.ctl.rm import kernel, session

ABI = for_version("580.159.04")


@makes("no NVIDIA driver is loaded here (/sys/module/nvidia is absent)")
def _(stage: Stage) -> str:
    stage.patch.setattr(procfs, "driver_version", lambda: None)
    stage.patch.setattr(oneshot, "require_root", lambda asked: None)
    return checked(Check(**each) for each in oneshot.doctor("root", stage.run_dir)["checks"])


@makes("/dev/nvidiactl cannot be opened (WHY); is the driver loaded and the node made")
def _(stage: Stage) -> str:
    stage.patch.setattr(session.os, "open", raising(PermissionError(13, "Permission denied")))
    return stage.refused(lambda: session.Session(ABI))


@makes("there is no /dev/nvidia*")
def _(stage: Stage) -> str:
    stage.patch.setattr(oneshot, "Path", lambda _: stage.folder)
    return checked([oneshot.nodes_check()])


def _answering(stage: Stage, status: str) -> None:
    """The driver's node answers each allocation and control with that status."""
    stage.patch.setattr(session, "CONTROL_NODE", "/dev/null")

    def ioctl(_fd: int, _request: int, block: bytearray, _mutate: bool) -> int:
        layout = ABI.layout("NVOS64_PARAMETERS")
        block[:] = layout.pack(status=ABI.status(status))
        return 0

    stage.patch.setattr(session.fcntl, "ioctl", ioctl)


@makes("making an RM client: the driver answered NV_ERR_...", "NV_ERR_NO_MEMORY")
def _(stage: Stage) -> str:
    _answering(stage, "NV_ERR_NO_MEMORY")
    return stage.refused(lambda: session.Session(ABI))


@makes("counting RM objects: the driver answered NV_ERR_...")
def _(stage: Stage) -> str:
    own = SimpleNamespace(client=1, control=lambda what, *_: session.Session._ok(stand_in, what, 0x1B))
    stand_in: Any = SimpleNamespace(abi=ABI)
    stage.patch.setattr(kernel.KernelDriver, "__init__", lambda self: None)
    driver = kernel.KernelDriver()
    driver._abi, driver._own = ABI, own  # type: ignore[assignment]
    return stage.refused(driver.counts)


@makes("driver V is of branch B; the tables cover ...", "nothing is changed on a driver that is not in the tables")
def _(stage: Stage) -> str:
    stage.driver = ModelDriver(version="999.43.02")
    who = str(stage.program().id.pid)
    backend = stage.backend()
    backend.look()
    return left_alone(backend.set_priority(who, "high")) + checked(backend.doctor())


@makes("read-only: driver V is of branch B ...")
def _(stage: Stage) -> str:
    stage.driver = ModelDriver(version="999.43.02")
    return checked(oneshot.machine_checks(stage.backend().look()))


@makes("driver V (table T) has no ...")
def _(stage: Stage) -> str:
    return stage.refused(lambda: ABI.klass("NO_SUCH_CLASS"))


@makes("none listed", "is the GPU bound to nvidia.ko? see dmesg")
def _(stage: Stage) -> str:
    stage.patch.setattr(stage.driver, "gpus", list)
    return checked(doctor.checks(stage.driver, ABI, ["580"], 0, stage.folder, "root"))


@makes("NVML: ...")
def _(stage: Stage) -> str:
    stage.patch.setitem(sys.modules, "pynvml", SimpleNamespace(nvmlInit=raising(OSError("no libnvidia-ml.so.1"))))
    seen = dataclasses.replace(stage.backend().look(), backend="root")
    return checked(oneshot.machine_checks(seen))


@makes("that needs root (you are uid N): it asks on other programs' descriptors")
def _(stage: Stage) -> str:
    stage.patch.setattr(os, "geteuid", lambda: 1000)
    return stage.refused(lambda: oneshot.require_root("list programs"))


@makes("running as uid N")
def _(stage: Stage) -> str:
    return checked(doctor.checks(stage.driver, ABI, ["580"], 1000, stage.folder, "root"))


# -- the kernel module ------------------------------------------------------------------------------------------


def _status(**given: Any) -> Any:
    base = {
        "mode": genl.DETSHARE_MODE_ENFORCE, "lapses": (), "fail_closed": False, "closed": 0, "module_version": "0.1.0",
        "abi": genl.DETSHARE_ABI_EXACT, "driver_version": "580.159.04", "shield": True, "hooks": ("ioctl",), "vctxs": 0,
        "objects": 0, "gpus": 1, "calls": 0, "refused": 0, "denied": 0, "holds": 0, "waiting": 0, "events_lost": 0,
        "mechanisms": (),
    }  # fmt: skip
    return SimpleNamespace(**{**base, **given})


def _warned(stage: Stage, warnings: Iterable[str]) -> str:
    """Doctor's lines where a look warns of that."""
    return checked(oneshot.machine_checks(dataclasses.replace(stage.backend().look(), warnings=tuple(warnings))))


def _module(stage: Stage, **given: Any) -> str:
    """Warnings of ps, and doctor's lines."""
    link: Any = SimpleNamespace(status=lambda: _status(**given), gpus=list)
    return "\n".join([_warned(stage, module.warnings(_status(**given))), checked(module.checks(link))])


@makes("backend root holds no memory limits: that takes the kernel module, detshare.ko")
def _(stage: Stage) -> str:
    stage.run_dir.mkdir(mode=0o700)
    backend = RootBackend(stage.driver, stage.run_dir, name="root")
    return stage.refused(lambda: backend.do(request("set-memory", "1000", limit="4G")))


@makes("detshare.ko is not loaded (generic netlink has no family detshare)")
def _(stage: Stage) -> str:
    if presence.loaded():
        pytest.skip("detshare.ko is loaded here")
    return checked(module.checks(Link()))


@makes("detshare.ko was unloaded; load it again, or restart detshared to go on without")
def _(stage: Stage) -> str:
    link = Link()
    stage.patch.setattr(link, "_open", lambda: None)
    stage.patch.setattr(links.genl, "DetShare", raising(NetlinkError(errno.ENOENT)))
    stage.patch.setattr(Link, "status", lambda self: self._ask("its status", raising(NetlinkError(errno.ENOENT))))
    return checked(module.checks(link))


@makes("DOING X: the kernel module refused: WORDS")
def _(stage: Stage) -> str:
    return stage.refused(raising(KernelRefused("set-memory 1000", 22, "no such cgroup")))


@makes("the kernel module only observes", "observes only")
def _(stage: Stage) -> str:
    return _module(stage, mode=genl.DETSHARE_MODE_OBSERVE, lapses=("no tables for branch 999",))


@makes("the kernel module does not enforce all", "enforcement")
def _(stage: Stage) -> str:
    return _module(stage, lapses=("a hook is missing",))


@makes("the kernel module has no driver", "no driver is loaded")
def _(stage: Stage) -> str:
    return _module(stage, mode=genl.DETSHARE_MODE_DOWN)


@makes("a hook point is missing: calls are verified after ...")
def _(stage: Stage) -> str:
    return _module(stage, shield=False)


@makes("the driver refused it for N of M channel group(s) (NV_ERR_...)")
def _(stage: Stage) -> str:
    row: Any = SimpleNamespace(tsgs_failed=1, tsgs_set=2, status=ABI.status("NV_ERR_NOT_SUPPORTED"), tpc_status=0)
    found = refused(ABI, "set-priority 1000 high", row)
    assert found is not None
    return stage.refused(raising(found))


@makes("there is no cgroup PATH")
def _(stage: Stage) -> str:
    return stage.refused(lambda: accounts.resolve("/no/such/cgroup.of.nobody", (), ()))


@makes("X cannot be a tenant's name")
def _(stage: Stage) -> str:
    return stage.ctl("tenant", "add", "4242")


# -- the spatial lane -------------------------------------------------------------------------------------------


@makes("CMD runs without DetShare: no daemon answers on ...")
def _(stage: Stage) -> str:
    return stage.process("detshare.tools.main", "run", "--run-dir", str(stage.run_dir), "--", "true")


@makes("the spatial lane is off: this command acts without a daemon")
def _(stage: Stage) -> str:
    return stage.refused(raising(NoSpatialLane()))


@makes("the kernel module answers root only (CAP_SYS_ADMIN)", "the kernel module's events are for root only")
def _(stage: Stage) -> str:
    link = Link()
    stage.patch.setattr(link, "_open", lambda: None)
    said = stage.refused(lambda: link._ask("list programs", raising(NetlinkError(1))))
    stage.patch.setattr(events.genl, "DetShare", raising(PermissionError(1, "Operation not permitted")))
    return said + stage.refused(events.Listener)


@makes(
    "there is no tenant X",
    "tenant X exists already",
    "it uses more already: nothing is taken away, nothing more is granted",
)
def _(stage: Stage) -> str:
    row: Any = SimpleNamespace(name="red")
    link: Any = SimpleNamespace(tenants=lambda: [row], set_limit=lambda *_: SimpleNamespace(used=2 << 30))
    watch: Any = SimpleNamespace(census=SimpleNamespace(limits=()))
    made = limits.Limits(link, watch)
    change = made._set(accounts.Target(accounts.AccountKind.TENANT, "red"), 1 << 30, None)
    return "; ".join([left_alone(made.delete("blue")), left_alone(made.add("red")), change.note])  # type: ignore[union-attr]


@makes("the context-switch log of GPU-... is refused, share is NVML's: WHY")
def _(stage: Stage) -> str:
    return _warned(stage, measure.blind({"GPU-3b269624-5005": "NV_ERR_INSUFFICIENT_PERMISSIONS"}))
