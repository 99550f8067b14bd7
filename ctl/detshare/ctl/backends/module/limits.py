# SPDX-License-Identifier: Apache-2.0
"""Memory limits and named tenants: what the kernel module is told, and what is answered."""

from __future__ import annotations

from contextlib import suppress

from detshare.ctl.backends.module import census
from detshare.ctl.backends.module.kernel_watch import KernelWatch
from detshare.ctl.core import accounts, select
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.snapshot import Change, LimitChange, Outcome, Skip
from detshare.ctl.netlink.errors import KernelRefused
from detshare.ctl.netlink.link import Link


class Limits:
    """Changes limits and tenants; `watch` has been refreshed by the caller."""

    def __init__(self, link: Link, watch: KernelWatch) -> None:
        self._link = link
        self._watch = watch

    def set(self, who: str, limit: int | None, gpu: int | None) -> Outcome:
        """Limit everything that `who` names, on /dev/nvidiaN where a GPU is named; None takes limits away. BadRequest,
        DriverError, OSError."""
        targets = self._watch.targets(who)
        answers: list[Change | Skip] = []
        for target in targets:
            try:
                answers.append(self._set(target, limit, gpu))
            except KernelRefused as error:
                if len(targets) == 1:
                    raise
                answers.append(Skip(target.process.pid, str(error)))
        return Outcome.of("set-memory", answers or [nobody(who, "no process, tenant or cgroup")])

    def _set(self, target: accounts.Target, limit: int | None, gpu: int | None) -> Change | Skip:
        seen = self._watch.census
        at = None if gpu is None else seen.instance(gpu)
        before = next((row for row in seen.limits if census.is_of(row, target) and row.gpu == at), None)
        pid = target.process.pid
        old = before.limit if before is not None else None
        if limit is None:
            if before is None:
                return Skip(pid, f"{target.text} has no memory limit" + ("" if gpu is None else f" on GPU {gpu}"))
            self._link.del_limit(target, at)
            return Change(pid, limit=LimitChange(target.text, gpu, old, None, before.used))
        now = self._link.set_limit(target, limit, at)
        note = "it uses more already: nothing is taken away, nothing more is granted" if now.used > limit else ""
        return Change(pid, note=note, limit=LimitChange(target.text, gpu, old, limit, now.used))

    def _exists(self, name: str) -> bool:
        return name in {row.name for row in self._link.tenants()}

    def add(self, name: str) -> Outcome:
        """Make a tenant."""
        if self._exists(accounts.check_tenant(name)):
            return Outcome.of("tenant-add", [Skip(0, f"tenant {name} exists already")])
        self._link.set_tenant(name)
        return Outcome.of("tenant-add", [Change(0, note=f"tenant {name}")])

    def delete(self, name: str) -> Outcome:
        """Forget a tenant and its limits."""
        if not self._exists(accounts.check_tenant(name)):
            return Outcome.of("tenant-del", [Skip(0, f"there is no tenant {name}")])
        self._link.del_tenant(name)
        return Outcome.of("tenant-del", [Change(0, note=f"tenant {name} and its limits")])

    def lacking(self, name: str) -> Skip | None:
        """Why nothing can be attached to a tenant."""
        if self._exists(accounts.check_tenant(name)):
            return None
        return Skip(0, f"there is no tenant {name}; make it: detshare-ctl tenant add {name}")

    def attach(self, pid: int, name: str) -> Change:
        """Put a process under a tenant that exists. DriverError, OSError."""
        self._link.set_tenant(name, pid)
        return Change(pid, note=f"tenant {name}, with the children it makes from now on")


def nobody(who: str, what: str) -> Skip:
    """The answer where `who` names nobody."""
    hint = "`detshare-ctl ps` lists those that there are"
    with suppress(BadRequest):
        selector = select.parse(who)
        if selector.by is select.By.PID:
            return Skip(selector.pid, f"there is no process {selector.pid}; {hint}")
    return Skip(0, f"{what} matches {who[:80]!r}; {hint}")
