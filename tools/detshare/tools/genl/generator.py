# SPDX-License-Identifier: Apache-2.0
"""From kmod/detshare.yaml to kmod/detshare_uapi.h, kmod/api/nl_policy.{c,h}, and their numbers and messages in Python.

Only the part of YNL that the specification uses is understood; anything else is an error, never a silent loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["SPEC", "BadSpec", "render"]

SPEC = Path("kmod/detshare.yaml")
VERSION = 1

_BANNER = "/* Made from kmod/detshare.yaml by python -m detshare.tools.genl; do not edit. */"
_INTS = {"u8": "NLA_U8", "u16": "NLA_U16", "u32": "NLA_U32", "u64": "NLA_U64"}
_TYPES = {*_INTS, "string", "flag", "pad"}
_PYTHON = {each: each.replace("u", "uint") for each in _INTS} | {"string": "asciiz", "flag": "flag", "pad": "none"}

Spec = Mapping[str, Any]


class BadSpec(ValueError):
    """The specification says something that the generator does not know; the text names it."""


def render(root: Path) -> dict[Path, str]:
    """Text of each generated file, by path below `root`; BadSpec if the specification cannot be used."""
    spec = yaml.safe_load((root / SPEC).read_text())
    if not isinstance(spec, dict) or spec.get("protocol") != "genetlink":
        raise BadSpec(f"{SPEC} is no genetlink specification")
    _check(spec)
    return {
        Path("kmod/detshare_uapi.h"): _uapi(spec),
        Path("kmod/api/nl_policy.h"): _policy_header(spec),
        Path("kmod/api/nl_policy.c"): _policy(spec),
        Path("ctl/detshare/ctl/netlink/uapi.py"): _python(spec),
    }


def _c(*words: str) -> str:
    return "_".join(words).upper().replace("-", "_")


def _sets(spec: Spec) -> dict[str, list[dict[str, Any]]]:
    return {entry["name"]: entry["attributes"] for entry in spec["attribute-sets"]}


def _attributes_of(direction: Mapping[str, Any]) -> Iterator[str]:
    for part in ("request", "reply"):
        yield from direction.get(part, {}).get("attributes", [])
    yield from direction.get("attributes", [])


def _check(spec: Spec) -> None:
    enums = {entry["name"] for entry in spec["definitions"] if entry["type"] in ("enum", "flags")}
    sets = _sets(spec)
    for name, attributes in sets.items():
        for attribute in attributes:
            where = f"attribute {attribute['name']} of set {name}"
            if attribute["type"] not in _TYPES:
                raise BadSpec(f"{where} has the type {attribute['type']}")
            if attribute.get("enum", next(iter(enums))) not in enums:
                raise BadSpec(f"{where} names the enum {attribute['enum']}, which is not defined")
            if unknown := set(attribute.get("checks", {})) - {"max-len"}:
                raise BadSpec(f"{where} has the check {sorted(unknown)[0]}")
    for op in spec["operations"]["list"]:
        known = {attribute["name"] for attribute in sets[op["attribute-set"]]}
        for part in ("do", "dump", "event"):
            for name in _attributes_of(op.get(part, {})):
                if name not in known:
                    raise BadSpec(f"operation {op['name']} uses {name}, which set {op['attribute-set']} lacks")


def _enum(name: str, entries: list[str], *, first: int = 0) -> list[str]:
    lines = [f"\t{entry}{f' = {first}' if at == 0 and first else ''}," for at, entry in enumerate(entries)]
    return [f"enum {name} {{", *lines, "};", ""]


def _flags(name: str, entries: list[str]) -> list[str]:
    return [f"enum {name} {{", *(f"\t{entry} = {1 << at}," for at, entry in enumerate(entries)), "};", ""]


def _uapi(spec: Spec) -> str:
    family = spec["name"]
    lines = [
        "/* SPDX-License-Identifier: GPL-2.0-only */",
        _BANNER,
        "#ifndef DETSHARE_UAPI_H",
        "#define DETSHARE_UAPI_H",
        "",
        f'#define {_c(family, "family-name")} "{family}"',
        f"#define {_c(family, 'family-version')} {VERSION}",
        "",
    ]
    for entry in spec["definitions"]:
        if entry["type"] == "const":
            lines += [f"#define {_c(family, entry['name'])} {entry['value']}", ""]
        elif entry["type"] in ("enum", "flags"):
            make = _enum if entry["type"] == "enum" else _flags
            name = f"{family}_{entry['name']}".replace("-", "_")
            lines += make(name, [_c(family, entry["name"], item) for item in entry["entries"]])
        else:
            raise BadSpec(f"definition {entry['name']} has the type {entry['type']}")
    for name, attributes in _sets(spec).items():
        prefix = _c(family, "a", name)
        lines += [f"enum {family}_a_{name} {{"]
        lines += [
            f"\t{_c(prefix, attribute['name'])}{' = 1' if at == 0 else ''}," for at, attribute in enumerate(attributes)
        ]
        lines += [f"\t__{prefix}_END,", f"\t{prefix}_MAX = __{prefix}_END - 1", "};", ""]
    commands = [_c(family, "cmd", op["name"]) for op in spec["operations"]["list"]]
    lines += _enum(f"{family}_cmd", commands, first=1)
    for group in spec["mcast-groups"]["list"]:
        lines += [f'#define {_c(family, "mcgrp", group["name"])} "{group["name"]}"', ""]
    return "\n".join([*lines, "#endif", ""])


def _requests(spec: Spec) -> Iterator[tuple[str, str, list[str]]]:
    """(operation, attribute set, attributes of its request) of each operation that user space may send."""
    for op in spec["operations"]["list"]:
        parts = [op[part] for part in ("do", "dump") if part in op]
        if parts:
            names = {name for part in parts for name in part.get("request", {}).get("attributes", [])}
            order = [attribute["name"] for attribute in _sets(spec)[op["attribute-set"]]]
            yield op["name"], op["attribute-set"], [name for name in order if name in names]


def _array(spec: Spec, op: str, set_name: str) -> str:
    return f"{spec['name']}_{op.replace('-', '_')}_policy[{_c(spec['name'], 'a', set_name, 'max')} + 1]"


def _policy_header(spec: Spec) -> str:
    lines = [
        "/* SPDX-License-Identifier: GPL-2.0-only */",
        _BANNER,
        "#ifndef DETSHARE_NL_POLICY_H",
        "#define DETSHARE_NL_POLICY_H",
        "",
        "#include <net/netlink.h>",
        '#include "detshare_uapi.h"',
        "",
        "/* What a request may carry; every other attribute is refused by strict validation. */",
        *(f"extern const struct nla_policy {_array(spec, op, name)};" for op, name, _ in _requests(spec)),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _rule(spec: Spec, attribute: Mapping[str, Any]) -> str:
    kind = attribute["type"]
    if "enum" in attribute:
        entry = next(entry for entry in spec["definitions"] if entry["name"] == attribute["enum"])
        entries = entry["entries"]
        if entry["type"] == "flags":
            raise BadSpec(f"{attribute['name']} is read from requests: flags are known in answers only")
        return f"NLA_POLICY_MAX({_INTS[kind]}, {_c(spec['name'], attribute['enum'], entries[-1])})"
    if kind == "string":
        limit = attribute.get("checks", {}).get("max-len")
        if limit is None:
            raise BadSpec(f"string {attribute['name']} is read from requests and needs checks: max-len")
        length = _c(spec["name"], limit) if isinstance(limit, str) else str(limit)
        return f"{{ .type = NLA_NUL_STRING, .len = {length} }}"
    return f"{{ .type = {_INTS[kind]} }}"


def _policy(spec: Spec) -> str:
    lines = ["// SPDX-License-Identifier: GPL-2.0-only", _BANNER, '#include "nl_policy.h"', ""]
    for op, set_name, names in _requests(spec):
        by_name = {attribute["name"]: attribute for attribute in _sets(spec)[set_name]}
        rules = [f"\t[{_c(spec['name'], 'a', set_name, name)}] = {_rule(spec, by_name[name])}," for name in names]
        lines += [f"const struct nla_policy {_array(spec, op, set_name)} = {{", *rules, "};", ""]
    return "\n".join(lines[:-1]) + "\n"


def _numbers(spec: Spec) -> Iterator[tuple[str, str]]:
    """(name, value) of all that detshare_uapi.h defines but attributes, as Python."""
    family = spec["name"]
    yield _c(family, "family-name"), f'"{family}"'
    yield _c(family, "family-version"), str(VERSION)
    for entry in spec["definitions"]:
        if entry["type"] == "const":
            yield _c(family, entry["name"]), str(entry["value"])
            continue
        for at, item in enumerate(entry["entries"]):
            yield _c(family, entry["name"], item), str(at if entry["type"] == "enum" else 1 << at)
    for at, op in enumerate(spec["operations"]["list"], 1):
        yield _c(family, "cmd", op["name"]), str(at)
    for group in spec["mcast-groups"]["list"]:
        yield _c(family, "mcgrp", group["name"]), f'"{group["name"]}"'


def _python(spec: Spec) -> str:
    family = spec["name"]
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""Numbers and messages of the family. Made from kmod/detshare.yaml by python -m detshare.tools.genl."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "from typing import Any",
        "",
        "from pyroute2.netlink import genlmsg",
        "",
        *(f"{name} = {value}" for name, value in _numbers(spec)),
    ]
    for name, attributes in _sets(spec).items():
        prefix = _c(family, "a", name) + "_"
        types = [("unspec", "none"), *((each["name"], _PYTHON[each["type"]]) for each in attributes)]
        lines += ["", "", f"class {family}_{name}_msg(genlmsg):", f'    """Set {name}."""', ""]
        lines += [f'    prefix = "{prefix}"', "    nla_map = ("]
        lines += [*(f'        ("{prefix}{_c(each)}", "{kind}"),' for each, kind in types), "    )"]
    ops = [(_c(family, "cmd", op["name"]), op["attribute-set"]) for op in spec["operations"]["list"]]
    lines += ["", "", "MESSAGES: Mapping[int, Any] = {"]
    lines += [*(f"    {name}: {family}_{of}_msg," for name, of in ops), "}"]
    lines += ['"""command -> what its messages say; each set of attributes has numbers of its own"""', ""]
    return "\n".join(lines)
