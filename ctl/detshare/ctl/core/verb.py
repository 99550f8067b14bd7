# SPDX-License-Identifier: Apache-2.0
"""What a verb is made of. The verbs themselves are in detshare.ctl.core.verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, runtime_checkable


class Kind(Protocol):
    """What an argument may be."""

    def read(self, verb: str, name: str, value: object) -> Any:
        """What a backend is given for a value that came as JSON. BadRequest where it cannot be meant."""
        ...


@runtime_checkable
class Typed(Kind, Protocol):
    """One that people write in a form of its own."""

    def typed(self, text: str) -> object:
        """The value in JSON of what a person typed. BadRequest where it cannot be meant."""
        ...


class Whom(Enum):
    """Whom a verb addresses."""

    PROGRAM = auto()
    """a PID, a container id or a pattern of command lines"""
    HELD = auto()
    """a program; with the kernel module also a tenant or a cgroup"""
    ACCOUNT = auto()
    """a process, a tenant or a cgroup"""
    TENANT = auto()
    """a tenant by its name"""
    CLASS = auto()
    """a class by its name"""
    OURS = auto()
    """one of the classes that are always there"""
    ALL = auto()
    """nobody in particular"""


class Lane(Enum):
    """Which lane does it."""

    TEMPORAL = auto()
    SPATIAL = auto()
    EACH = auto()
    """the lane of each program"""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument besides `who`."""

    name: str
    """in JSON"""
    kind: Kind
    metavar: str = ""
    help: str = ""
    option: str = ""
    """how it is called on the command line; empty: it goes by its place there, and must be given"""
    to: str = ""
    """how the backend's method calls it, where that is not `name`"""
    required: bool = False
    """it must be given in JSON"""


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that can be asked of the daemon."""

    name: str
    help: str
    example: str
    args: tuple[Arg, ...] = ()
    whom: Whom = Whom.PROGRAM
    lane: Lane = Lane.EACH
    lacks: str = ""
    """what a backend that cannot do it holds, where the kernel module could; empty: the spatial lane could"""
    command: str = ""
    """its words on the command line, where they are not `name`"""
    last: bool = False
    """whom it addresses is typed after its arguments"""
    done: str = ""
    """what became of whom it was done to; empty: what was set tells that"""
    undoes: bool = False
    """it only takes back, and is done whatever state the driver or the guardian is in"""
    waits: bool = False
    """it stands for a program that has no context yet"""
    daemon: bool = False
    """it ends with the daemon, or is the daemon's alone"""
    unless: str = ""
    """the argument with which it needs no daemon"""
    check: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """looks at the arguments together; what it returns is what the backend's method gets. BadRequest"""

    @property
    def words(self) -> str:
        """As it is typed."""
        return self.command or self.name


@dataclass(frozen=True, slots=True)
class Request:
    """A verb with arguments that can be meant: made by detshare.ctl.core.verbs.request()."""

    verb: Verb
    who: str
    args: Mapping[str, Any]
    """as the backend's method calls them"""
