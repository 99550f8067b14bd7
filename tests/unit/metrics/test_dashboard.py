# SPDX-License-Identifier: Apache-2.0
"""packaging/grafana/detshare.json against Grafana's own schema, after what Grafana's import does to a file."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from dashboard import DASHBOARD, expressions
from jsonschema import Draft7Validator

from detshare.ctl.daemon.metric_names import COUNTER, NAMES

SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "grafana" / "schema.json").read_text())
KNOWN = {each.sample: each for each in NAMES}


def imported(file: dict[str, Any]) -> dict[str, Any]:
    """The dashboard that an import makes: the inputs chosen by the person, and what only the import reads left out."""
    text = json.dumps({name: value for name, value in file.items() if not name.startswith("__")})
    for each in file["__inputs"]:
        assert (each["type"], each["pluginId"]) == ("datasource", "prometheus")
        text = text.replace("${" + each["name"] + "}", "prometheus-of-the-house")
    assert "${DS_" not in text, "an input that nobody is asked for"
    made: dict[str, Any] = json.loads(text)
    return made


def wrong(part: str, kind: str, value: object) -> list[str]:
    """What Grafana's schema has against it."""
    validator = Draft7Validator({"$ref": f"#/definitions/{kind}", "definitions": SCHEMA[part]})
    return [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in validator.iter_errors(value)]


def problems(dashboard: dict[str, Any]) -> list[str]:
    """All of it: the dashboard, and what its schema leaves to the panels and to the data source."""
    found = wrong("dashboard", "Dashboard", dashboard)
    for panel in dashboard["panels"]:
        found += wrong(panel["type"], "Options", panel["options"])
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        found += wrong(panel["type"], "FieldConfig", custom) if "FieldConfig" in SCHEMA[panel["type"]] else []
        assert custom == {} or "FieldConfig" in SCHEMA[panel["type"]]
        for target in panel["targets"]:
            found += wrong("prometheus", "Dataquery", target)
    return found


def test_what_is_imported_is_what_grafana_takes() -> None:
    assert problems(imported(DASHBOARD)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("title",), 5), (("graphTooltip",), 3), (("panel",), []), (("panels", 0, "gridPos", "w"), "8"),
        (("panels", 0, "options", "colorMode"), "rainbow"), (("panels", 5, "options", "legend", "showLegend"), None),
        (("panels", 5, "targets", 0, "expression"), "up"), (("panels", 5, "fieldConfig", "default"), {}),
        (("panels", 0, "targets", 0, "datasource", "name"), "x"), (("templating", "list", 0, "type"), "nosuch"),
    ],
)  # fmt: skip
def test_what_grafana_does_not_know_is_found(path: tuple[Any, ...], value: object) -> None:
    broken = copy.deepcopy(imported(DASHBOARD))
    place: Any = broken
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    assert problems(broken)


def test_ids_and_places_are_its_own() -> None:
    assert DASHBOARD["id"] is None, "an id would be another dashboard's"
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", DASHBOARD["uid"])
    required = {each["id"] for each in DASHBOARD["__requires"] if each["type"] == "panel"}
    assert required == {panel["type"] for panel in DASHBOARD["panels"]}
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not taken & cells, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_it_asks_only_for_what_there_is() -> None:
    asked = {name for text in expressions() for name in re.findall(r"\bdetshare_\w+", text)}
    assert asked <= set(KNOWN)
    assert len(asked) > len(KNOWN) / 2
    for text in expressions():
        for name, labels in re.findall(r"\b(detshare_\w+)\{([^}]*)\}", text):
            for label in re.findall(r"(\w+)=", labels):
                assert label == "instance" or label in KNOWN[name].labels, (name, label)
            assert (KNOWN[name].kind != COUNTER) or re.search(r"(rate|increase)\(" + name, text)
    for variable in DASHBOARD["templating"]["list"]:
        assert variable["query"] == variable["definition"]
        assert set(re.findall(r"\bdetshare_\w+", variable["definition"])) <= set(KNOWN)


def test_legends_name_labels_that_the_series_have() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name, *_) = re.findall(r"\bdetshare_\w+", target["expr"])
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(KNOWN[name].labels), target
