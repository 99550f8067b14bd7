# SPDX-License-Identifier: Apache-2.0
"""What detshare.ko says of itself, for doctor and as warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from detshare.ctl.core.driver import DriverError
from detshare.ctl.core.snapshot import Check
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.link import Link
from detshare.ctl.netlink.records import ABILITIES, ABIS, Status

ENFORCE: Final = genl.DETSHARE_MODE_ENFORCE
_UNTRIED: Final = "see dmesg | grep detshare; a build of a known branch is enforced on with untried_builds=1"
_BRANCH: Final = "use a driver of a branch in the tables (docs/develop/development.md), or add this one"


_MANAGED: Final = "GPU calls of managed programs"
_MODULES: Final = Path("/sys/module")
_HMM_HOOK: Final = "nvidia_uvm:uvm_va_space_create"


def warnings(status: Status) -> tuple[str, ...]:
    """What a look should say on top: nothing while limits hold."""
    if status.mode == genl.DETSHARE_MODE_DOWN:
        return ("the kernel module has no driver: nothing is seen until nvidia.ko is loaded",)
    if status.mode == genl.DETSHARE_MODE_OBSERVE:
        said = f"the kernel module only observes; nothing is limited nor set: {'; '.join(status.lapses)}"
    elif status.lapses:
        said = f"the kernel module does not enforce all: {'; '.join(status.lapses)}"
    else:
        return ()
    return (f"{said}; {_MANAGED} are refused (fail_closed=1): {status.closed} so far" if status.fail_closed else said,)


def checks(link: Link) -> list[Check]:
    """Checks of the module. Never raises."""
    try:
        status = link.status()
    except (DriverError, OSError) as error:
        advice = "load it again: insmod detshare.ko; see dmesg | grep detshare"
        return [Check("kernel module", False, str(error), advice)]
    said = [_mode(status), *_hooks(status), _lapses(status), _counters(status), *unlimited(status.hooks)]
    return [*said, *_mechanisms(status), *_ceilings(link)]


def _mode(status: Status) -> Check:
    name, abi = "kernel module", ABIS.get(status.abi, str(status.abi))
    version = f"detshare.ko {status.module_version}"
    if status.mode == genl.DETSHARE_MODE_DOWN:
        return Check(name, False, f"{version}: no driver is loaded", "load nvidia.ko; the module finds it by itself")
    driver = f"{version}, driver {status.driver_version}, tables: {abi}"
    if status.mode == genl.DETSHARE_MODE_OBSERVE:
        advice = _BRANCH if status.abi == genl.DETSHARE_ABI_NONE else _UNTRIED
        return Check(name, False, f"{driver}; observes only: nothing is limited nor set", advice)
    how = "" if status.abi == genl.DETSHARE_ABI_EXACT else " (another version of the same branch; sizes are checked)"
    return Check(name, True, f"{driver}{how}; limits hold")


def _hooks(status: Status) -> list[Check]:
    if status.mode == genl.DETSHARE_MODE_DOWN:
        return []
    shield = (
        Check("shield", True, "calls are decided on kernel copies that the caller cannot change")
        if status.shield
        else Check(
            "shield",
            None,
            "a hook point is missing: calls are verified after the driver has done them, and undone where too much",
            "see dmesg | grep detshare for the function that is missing",
        )
    )
    hooks = ", ".join(status.hooks)
    missing = "" if hooks else "see dmesg | grep detshare"
    return [shield, Check("hooks", bool(hooks), hooks or "none is installed", missing)]


def _lapses(status: Status) -> Check:
    """What does not hold, and what happens to managed programs then."""
    refusing = f"{_MANAGED} are refused" if status.fail_closed else f"{_MANAGED} pass unenforced"
    if not status.lapses:
        return Check("enforcement", True, f"whole; where it is not, {refusing}")
    text = f"{'; '.join(status.lapses)}; {refusing}"
    if status.fail_closed:
        return Check("enforcement", False, f"{text}, {status.closed} so far", "see dmesg | grep detshare")
    return Check("enforcement", False, text, "see dmesg | grep detshare; to refuse instead load it with fail_closed=1")


def unlimited(hooks: tuple[str, ...], modules: Path = _MODULES) -> list[Check]:
    """Video memory that a limit does not see, by how the driver's modules were loaded; `modules`: /sys/module."""
    found = []
    if (modules / "nvidia_uvm").is_dir():
        off = _parameter(modules, "nvidia_uvm", "uvm_disable_hmm")
        if off is None or off == "Y":
            text = "off" if off else "this nvidia-uvm has none"
            found.append(Check("HMM", True, f"{text}: plain memory of programs never becomes video memory"))
        elif _HMM_HOOK in hooks:
            text = "on: who is limited before it opens nvidia-uvm goes without; who is limited later keeps it"
            advice = "limit programs by cgroup or tenant before they start, or load nvidia-uvm with uvm_disable_hmm=1"
            found.append(Check("HMM", None, text, advice))
        else:
            text = "on, and not hooked: plain memory of programs becomes video memory that no limit counts"
            found.append(Check("HMM", False, text, "load nvidia-uvm with uvm_disable_hmm=1"))
    if _parameter(modules, "nvidia_drm", "modeset") == "Y":
        text = "nvidia-drm gives out video memory through /dev/dri/renderD*, which no limit counts"
        found.append(Check("DRM", None, text, "give tenants no /dev/dri, or load nvidia-drm with modeset=0"))
    return found


def _parameter(modules: Path, module: str, name: str) -> str | None:
    """None: there is none."""
    try:
        return (modules / module / "parameters" / name).read_text().strip()
    except OSError:
        return None


def _counters(status: Status) -> Check:
    text = (
        f"{status.vctxs} vCtx(s) with {status.objects} objects on {status.gpus} GPU(s), {status.calls} calls seen, "
        f"{status.refused} refused, {status.denied} denied, {status.holds} hold(s), {status.waiting} thread(s) "
        f"waiting at doorbells, {status.events_lost} event(s) lost"
    )
    return Check("kernel counts", True if not status.events_lost else None, text)


def _mechanisms(status: Status) -> list[Check]:
    """What the module can do with this driver, as it says itself: "name: yes", "name: no (why)"."""
    found = []
    for text in status.mechanisms:
        name, _, answer = text.partition(": ")
        word = answer.split(" ", 1)[0]
        advice = "" if word != "no" else "it is left out; what else the module does goes on"
        found.append(Check(name, {"yes": True, "no": None}.get(word), answer, advice))
    return found


def _ceilings(link: Link) -> list[Check]:
    """Whether each GPU takes a TPC ceiling: the module probes at the first one that is asked for."""
    try:
        rows = link.gpus()
    except (DriverError, OSError):
        return []
    found = []
    for row in rows:
        answer = ABILITIES.get(row.ceiling, "unknown")
        status = f" (status {row.ceiling_status:#x})" if row.ceiling_status is not None else ""
        text = {"present": "the driver takes it", "absent": f"the driver refuses it{status}"}.get(
            answer, "not tried yet: set-ceiling tries it"
        )
        found.append(Check(f"TPC ceiling, GPU {row.gpu}", True if answer == "present" else None, text))
    return found
