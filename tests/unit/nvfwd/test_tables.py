# SPDX-License-Identifier: Apache-2.0
"""What the forwarded driver lets through: what data and recordings show, nothing that needs the kernel's rights."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from detshare.tools.abi.generator import load
from detshare.tools.replay.records import Call, read
from detshare.tools.vm import builds
from detshare.tools.vm.checkout import NVFWD

TRACES = sorted((NVFWD.parent / "data" / "traces").glob("*.jsonl.gz"))
VERSION = "580.142"


def written() -> str:
    """common/tables.c as builds get it."""
    folder = builds.generated(NVFWD)
    assert folder is not None
    return (folder / "common" / "tables.c").read_text()


def rows(table: str) -> dict[int, tuple[int, str]]:
    """Number -> (size, name) of a table of common/tables.c."""
    found = re.search(rf"{table}\[\] = \{{\n(.*?)\n\}};", written(), re.DOTALL)
    assert found
    lines = re.findall(r"\{ (0x[0-9a-f]+|\d+), (\d+),.*?\"(.*)\" \}", found[1])
    return {int(number, 0): (int(size), name) for number, size, name in lines}


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_bad_usage_is_said(arguments: list[str]) -> None:
    words = [sys.executable, str(NVFWD / "generate.py"), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_nothing_kernel_privileged_is_let_through() -> None:
    privileged = {int(row["id"]) for row in load("controls")[VERSION] if row["priv"] == "KERNEL_PRIVILEGED"}
    assert len(privileged) > 100
    assert not privileged & set(rows("nvf_controls"))


def test_pointers_without_a_rule_are_not_let_through() -> None:
    embedded = re.search(r"nvf_embeddeds\[\] = \{\n(.*?)\n\};", written(), re.DOTALL)
    assert embedded
    ruled = {(int(cmd, 16), int(at)) for cmd, at in re.findall(r"\{ (0x\w+), \w+, \d+, (\d+) \}", embedded[1])}
    structs, let = load("structs"), rows("nvf_controls")
    for row in load("controls")[VERSION]:
        fields = structs.get(row["param"], {}).get(VERSION, {"fields": []})["fields"]
        pointers = {(int(row["id"]), int(at)) for at, _, _, kind in fields if kind == "NvP64"}
        assert int(row["id"]) not in let or pointers <= ruled, row["name"]


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name.split(".")[0])
def test_whatever_a_recorded_program_asked_is_known_with_its_size(trace: Path) -> None:
    controls, classes, uvm, escapes = (rows(f"nvf_{name}") for name in ("controls", "classes", "uvms", "escapes"))
    sizes = {number: size for number, (size, _) in escapes.items()}
    for record in read(trace):
        if not isinstance(record, Call):
            continue
        if record.path == "/dev/nvidia-uvm":
            assert record.nr in uvm
            continue
        assert record.nr in sizes
        assert len(record.before) % sizes[record.nr] == 0
        if record.nr == 0x2A:
            command, size = struct.unpack_from("<I12xI", record.before, 8)
            assert controls[command][0] == size, controls[command]
        if record.nr == 0x2B:
            assert struct.unpack_from("<I", record.before, 12)[0] in classes
