# SPDX-License-Identifier: Apache-2.0
"""Whom a memory limit is for, as people name them: a process, a cgroup, a container, a named tenant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from detshare.ctl.core import cgroups, select
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Opener, ProcessId
from detshare.ctl.core.snapshot import AccountKind

_TENANT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
LONGEST_TENANT: Final = 63
"""characters of a tenant's name"""

NO_PROCESS: Final = ProcessId(0, 0)


@dataclass(frozen=True, slots=True)
class Target:
    """One account. `process` for PID, `cgroup` (the kernel's number) for CGROUP, `name` for TENANT and for people."""

    kind: AccountKind
    name: str
    process: ProcessId = NO_PROCESS
    cgroup: int = 0

    @property
    def text(self) -> str:
        """In words: "pid 4242", "cgroup /system.slice/x", "tenant red"."""
        return f"{self.kind.value} {self.name}"


def check_tenant(name: object) -> str:
    """`name` if a tenant may have it: no PID, container id or path can be taken for it. BadRequest otherwise."""
    if isinstance(name, str) and _TENANT.fullmatch(name) and select.parse(name).by is select.By.COMMAND:
        return name
    shown = ascii(name)[:60]
    raise BadRequest(
        f"{shown} cannot be a tenant's name: a letter or _, then letters, digits, _ . - up to {LONGEST_TENANT} "
        "characters, and nothing that reads as a container id"
    )


def resolve(who: str, tenants: Collection[str], openers: Iterable[Opener]) -> list[Target]:
    """The accounts that `who` names: several where a command pattern matches several programs, [] for nobody.

    Digits are a PID; a path that begins with / is a cgroup; the exact name of a tenant is that tenant; 12 hex digits or
    more are a container, that is its cgroup; the rest is a command pattern. BadRequest where it cannot be meant.
    """
    text = who.strip()
    if text.startswith("/"):
        return [_cgroup(text)]
    if text in tenants:
        return [Target(AccountKind.TENANT, text)]
    selector = select.parse(text)
    matching = [opener for opener in openers if selector.matches(opener)]
    if selector.by is select.By.CONTAINER:
        paths = {path for opener in matching if (path := container_cgroup(opener)) is not None}
        return [_cgroup(path) for path in sorted(paths)]
    return [Target(AccountKind.PID, str(h.id.pid), h.id) for h in matching]


def container_cgroup(opener: Opener) -> str | None:
    """The cgroup of a program's container: its own, up to the part that bears the container's id."""
    # the outermost: a program may make cgroups of any name below its own
    return next(iter(cgroups.bearing(opener.cgroup, opener.container)), None)


def _cgroup(path: str) -> Target:
    folder = cgroups.folder(path)
    inode = cgroups.number(folder) if folder is not None else None
    if folder is None or inode is None:
        root = cgroups.mount()
        where = f"below {root}" if root is not None else "and no version 2 hierarchy is mounted here"
        raise BadRequest(f"there is no cgroup {path[:200]} {where}; a path is as in the last line of /proc/PID/cgroup")
    return Target(AccountKind.CGROUP, cgroups.name(folder), cgroup=inode)
