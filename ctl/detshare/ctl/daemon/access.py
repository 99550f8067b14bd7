# SPDX-License-Identifier: Apache-2.0
"""Who may do what through the daemon's socket.

Everybody who can connect may read; the socket's mode and group decide who that is. Root, the daemon's own user and the
users that the configuration lists may change everything. Anybody else may do one thing: lower the class of a program
of his own, and take that back as long as nobody else changed it.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.ctl.core import config, procfs
from detshare.ctl.core.classes import CLASSES
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Program, Snapshot, State

__all__ = ["LOWERS", "Access", "Caller", "Denied", "caller_of", "group_id", "user_name"]

LOWERS: Final = "set-priority"
"""the one verb that a tenant has"""
_ORDER: Final = tuple(reversed(CLASSES))
"""lowest first"""


class Denied(ControlError):
    """The caller may not do that; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of a connection: as the kernel noted it when he connected, or as his token says."""

    pid: int
    uid: int
    way: str = ""
    """how he came, where that was not by a process of this machine; then there is no PID"""

    @property
    def text(self) -> str:
        """For people: "uid 1000 (ann), PID 4242"."""
        name = user_name(self.uid)
        return f"uid {self.uid}" + (f" ({name})" if name else "") + f", {self.way or f'PID {self.pid}'}"


def user_name(uid: int) -> str:
    """A user's name; empty where the number has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def group_id(name: str) -> int | None:
    """A group's number; None where there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid if name else None
    except KeyError:
        return None


def caller_of(connection: socket.socket) -> Caller:
    """The process that connected (SO_PEERCRED)."""
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", answer)
    return Caller(pid, uid)


class Access:
    """The rules of one daemon."""

    def __init__(self, rules: config.Access = config.Access()) -> None:  # noqa: B008  frozen
        self._rules = rules
        self._lowered: dict[ProcessId, tuple[str, str]] = {}
        """program -> the class from which its user lowered it, and the one that he gave it last"""

    def use(self, rules: config.Access) -> None:
        """Other rules from now on; who lowered a class may still take that back."""
        self._rules = rules

    @property
    def group(self) -> int | None:
        """Who owns the socket besides the daemon's user; None where there is no such group here."""
        return group_id(self._rules.group)

    def may_change(self, caller: Caller) -> bool:
        """Whether everything is allowed to him."""
        return caller.uid in (0, os.geteuid()) or user_name(caller.uid) in self._rules.users

    def require_change(self, caller: Caller, asked: str) -> None:
        """Denied where he may not change everything."""
        if not self.may_change(caller):
            raise Denied(asked, f"{caller.text}, may not change anything", self._next())

    def _next(self) -> str:
        where = config.DEFAULT_PATH
        return f"run it as root, or ask the administrator for a place in users of [access] in {where}"

    def worth_looking(self, caller: Caller, verb: str, who: object, asked: str) -> bool:
        """False where the request is allowed whatever there is; True where `check_lowering` has to decide.

        Denied where it cannot be allowed.
        """
        if self.may_change(caller):
            return False
        if verb != LOWERS:
            stopped = f"{caller.text}, may not change anything but lower the class of his own programs"
            raise Denied(asked, stopped, self._next())
        if not isinstance(who, str) or not (who.isdecimal() and who.isascii()):
            raise Denied(asked, "a program of your own is named by its PID", "detshare-ctl set-priority PID low")
        return True

    def check_lowering(
        self, caller: Caller, who: str, args: Mapping[str, object], now: Snapshot, asked: str
    ) -> None:
        """Denied unless it lowers, keeps, or raises to where the caller lowered it from, the class of a program of his
        own, and does nothing else.

        `now` is a look of this moment, so that nobody undoes what an administrator has just set.
        """
        if more := ", ".join(sorted(name for name, value in args.items() if name != "class" and value is not None)):
            raise Denied(asked, f"you may lower the class of your own programs, not set {more[:80]}", self._next())
        program = next((p for p in now.programs if str(p.id.pid) == who.lstrip("0")), None)
        if program is None:
            raise Denied(asked, f"PID {who[:20]} holds no GPU", "see which programs do: detshare-ctl ps")
        if owner_of(program) != caller.uid:
            raise Denied(asked, f"PID {program.id.pid} is no program of {caller.text.partition(',')[0]}", self._next())
        if program.state is State.MPS_CLIENT and program.spatial is None and not _owns_servers(caller, now):
            raise Denied(asked, "its class is that of an MPS server which others use, too", self._next())
        wanted, present = args.get("class"), program.klass
        if wanted not in CLASSES:
            return  # no class: the verb itself says what there is, and changes nothing
        if present is None and (program.weight is not None or any(t.level is not None for t in program.compute)):
            raise Denied(asked, "an administrator set its weight or its slice", self._next())
        present = present or "normal"
        if present not in CLASSES:
            raise Denied(asked, f"an administrator gave it class {present[:40]}", self._next())
        before, given = self._lowered.get(program.id, (present, present))
        highest = before if given == present else present
        if _ORDER.index(str(wanted)) > _ORDER.index(highest):
            lower = ", ".join(reversed(_ORDER[: _ORDER.index(present)])) or "none"
            stopped = f"it has class {present}: you may lower it ({lower}), not raise it"
            raise Denied(asked, stopped, self._next())
        living = {each.id for each in now.programs}
        self._lowered = {each: classes for each, classes in self._lowered.items() if each in living}
        self._lowered[program.id] = highest, str(wanted)

    def changed(self, pids: Iterable[int]) -> None:
        """Somebody who may change everything did so with these: their users take back nothing any more."""
        gone = set(pids)
        self._lowered = {each: classes for each, classes in self._lowered.items() if each.pid not in gone}


def _owns_servers(caller: Caller, now: Snapshot) -> bool:
    """Whether every MPS server of this machine is the caller's; which of them a client has is not asked."""
    servers = [each for each in now.programs if each.state is State.MPS_SERVER]
    return bool(servers) and all(owner_of(each) == caller.uid for each in servers)


def owner_of(program: Program) -> int | None:
    """The user whose process it is; None where it has ended, or is more than one user's (a set-user-ID program).

    The model's programs are nobody's.
    """
    with suppress(OSError, ValueError):
        status = Path(f"/proc/{program.id.pid}/status").read_text(encoding="utf-8", errors="replace")
        # the owner of the folder would be root for a process that changed its user
        uids = {int(uid) for line in status.splitlines() if line.startswith("Uid:") for uid in line.split()[1:]}
        # read after it: the number was not reused meanwhile
        if len(uids) == 1 and procfs.start_time(program.id.pid) == program.id.start:
            return uids.pop()
    return None
