# SPDX-License-Identifier: Apache-2.0
"""Standing orders, rows of classes and buckets: what the kernel module is asked to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from detshare.ctl.abi.versions import Abi
from detshare.ctl.backends.desired import Desired, DesiredState
from detshare.ctl.backends.module.census import is_of
from detshare.ctl.backends.module.kernel_watch import KernelWatch
from detshare.ctl.core import cgroups, classes, procfs
from detshare.ctl.core.accounts import NO_PROCESS, Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import AccountKind, Level, TsgChange
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link, Order
from detshare.ctl.netlink.records import ClassRow, SchedRow, TsgRow

_TENANT: Final = "tenant:"


def order_of(desired: Desired) -> Order:
    """What a desired state asks of the kernel. A class's slice and level stand in its row; a weight beside it is a part
    of the class's turns."""
    if desired.klass is not None:
        return Order(klass=desired.klass, weight=desired.weight, tpc_percent=desired.ceiling)
    if desired.weight is not None:
        return Order(weight=desired.weight, level=Level.MEDIUM, tpc_percent=desired.ceiling)
    if desired.slice_us is not None:
        level = desired.level if desired.level is not None else Level.MEDIUM
        return Order(slice_us=desired.slice_us, level=level, tpc_percent=desired.ceiling)
    return Order(tpc_percent=desired.ceiling)


def desired_of(row: SchedRow) -> Desired:
    """The desired state that an order found in the kernel answers to."""
    level = Level(row.level) if row.level in tuple(Level) else None
    if row.klass:
        return Desired(klass=row.klass, weight=row.weight, ceiling=row.tpc_percent)
    if row.weight is not None:
        return Desired(weight=row.weight, ceiling=row.tpc_percent)
    return Desired(slice_us=row.slice_us or None, level=level, ceiling=row.tpc_percent)


def merged(before: Desired, change: Desired) -> Desired:
    """Class, weight or slice from `change`, or its ceiling if that is all that it names; the rest as before."""
    if change.klass is None and change.weight is None and change.slice_us is None:
        return replace(before, ceiling=None if change.ceiling == classes.PERCENTS[-1] else change.ceiling)
    return replace(change, ceiling=before.ceiling)


def row_of(klass: str) -> ClassRow:
    """The kernel's row of a class of ours."""
    setting = classes.CLASSES[klass]
    return ClassRow(
        klass,
        slice_us=setting.slice_us,
        level=int(setting.level),
        floor_permille=setting.floor_permille,
        turn_us=setting.turn_us,
        turn_rank=setting.turn_rank,
    )


def refused(abi: Abi | None, asked: str, row: SchedRow) -> KernelRefused | None:
    """The error of an order that the driver did not take; None where it took all of it."""

    def status(number: int) -> str:
        return abi.status_name(number) if abi is not None else f"{number:#x}"

    if row.tsgs_failed:
        of = row.tsgs_set + row.tsgs_failed
        words = f"the driver refused it for {row.tsgs_failed} of {of} channel group(s) ({status(row.status)})"
        return KernelRefused(asked, 0, words)
    if row.tpc_status:
        return KernelRefused(asked, 0, f"the driver takes no TPC ceiling here ({status(row.tpc_status)})")
    return None


def changed(row: ClassRow, change: Mapping[str, Any]) -> ClassRow:
    """A row with what changes. A weight and a slice rule the same thing: the newer one stands."""
    named = dict(change)
    if "weight" in named:
        named["slice_us"] = None
    elif named.get("slice_us"):
        named["weight"] = None
    return replace(row, **named)


def check_class(rows: Sequence[ClassRow], klass: str, *, turns: bool) -> None:
    """BadRequest where there is no such class, or `turns` are needed, for a weight to be a part of, and it has none."""
    known = {name: row_of(name) for name in classes.CLASSES} | {row.name: row for row in rows}
    if klass not in known:
        raise BadRequest(f"{klass!r} is no class: use one of {', '.join(sorted(known))}, or make it: set-class")
    if turns and not known[klass].turn_us:
        raise BadRequest(f"class {klass} has no turns, so no weight beside it: set-weight alone shares by slices")


def write_missing(link: Link, rows: Sequence[ClassRow]) -> list[str]:
    """Write the rows of our classes that the kernel lacks; those that are there stay as somebody set them."""
    there = {row.name for row in rows if row.gpu is None}
    missing = [klass for klass in classes.CLASSES if klass not in there]
    for klass in missing:
        link.set_class(row_of(klass))
    return missing


def set_class(link: Link, klass: str, change: Mapping[str, object] | None) -> ClassRow | None:
    """Change a class's row; None sets ours back and forgets another, then the answer is None. BadRequest.

    `change["gpu"]` is the kernel module's number; alone it takes that GPU's row away, and the answer is the others'.
    """
    named = dict(change or {})
    gpu = named.pop("gpu", None)
    assert gpu is None or isinstance(gpu, int)
    found = {(row.name, row.gpu): row for row in link.classes()}
    if not named and klass not in classes.CLASSES and not any(name == klass for name, _ in found):
        raise BadRequest(f"there is no class {klass}: there are {', '.join(sorted({n for n, _ in found}))}")
    if change is None:
        if klass in classes.CLASSES:
            for name, where in found:
                if name == klass and where is not None:
                    link.del_class(klass, where)
            return link.set_class(row_of(klass))
        for name, where in found:
            if name == klass:
                link.del_class(klass, where)
        return None
    if not named:
        if (klass, gpu) in found:
            link.del_class(klass, gpu)
        return found.get((klass, None)) or (row_of(klass) if klass in classes.CLASSES else None)
    before = found.get((klass, gpu)) or found.get((klass, None))
    if before is None and klass in classes.CLASSES:
        before = row_of(klass)
    before = before or ClassRow(klass, turn_rank=classes.OTHER_TURN_RANK)
    return link.set_class(changed(replace(before, gpu=gpu), named))


class Orders:
    """Gives orders, and says what they changed. `watch` has been refreshed by the caller."""

    def __init__(self, link: Link, watch: KernelWatch, wanted: Wanted, abi: Abi | None) -> None:
        self._link = link
        self._watch = watch
        self._wanted = wanted
        self._abi = abi

    def standing(self, target: Target) -> SchedRow | None:
        """The order that the kernel has for this very account."""
        return next((row for row in self._watch.census.orders if is_of(row, target)), None)

    def desired(self, target: Target) -> Desired:
        """What was asked for an account, here or by somebody else."""
        desired = self._wanted.get(target)
        found = None if desired.steers else self.standing(target)
        return desired if found is None else desired_of(found)

    def stands(self, target: Target, desired: Desired) -> bool:
        """Whether the kernel has the order that a desired state asks for, and no channel group has strayed."""
        row, order = self.standing(target), order_of(desired)
        if row is None:
            return False
        found = (row.klass or None, row.weight, row.slice_us or None, row.tpc_percent)
        if found != (order.klass, order.weight, order.slice_us, order.tpc_percent) or (
            order.level is not None and order.level != row.level
        ):
            return False
        slice_us = self._slice(desired)
        return slice_us is None or target.kind is not AccountKind.PID or all(
            tsg.slice_us in (None, slice_us) for tsg in self._watch.compute(target.process) if tsg.managed
        )

    def _slice(self, desired: Desired) -> int | None:
        """The slice that the channel groups of one process must have; None: the kernel works it out."""
        if desired.klass is None:
            return desired.slice_us
        rows = [row for row in self._watch.census.classes if row.name == desired.klass]
        slices = {row.slice_us for row in rows}
        return slices.pop() if len(slices) == 1 else None

    def give(self, target: Target, desired: Desired) -> list[TsgChange]:
        """Give an order; what it did to each compute channel group. DriverError, OSError."""
        before = {(row.client, row.handle): row for row in self._link.tsgs() if row.compute}
        order = order_of(desired)
        answer = self._link.set_order(target, order)
        after = [row for row in self._link.tsgs() if row.compute]
        self._watch.stale()
        wrong = refused(self._abi, f"give {target.text} the order {order.text}", answer)
        if wrong is not None:
            raise wrong
        mine = target.process.pid
        pairs = [(row, before.get((row.client, row.handle))) for row in after]
        return [self._change(row, was) for row, was in pairs if (row.pid == mine if mine else _differs(row, was))]

    def _change(self, now: TsgRow, before: TsgRow | None) -> TsgChange:
        earlier = before.slice_us if before is not None else now.slice_us
        level = Level(now.level).name.lower() if now.level in tuple(Level) else None
        gpu = self._watch.census.uuid(now.gpu) if now.gpu is not None else ""
        return TsgChange(gpu, now.handle, now.slice_us or 0, level, earlier or 0)


def _differs(now: TsgRow, before: TsgRow | None) -> bool:
    return before is None or (now.slice_us, now.level, now.managed) != (before.slice_us, before.level, before.managed)


class Wanted:
    """What was asked for, by account, kept in the run directory for the time after a reload of the module."""

    def __init__(self, desired_state: DesiredState) -> None:
        self._desired = desired_state

    def get(self, target: Target) -> Desired:
        if target.kind is AccountKind.PID:
            return self._desired.get(target.process)
        return self._desired.containers().get(_key(target), Desired())

    def put(self, target: Target, desired: Desired) -> None:
        """OSError: nothing was kept."""
        if target.kind is AccountKind.PID:
            self._desired.steer(target.process, desired)
        else:
            self._desired.container(_key(target), desired)

    def drop(self, target: Target) -> None:
        if target.kind is AccountKind.PID:
            self._desired.drop(target.process)
        else:
            self._desired.container(_key(target), None)

    def all(self, cgroups: Mapping[str, int], tenants: Sequence[str]) -> dict[Target, Desired]:
        """Every account that exists now; what is asked for others waits for them. `cgroups`: path to number."""
        found = {Target(AccountKind.PID, str(p.pid), p): self._desired.get(p) for p in self._desired.processes()}
        for key, desired in self._desired.containers().items():
            if key.startswith("/") and key in cgroups:
                found[Target(AccountKind.CGROUP, key, cgroup=cgroups[key])] = desired
            elif key.startswith(_TENANT) and key.removeprefix(_TENANT) in tenants:
                found[Target(AccountKind.TENANT, key.removeprefix(_TENANT), NO_PROCESS)] = desired
        return {target: desired for target, desired in found.items() if desired.steers}

    def living(self) -> dict[str, int]:
        """Cgroups that something was asked for and that are there, by the kernel's numbers.

        One of a container that is gone is forgotten: none will ever have its name. What was asked for others waits.
        """
        found: dict[str, int] = {}
        for path in [key for key in self._desired.containers() if key.startswith("/")]:
            number = cgroups.number_of(path)
            if number is not None:
                found[path] = number
            elif procfs.container_id(path):
                with suppress(OSError):
                    self._desired.container(path, None)
        return found

    def forget_accounts(self) -> None:
        """Drop what was asked for cgroups and tenants."""
        with suppress(OSError):
            self._desired.forget_containers()


def _key(target: Target) -> str:
    return target.name if target.kind is AccountKind.CGROUP else f"{_TENANT}{target.name}"
