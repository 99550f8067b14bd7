# SPDX-License-Identifier: Apache-2.0
"""Files with specifications: where engines look, what is in ours, and writing one at once or not at all."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from detshare.ctl.cdi import form
from detshare.ctl.cdi.spec import KIND
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Check

__all__ = ["FOLDERS", "NAME", "Found", "checks", "look", "read", "write"]

FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""of engines: what a later one has goes before what an earlier one has"""
NAME: Final = f"{KIND.replace('/', '-')}.json"
LARGEST: Final = 4 << 20
"""bytes of a file"""


@dataclass(frozen=True, slots=True)
class Found:
    """A file. `spec` None: it cannot be read as one at all."""

    path: Path
    spec: dict[str, Any] | None
    problems: tuple[str, ...]

    @property
    def ours(self) -> bool:
        """Whether its devices are asked for by our name."""
        return self.spec is not None and self.spec.get("kind") == KIND


class _Twice(ValueError):
    """A name occurs twice in an object: engines refuse that."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"the field {next(name for name in names if names.count(name) > 1)!a} occurs twice")
    return made


def read(path: Path) -> Found:
    """What is in a file, and all that is wrong with it."""
    try:
        with path.open("rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return Found(path, None, ("it is no ordinary file",))
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            return Found(path, None, (f"it is longer than {LARGEST} bytes",))
        spec = json.loads(data, object_pairs_hook=_once)
    except OSError as error:
        return Found(path, None, (f"it cannot be read ({error.strerror})",))
    except RecursionError:
        return Found(path, None, ("it is nested too deeply",))
    except _Twice as error:
        return Found(path, None, (str(error),))
    except ValueError as error:
        return Found(path, None, (f"no JSON: {error}",))
    return Found(path, spec if isinstance(spec, dict) else None, (*form.problems(spec), *_missing(spec)))


def _missing(spec: object) -> Iterator[str]:
    """What it names and this machine has not: a container that asks for it does not start."""
    if not isinstance(spec, dict) or form.problems(spec):
        return
    places = [("containerEdits", spec.get("containerEdits", {}))]
    places += [(f"device {each['name']}", each["containerEdits"]) for each in spec["devices"]]
    for where, edits in places:
        for node in edits.get("deviceNodes", ()):
            if not _is_device(path := node.get("hostPath") or node["path"]):
                yield f"{where}: there is no device {path}"
        for mount in edits.get("mounts", ()):
            if not os.path.exists(mount["hostPath"]):
                yield f"{where}: there is no {mount['hostPath']} to mount"
        for hook in edits.get("hooks", ()):
            if not os.access(hook["path"], os.X_OK):
                yield f"{where}: there is no program {hook['path']}, its hook {hook['hookName']}"


def _is_device(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)


def look(folders: Sequence[Path] = FOLDERS) -> list[Found]:
    """Our files in the folders of engines, those that cannot be read and bear our name too; last what goes first."""
    found: list[Found] = []
    for folder in folders:
        mine = [each for path in sorted(folder.glob("*.json")) if (each := read(path)).ours or path.name == NAME]
        found += [_conflict(each, mine) for each in mine]
    return found


def checks() -> list[Check]:
    """Doctor's lines: a specification names files of the driver that was loaded when it was written."""
    advice = "make that, or write it anew: sudo detshare-ctl cdi generate --output"
    return [
        Check("containers", False, f"{each.path}: {each.problems[0]}", f"{advice} {each.path}")
        if each.problems
        else Check("containers", True, f"{each.path}: nothing is wrong")
        for each in look(FOLDERS)
    ]


def _conflict(one: Found, others: Sequence[Found]) -> Found:
    """The same with the devices that another file of its folder has too: no engine knows which is meant."""
    twice = [
        f"device {name}: {other.path} has it too"
        for other in others
        for name in sorted(names(one) & names(other))
        if other is not one
    ]
    return Found(one.path, one.spec, (*one.problems, *twice))


def names(found: Found) -> set[str]:
    """Of its devices."""
    devices = found.spec.get("devices") if found.spec is not None else None
    named = (each.get("name") for each in devices if isinstance(each, dict)) if isinstance(devices, list) else ()
    return {name for name in named if isinstance(name, str)}


def write(spec: dict[str, Any], path: Path, asked: str) -> Path:
    """Into a file, or into a folder under our name: whole, or not at all. The file. ControlError."""
    where = path / NAME if path.is_dir() or path in FOLDERS else path
    if where.suffix != ".json":
        raise ControlError(asked, f"{where} does not end with .json", "engines read no other: name it so", usage=True)
    if where.exists() and not where.is_file():
        raise ControlError(asked, f"{where} is no ordinary file", "name another --output", usage=True)
    draft = ""
    try:
        if where.parent in FOLDERS:
            where.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        # an engine reads what ends with .json
        descriptor, draft = tempfile.mkstemp(prefix=f".{where.name}.", suffix=".tmp", dir=where.parent)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(spec, indent=1) + "\n")
            stream.flush()
            os.fchmod(stream.fileno(), 0o644)
            os.fsync(stream.fileno())
        os.replace(draft, where)
    except OSError as error:
        with suppress(OSError):
            if draft:
                os.unlink(draft)
        following = "write it as root, or name a folder that is there and is yours with --output"
        raise ControlError(asked, f"{where} cannot be written ({error.strerror})", following) from error
    return where
