# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from blocks import VERSIONS, data
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rmshell import ENOENT, KINDS, ROOT, Core

from detshare.tools.abi import ctables, generator, wanted_core
from detshare.tools.abi.__main__ import main


@pytest.mark.parametrize("version", VERSIONS)
def test_a_known_version_has_its_own_table(decoder: Core, version: str) -> None:
    assert decoder("abi", version) == {"how": "exact", "version": version}


@pytest.mark.parametrize(
    ("version", "table"),
    [
        ("580.159.04", "580.142"),  # newer than both tables of its branch
        ("580.100.01", "580.65.06"),
        ("580.10", "580.65.06"),  # older than both
        ("535.261.03", "535.288.01"),
        ("595.99.99", "595.45.04"),
    ],
)
def test_another_version_of_a_branch_has_the_nearest_table(decoder: Core, version: str, table: str) -> None:
    assert decoder("abi", version) == {"how": "branch", "version": table}


@pytest.mark.parametrize("version", ["610.43.02", "565.57.01", "5800.1", "58.1", "580", "580.", ".580", "x", "580.65a"])
def test_another_branch_or_nonsense_has_none(decoder: Core, version: str) -> None:
    assert decoder("abi", version)["how"] == "none"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
def test_no_version_string_disturbs_the_lookup(decoder: Core, version: str) -> None:
    assert decoder("abi", version)["how"] in {"none", "branch", "exact"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_has_the_size_and_rights_of_the_data(decoder: Core, version: str) -> None:
    decoder("abi", version)
    structs = data("structs")
    for name, entry in data("classes")[version].items():
        found = decoder.numbers("class", entry["num"])
        info = entry["Alloc Param Info"]
        struct = info.partition("(")[2].rstrip(")")
        wanted = 4 if struct == "NvHandle" else structs.get(struct, {}).get(version, {}).get("size", 0)
        assert found["params"] == found["size"] == wanted, name
        assert bool(found["flags"] & 1) == info.startswith("RS_REQUIRED"), name
        assert bool(found["flags"] & 2) == ("NON_PRIVILEGED" in entry["Flags"]), name
    assert decoder.error("class", 0xDEAD) == ENOENT


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0x0, "client"),
        (0x41, "client"),
        (0x80, "device"),
        (0x2080, "subdevice"),
        (0xA06C, "tsg"),
        (0x9067, "ctxshare"),
        (0xC86F, "channel"),
        (0xCBC0, "compute"),
        (0xCB97, "gr"),
        (0xC8B5, "copy"),
        (0xC661, "usermode"),
        (0x900E, "mps"),
        (0x40, "video"),
        (0x3E, "system"),
        (0x50A0, "virtual"),
        (0xC2, "window"),
        (0x3F, "registers"),
        (0xF8, "fabric"),
        (0xFD, "multicast"),
        (0x82, "list"),
        (0xB1, "memory"),
    ],
)
def test_a_class_is_of_its_kind(decoder: Core, number: int, kind: str) -> None:
    decoder("abi", "580.142")
    assert KINDS[decoder.numbers("class", number)["kind"]] == kind


def test_kinds_are_numbered_as_the_tests_think() -> None:
    header = (ROOT / "kmod" / "rm" / "abi.h").read_text()
    body = header.partition("enum rm_kind {")[2].partition("};")[0]
    names = [
        line.strip().partition(",")[0].removeprefix("RM_KIND_") for line in body.splitlines() if "RM_KIND_" in line
    ]
    assert [name.removeprefix("MEM_").lower() for name in names] == [
        "other" if kind == "memory" else kind for kind in KINDS
    ]


# ---- the generator


def test_the_checkout_holds_what_the_data_gives() -> None:
    for path, text in ctables.ctables().items():
        assert (ROOT / path).read_text() == text


def test_check_names_the_file_that_differs(tmp_path: Path) -> None:
    (tmp_path / generator.TARGET).parent.mkdir(parents=True)
    assert CliRunner().invoke(main, ["--root", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(main, ["--root", str(tmp_path), "--check"]).exit_code == 0
    stale = tmp_path / ctables.SOURCE
    stale.write_text(stale.read_text().replace(".len = 48", ".len = 47", 1))
    result = CliRunner().invoke(main, ["--root", str(tmp_path), "--check"])
    assert result.exit_code == 1
    assert str(ctables.SOURCE) in result.output


def changed(monkeypatch: pytest.MonkeyPatch, table: str, change: Any) -> None:
    loaded = {
        name: generator.load(name) for name in ("structs", "classes", "uvm_ioctls", "controls", "constants", "status")
    }
    change(loaded[table])
    monkeypatch.setattr(ctables, "load", loaded.__getitem__)


def test_a_member_of_two_widths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def widen(structs: dict[str, Any]) -> None:
        fields = structs["NVOS54_PARAMETERS"]["570.211.01"]["fields"]
        next(field for field in fields if field[2] == "cmd")[1] = 8

    changed(monkeypatch, "structs", widen)
    with pytest.raises(generator.BadData, match=r"NVOS54_PARAMETERS\.cmd"):
        ctables.ctables()


def test_a_missing_structure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, "structs", lambda structs: structs["NVOS64_PARAMETERS"].pop("590.48.01"))
    with pytest.raises(generator.BadData, match=r"NVOS64_PARAMETERS for 590\.48\.01"):
        ctables.ctables()


def test_a_number_with_two_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    changed(monkeypatch, "constants", lambda constants: constants["550.163.01"].update(NV_ESC_RM_ALLOC=0x2C))
    with pytest.raises(generator.BadData, match="NV_ESC_RM_ALLOC"):
        ctables.ctables()


def test_wanted_layouts_have_distinct_keys_that_are_c_names() -> None:
    assert all(key.isidentifier() for key in wanted_core.LAYOUTS)
