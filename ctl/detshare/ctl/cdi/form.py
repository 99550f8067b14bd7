# SPDX-License-Identifier: Apache-2.0
"""What a specification of the Container Device Interface may hold, and from which of its versions on.

As engines read it (cncf-tags/container-device-interface 1.1.0, specs-go/config.go and version.go, pkg/parser): a field
that they do not know, or one that is newer than the version that a file claims, makes them refuse the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["KNOWN", "least_version", "problems"]

KNOWN: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""versions that were released, but for two drafts before them"""
_HOOKS: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_VENDOR: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_INT64: Final = range(-(2**63), 2**63)
_UINT32: Final = range(2**32)


@dataclass(frozen=True, slots=True)
class _Field:
    """`kind`: str, int (with `numbers`), bool, "strings", "integers", "texts" (string to string), or a table's name; a
    list of these tables with `many`."""

    kind: type | str
    since: str = KNOWN[0]
    required: bool = False
    many: bool = False
    numbers: range = _INT64


_TABLES: Final[Mapping[str, Mapping[str, _Field]]] = {
    "specification": {
        "cdiVersion": _Field(str, required=True),
        "kind": _Field(str, required=True),
        "annotations": _Field("texts", "0.6.0"),
        "devices": _Field("device", required=True, many=True),
        "containerEdits": _Field("edits"),
    },
    "device": {
        "name": _Field(str, required=True),
        "annotations": _Field("texts", "0.6.0"),
        "containerEdits": _Field("edits", required=True),
    },
    "edits": {
        "env": _Field("strings"),
        "deviceNodes": _Field("node", many=True),
        "netDevices": _Field("interface", "1.1.0", many=True),
        "hooks": _Field("hook", many=True),
        "mounts": _Field("mount", many=True),
        "intelRdt": _Field("rdt", "0.7.0"),
        "additionalGids": _Field("integers", "0.7.0", numbers=_UINT32),
    },
    "node": {
        "path": _Field(str, required=True),
        "hostPath": _Field(str, "0.5.0"),
        "type": _Field(str),
        "major": _Field(int),
        "minor": _Field(int),
        "fileMode": _Field(int, numbers=_UINT32),
        "permissions": _Field(str),
        "uid": _Field(int, numbers=_UINT32),
        "gid": _Field(int, numbers=_UINT32),
    },
    "mount": {
        "hostPath": _Field(str, required=True),
        "containerPath": _Field(str, required=True),
        "options": _Field("strings"),
        "type": _Field(str, "0.4.0"),
    },
    "hook": {
        "hookName": _Field(str, required=True),
        "path": _Field(str, required=True),
        "args": _Field("strings"),
        "env": _Field("strings"),
        "timeout": _Field(int, numbers=_UINT32),
    },
    "rdt": {
        "closID": _Field(str, "0.7.0"),
        "l3CacheSchema": _Field(str, "0.7.0"),
        "memBwSchema": _Field(str, "0.7.0"),
        "schemata": _Field("strings", "1.1.0"),
        "enableMonitoring": _Field(bool, "1.1.0"),
    },
    "interface": {"hostInterfaceName": _Field(str, "1.1.0", True), "name": _Field(str, "1.1.0", True)},
}

Found = tuple[str, str, str]
"""where, what is wrong (empty: nothing), and the version that it needs"""


def problems(spec: object) -> list[str]:
    """All for which an engine would refuse it, each with its place: "devices[0].name: ...". [] is good."""
    found = list(_walk(spec))
    wrong = [f"{where}: {reason}" if where else reason for where, reason, _ in found if reason]
    claimed = spec.get("cdiVersion") if isinstance(spec, dict) else None
    if isinstance(claimed, str) and claimed.removeprefix("v") not in KNOWN:
        wrong.append(f"cdiVersion: {_shown(claimed)} is no version; versions are {', '.join(KNOWN)}")
    elif isinstance(claimed, str):
        late = [(where, since) for where, _, since in found if _number(since) > _number(claimed)]
        wrong += [f"{where}: that takes cdiVersion {since}, and the file says {claimed}" for where, since in late]
    return wrong


def least_version(spec: object) -> str:
    """The lowest version that has all that is in it."""
    return max((since for _, _, since in _walk(spec)), key=_number, default=KNOWN[0])


def _number(version: str) -> int:
    return KNOWN.index(version.removeprefix("v"))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _walk(spec: object) -> Iterator[Found]:
    yield from _table("specification", "", spec)
    if not isinstance(spec, dict):
        return
    kind, devices = spec.get("kind"), spec.get("devices")
    if isinstance(kind, str):
        yield from _kind(kind)
    if not isinstance(devices, list):
        return
    if not devices:
        yield "devices", "there are none", KNOWN[0]
    names = [each["name"] for each in devices if isinstance(each, dict) and isinstance(each.get("name"), str)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "devices", f"two are called {_shown(name)}", KNOWN[0]


def _kind(kind: str) -> Iterator[Found]:
    vendor, _, name = kind.partition("/")
    if not _VENDOR.fullmatch(vendor) or not _VENDOR.fullmatch(name):
        yield "kind", f"{_shown(kind)} is no VENDOR/CLASS such as example.com/gpu", KNOWN[0]
    elif "." in name:
        yield "kind", "", "0.6.0"


def _table(name: str, where: str, value: object) -> Iterator[Found]:
    if not isinstance(value, dict):
        yield where, f"it is {_shown(value)}; it is an object", KNOWN[0]
        return
    known = _TABLES[name]
    for key, each in value.items():
        place = f"{where}.{key}" if where else str(key)
        if key not in known:
            yield place, f"there is no such field; there are {', '.join(known)}", KNOWN[0]
            continue
        field = known[key]
        # an engine does not see a field that is empty
        yield place, "", field.since if each else KNOWN[0]
        yield from _value(field, place, each)
    for key, field in known.items():
        if field.required and key not in value:
            yield where, f"{key} is missing", KNOWN[0]
    yield from _MEANT.get(name, _nothing)(where, value)


def _value(field: _Field, where: str, value: object) -> Iterator[Found]:
    match field.kind:
        case "strings" if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            yield where, f"it is {_shown(value)}; it is a list of strings", KNOWN[0]
        case "integers" if not isinstance(value, list) or not all(_whole(each, field.numbers) for each in value):
            yield where, f"it is {_shown(value)}; it is a list of whole numbers from 0", KNOWN[0]
        case "texts" if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            yield where, f"it is {_shown(value)}; it is an object of strings", KNOWN[0]
        case str() as table if table in _TABLES:
            if not field.many:
                yield from _table(table, where, value)
            elif not isinstance(value, list):
                yield where, f"it is {_shown(value)}; it is a list", KNOWN[0]
            else:
                for number, each in enumerate(value):
                    yield from _table(table, f"{where}[{number}]", each)
        case type() as wanted if wanted is int and not _whole(value, field.numbers):
            yield where, f"it is {_shown(value)}; it is a whole number", KNOWN[0]
        case type() as wanted if not isinstance(value, wanted):
            yield where, f"it is {_shown(value)}; it is a {'string' if wanted is str else wanted.__name__}", KNOWN[0]


def _whole(value: object, numbers: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in numbers


# -- what the fields of a table may say -------------------------------------------------------------------------------


def _nothing(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    yield from ()


def _device(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    name = table.get("name")
    if isinstance(name, str):
        if not _DEVICE.fullmatch(name):
            yield f"{where}.name", f"{_shown(name)}: letters, digits, and _ . : - within", KNOWN[0]
        elif name[0].isdigit():
            yield f"{where}.name", "", "0.5.0"
    edits = table.get("containerEdits")
    if isinstance(edits, dict) and not any(edits.values()):
        yield f"{where}.containerEdits", "it is empty: the device would change nothing", KNOWN[0]


def _edits(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    yield from _variables(f"{where}.env", table)


def _variables(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    given = table.get("env")
    for each in given if isinstance(given, list) else ():
        if isinstance(each, str) and each.find("=") <= 0:
            yield where, f"{_shown(each)} is no NAME=VALUE", KNOWN[0]


def _node(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    yield from _filled(where, table, "path")
    if table.get("type", "") not in ("", "b", "c", "u", "p"):
        yield f"{where}.type", f"{_shown(table['type'])} is none of b, c, u, p", KNOWN[0]
    permissions = table.get("permissions", "")
    if isinstance(permissions, str) and permissions != "none" and permissions.strip("rwm"):
        yield f"{where}.permissions", f"{_shown(permissions)}: some of r, w, m, or none", KNOWN[0]


def _mount(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    yield from _filled(where, table, "hostPath", "containerPath")


def _hook(where: str, table: Mapping[str, Any]) -> Iterator[Found]:
    yield from _filled(where, table, "path")
    yield from _variables(f"{where}.env", table)
    if isinstance(name := table.get("hookName"), str) and name not in _HOOKS:
        yield f"{where}.hookName", f"{_shown(name)} is none of {', '.join(_HOOKS)}", KNOWN[0]


def _filled(where: str, table: Mapping[str, Any], *keys: str) -> Iterator[Found]:
    for key in keys:
        if table.get(key) == "":
            yield f"{where}.{key}", "it is empty", KNOWN[0]


_MEANT: Final = {"device": _device, "edits": _edits, "node": _node, "mount": _mount, "hook": _hook}
