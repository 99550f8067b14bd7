# SPDX-License-Identifier: Apache-2.0
"""CDI's own schema, closed: engines refuse a field that they do not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

FOLDER = Path(__file__).parents[2] / "data" / "cdi"
DEFINITIONS: dict[str, Any] = json.loads((FOLDER / "defs.json").read_text())["definitions"]
MAIN: dict[str, Any] = json.loads((FOLDER / "schema.json").read_text())


def closed() -> dict[str, Any]:
    """One document, in which every object has the properties that it names and no others."""
    text = json.dumps({**MAIN, "definitions": DEFINITIONS}).replace("defs.json#", "#")
    made: dict[str, Any] = json.loads(text)
    # what Go's type has and the schema forgot (specs-go/config.go, DeviceNode)
    made["definitions"]["DeviceNode"]["properties"]["fileMode"] = {"$ref": "#/definitions/uint32"}
    # a slip there: `ref` without a dollar says nothing
    made["definitions"]["containerEdits"]["properties"]["env"] = {"$ref": "#/definitions/Env"}
    _close(made)
    return made


def _close(node: Any) -> None:
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _close(each)
    if isinstance(node, dict) and isinstance(node.get("properties"), dict) and node.get("type") == "object":
        node["additionalProperties"] = False


VALIDATOR = Draft7Validator(closed())


def wrong(spec: object) -> list[str]:
    """What the schema has against it."""
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in VALIDATOR.iter_errors(spec)]


def fields() -> dict[str, set[str]]:
    """Names of fields by what they are of."""
    of = {"node": "DeviceNode", "mount": "Mount", "hook": "Hook", "edits": "containerEdits"}
    of["interface"] = "LinuxNetDevice"
    made = {name: set(DEFINITIONS[key]["properties"]) for name, key in of.items()}
    made["rdt"] = set(DEFINITIONS["containerEdits"]["properties"]["intelRdt"]["properties"])
    made["specification"] = set(MAIN["properties"])
    made["device"] = set(MAIN["properties"]["devices"]["items"]["properties"])
    return made
