# SPDX-License-Identifier: Apache-2.0
"""The form of a specification, beside the schema that CDI publishes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published import fields, wrong

from detshare.ctl.cdi import form

# schema/testdata/good/spec-example.json
EXAMPLE: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "vendor.com/device",
    "devices": [
        {
            "name": "myDevice",
            "containerEdits": {
                "deviceNodes": [{"hostPath": "/vendorroot/dev/card1", "path": "/dev/card1"}, {"path": "/dev/card2"}]
            },
        }
    ],
    "containerEdits": {
        "env": ["FOO=CDI_SPEC", "BAR=BARVALUE1"],
        "deviceNodes": [{"path": "/dev/vendorctl", "uid": 1000, "gid": 1000}],
        "mounts": [{"hostPath": "/bin/vendorBin", "containerPath": "/bin/vendorBin"}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/vendor-hook"}],
    },
}
SMALL: dict[str, Any] = {
    "cdiVersion": "0.3.0",
    "kind": "vendor.com/device",
    "devices": [{"name": "one", "containerEdits": {"env": ["A=b"]}}],
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["name", "devices", "kind", "containerEdits", "env", "x"]), inner, max_size=4),
    max_leaves=12,
)


def changed(spec: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    made: Any = copy.deepcopy(spec)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return dict(made)


def edits(**named: Any) -> dict[str, Any]:
    return changed(SMALL, "devices", 0, "containerEdits", to=named)


@pytest.mark.parametrize("spec", [EXAMPLE, SMALL])
def test_what_is_published_as_good_is_good(spec: dict[str, Any]) -> None:
    assert form.problems(spec) == []
    assert wrong(spec) == []


def test_the_fields_are_those_of_the_schema() -> None:
    known = {name: set(table) for name, table in form._TABLES.items()}
    known["node"].remove("fileMode")  # see published.py
    assert known == fields()


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        (SMALL, "0.3.0"),
        (edits(mounts=[{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]), "0.4.0"),
        (edits(deviceNodes=[{"path": "/dev/a", "hostPath": "/dev/b"}]), "0.5.0"),
        (changed(SMALL, "devices", 0, "name", to="0"), "0.5.0"),
        (changed(SMALL, "annotations", to={"a": "b"}), "0.6.0"),
        (changed(SMALL, "devices", 0, "annotations", to={"a": "b"}), "0.6.0"),
        (changed(SMALL, "kind", to="vendor.com/a.b"), "0.6.0"),
        (edits(intelRdt={"closID": "a"}), "0.7.0"),
        (edits(additionalGids=[5]), "0.7.0"),
        (edits(netDevices=[{"hostInterfaceName": "a", "name": "b"}]), "1.1.0"),
        (edits(intelRdt={"schemata": ["a"]}), "1.1.0"),
    ],
)
def test_each_field_takes_the_version_in_which_it_came(spec: dict[str, Any], least: str) -> None:
    """specs-go/version.go."""
    assert form.least_version(spec) == least
    assert form.problems({**spec, "cdiVersion": least}) == []
    assert form.problems({**spec, "cdiVersion": f"v{least}"}) == []
    if least != form.KNOWN[0]:
        (told, *_) = form.problems({**spec, "cdiVersion": form.KNOWN[form.KNOWN.index(least) - 1]})
        assert f"that takes cdiVersion {least}" in told


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ([], "it is an object"),
        ({}, "cdiVersion is missing"),
        (changed(SMALL, "devices", to=[]), "devices: there are none"),
        (changed(SMALL, "cdiVersion", to="0.9.9"), "is no version"),
        (changed(SMALL, "cdiVersion", to=1), "cdiVersion: it is 1; it is a string"),
        (changed(SMALL, "kind", to="vendor"), "is no VENDOR/CLASS"),
        (changed(SMALL, "kind", to="-v/c"), "is no VENDOR/CLASS"),
        (changed(SMALL, "extra", to=1), "extra: there is no such field"),
        (changed(SMALL, "devices", 0, "extra", to=1), "devices[0].extra: there is no such field"),
        (changed(SMALL, "devices", 0, "name", to="a-"), "letters, digits"),
        (changed(SMALL, "devices", to=[SMALL["devices"][0]] * 2), "two are called 'one'"),
        (edits(), "it is empty"),
        (edits(env=[]), "it is empty"),
        (edits(env=["=a"]), "is no NAME=VALUE"),
        (edits(env="A=b"), "it is a list of strings"),
        (edits(mounts=[{"hostPath": "/a"}]), "containerPath is missing"),
        (edits(mounts=[{"hostPath": "", "containerPath": "/b"}]), "hostPath: it is empty"),
        (edits(mounts={"hostPath": "/a"}), "it is a list"),
        (edits(deviceNodes=[{"path": "/a", "type": "x"}]), "is none of b, c, u, p"),
        (edits(deviceNodes=[{"path": "/a", "permissions": "rx"}]), "some of r, w, m"),
        (edits(deviceNodes=[{"path": "/a", "major": "195"}]), "it is a whole number"),
        (edits(deviceNodes=[{"path": "/a", "uid": -1}]), "it is a whole number"),
        (edits(hooks=[{"hookName": "birth", "path": "/a"}]), "is none of prestart"),
        (edits(hooks=[{"hookName": "poststop", "path": "/a", "args": "a"}]), "it is a list of strings"),
        (edits(additionalGids=[True]), "it is a list of whole numbers"),
    ],
)
def test_what_an_engine_refuses_is_told_with_its_place(spec: Any, told: str) -> None:
    assert any(told in each for each in form.problems(spec)), form.problems(spec)


@given(ANYTHING)
def test_anything_is_answered_and_what_is_good_here_is_good_for_the_schema(value: object) -> None:
    if form.problems(value) == []:
        assert wrong(value) == []
