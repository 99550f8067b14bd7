# SPDX-License-Identifier: Apache-2.0
"""The family file against the specification that the kernel module is made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from detshare.ctl.netlink import events, genl, presence, records

SPEC: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "kmod" / "detshare.yaml").read_text())
SETS = {each["name"]: each for each in SPEC["attribute-sets"]}
OPERATIONS: list[dict[str, Any]] = SPEC["operations"]["list"]
TYPES = {"pad": "none", "string": "asciiz", "u8": "uint8", "u32": "uint32", "u64": "uint64"}


def upper(name: str) -> str:
    return name.replace("-", "_").upper()


def messages() -> dict[str, Any]:
    return {name: getattr(genl, f"detshare_{name}_msg") for name in SETS}


def test_family_and_group() -> None:
    assert genl.DETSHARE_FAMILY_NAME == SPEC["name"] == presence.FAMILY
    groups = [genl.DETSHARE_MCGRP_EVENTS, genl.DETSHARE_MCGRP_ACTIVITY]
    assert [group["name"] for group in SPEC["mcast-groups"]["list"]] == groups
    assert all("admin-perm" in each.get("flags", []) or "event" in each for each in OPERATIONS)


def test_commands() -> None:
    assert SPEC["operations"]["enum-model"] == "unified"
    wanted = {f"DETSHARE_CMD_{upper(each['name'])}": number for number, each in enumerate(OPERATIONS, 1)}
    assert {name: value for name, value in vars(genl).items() if name.startswith("DETSHARE_CMD_")} == wanted


@pytest.mark.parametrize("definition", SPEC["definitions"], ids=lambda each: each["name"])
def test_definitions(definition: dict[str, Any]) -> None:
    name = f"DETSHARE_{upper(definition['name'])}"
    if definition["type"] == "const":
        assert getattr(genl, name) == definition["value"]
        return
    flags = definition["type"] == "flags"
    wanted = {f"{name}_{upper(e)}": 1 << number if flags else number for number, e in enumerate(definition["entries"])}
    assert {key: value for key, value in vars(genl).items() if key.startswith(f"{name}_")} == wanted


@pytest.mark.parametrize("name", SETS)
def test_attributes(name: str) -> None:
    prefix = f"DETSHARE_A_{upper(name)}_"
    wanted = [(f"{prefix}UNSPEC", "none")]
    wanted += [(prefix + upper(each["name"]), TYPES[each["type"]]) for each in SETS[name]["attributes"]]
    assert list(messages()[name].nla_map) == wanted
    assert messages()[name].prefix == prefix


def test_each_command_is_decoded_by_its_own_set() -> None:
    wanted = {number: messages()[each["attribute-set"]] for number, each in enumerate(OPERATIONS, 1)}
    assert wanted == genl.MarshalDetShare.cmd_map


def test_every_event_has_a_name() -> None:
    wanted = {number: each["name"] for number, each in enumerate(OPERATIONS, 1) if "event" in each}
    assert wanted == events.NAMES


RECORDS = {
    "status": records.Status,
    "gpu": records.GpuRow,
    "vctx": records.VctxRow,
    "tsg": records.TsgRow,
    "limit": records.LimitRow,
    "tenant": records.TenantRow,
    "sched": records.SchedRow,
    "class": records.ClassRow,
    "bucket": records.BucketRow,
    "hold": records.HoldRow,
    "entity": records.EntityRow,
    "denied": records.DeniedRow,
    "event": records.EventRow,
}


@pytest.mark.parametrize("name", SETS)
def test_a_record_has_every_attribute(name: str) -> None:
    plural = {"hook": "hooks", "mechanism": "mechanisms", "lapse": "lapses", "class": "klass"}
    plural |= {"pid": "pids"} if name == "tenant" else {}
    names = [each["name"] for each in SETS[name]["attributes"] if each["type"] != "pad"]
    wanted = {plural.get(each, each.replace("-", "_")) for each in names}
    assert set(RECORDS[name].__slots__) - {"cmd"} == wanted


@pytest.mark.parametrize(
    ("definition", "names"),
    [
        ("kind", records.KINDS),
        ("level", records.LEVELS),
        ("abi", records.ABIS),
        ("entity-state", records.ENTITY_STATES),
        ("hold", records.HOLDS),
        ("denial", records.DENIALS),
        ("ability", records.ABILITIES),
    ],
)
def test_words_for_enumerations(definition: str, names: dict[int, str]) -> None:
    found = next(each for each in SPEC["definitions"] if each["name"] == definition)
    flags = found["type"] == "flags"
    assert names == {1 << number if flags else number: entry for number, entry in enumerate(found["entries"])}


def test_reasons_in_words() -> None:
    assert records.reasons(0) == ()
    assert records.reasons(5) == ("order", "turn")
    assert records.reasons(0x42) == ("bucket", "0x40")
