# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from gatekit import ROOT, RUNTIME
from hypothesis import given
from hypothesis import strategies as st

from detshare.runtime import board_layout as layout
from detshare.runtime.board import (
    Activity,
    Attach,
    Attached,
    BadBoard,
    Counters,
    Policy,
    Tier,
    create,
    map_file,
)
from detshare.tools.boardgen import layout as source
from tests.patience import run

STRUCTS = {"slot": "SLOT", "activity": "ACTIVITY", "tier": "TIER", "policy": "POLICY", "counters": "COUNTERS"}
BYTE = {"name": "x", "type": "u8", "doc": ""}
MESSAGES = {"attach": "ATTACH", "attached": "ATTACHED"}


def test_c_and_python_agree_on_every_offset_size_and_constant(tmp_path: Path) -> None:
    """The compiler's word, not the generator's: a program prints what the header gives."""
    lines, expected = [], {}
    for name, upper in (STRUCTS | MESSAGES).items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct ds_{name}));')
        expected[name] = getattr(layout, f"{upper}_SIZE")
        for field, where in getattr(layout, f"{upper}_FIELDS").items():
            member = "class_" if field == "class" else field
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct ds_{name}, {member}));')
            lines.append(f'printf("{name}.{field}# %zu\\n", sizeof(((struct ds_{name} *)0)->{member}));')
            expected[f"{name}.{field}"] = where.offset
            element = source.SCALARS.get(where.type) or getattr(layout, f"{where.type}_SIZE")
            expected[f"{name}.{field}#"] = element * (where.count or 1)
    for name in (n for n in dir(layout) if n.isupper() and isinstance(getattr(layout, n), int)):
        if not name.endswith("_SIZE") or name in ("PAGE_SIZE",):
            lines.append(f'printf("{name} %llu\\n", (unsigned long long)DS_{name});')
            expected[name] = getattr(layout, name)
    for part, (shift, bits) in layout.PLAN_PARTS.items():
        word = 0xA5A5A5A5A5A5A5A5
        lines.append(f'printf("plan.{part} %llu\\n", (unsigned long long)ds_plan_{part}({word}ULL));')
        expected[f"plan.{part}"] = word >> shift & ((1 << bits) - 1)
    text = '#include <stdio.h>\n#include "board.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0; }\n"
    (tmp_path / "print.c").write_text(text)
    files = [str(tmp_path / "print.c"), "-o", str(tmp_path / "p")]
    run(["gcc", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME / 'shm'}", *files], check=True)
    said = run([tmp_path / "p"], check=True, capture_output=True, text=True).stdout
    assert {name: int(value) for name, value in (line.split() for line in said.splitlines())} == expected
    assert len(expected) > 150


def test_the_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "detshare.tools.boardgen", "--check", "--root", str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def board_json(tmp_path: Path, change: Any) -> Path:
    data = json.loads((ROOT / source.SOURCE).read_text())
    change(data)
    (tmp_path / "runtime").mkdir()
    (tmp_path / source.SOURCE).write_text(json.dumps(data))
    return tmp_path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["structs"][0]["fields"].insert(1, BYTE), "write the padding down"),
        (lambda d: d["structs"][0]["fields"][0].update(type="u16"), "unknown type u16"),
        (lambda d: d["structs"][0].update(size=32), "takes 48 bytes of its 32"),
        (lambda d: d["structs"][0].update(size=100), "no multiple"),
        (lambda d: d["structs"][0]["fields"][1].update(name="word"), "there twice"),
        (lambda d: d["packed"][0]["parts"][1].update(shift=4), "overlaps"),
        (lambda d: d["structs"][0].pop("fields"), "lacks 'fields'"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, change: Any, why: str) -> None:
    root = board_json(tmp_path, change)
    with pytest.raises(source.BadBoard, match=why):
        source.load(root)


def test_a_policy_reads_back_what_was_written() -> None:
    policy = Policy(bytearray(layout.PAGE_BYTES))
    policy.init()
    tiers = (Tier(layout.TIER_FULL, 0), Tier(layout.TIER_FIRST, 32), Tier(layout.TIER_REST, 32))
    first = policy.write(class_=3, tier_busy=2, tiers=tiers, gate_us=100, memory_limit=5 << 30)
    second = policy.write(tier_idle=1)
    assert (first, second, policy.epoch) == (2, 4, 4)
    values = policy.read()
    assert (values.class_, values.tier_idle, values.tier_busy, values.gate_us) == (3, 1, 2, 100)
    assert (values.memory_limit, values.tiers) == (5 << 30, tiers)
    assert policy.get("plan") >> 32 == 4


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tier_idle": 1}, "there are 1 tiers"),
        ({"tiers": [Tier(0, 0)] * 17}, "room for 16"),
        ({"gate_us": -1}, "gate_us cannot be -1"),
        ({"memory_limit": 1 << 64}, "memory_limit cannot be"),
        ({"mode_busy": 256}, "has 8 bits"),
        ({"colour": 1}, "no colour"),
    ],
)
def test_a_policy_that_cannot_be_changes_nothing(changes: dict[str, Any], why: str) -> None:
    buffer = bytearray(layout.PAGE_BYTES)
    policy = Policy(buffer)
    policy.init()
    policy.write(class_=2)
    before = bytes(buffer)
    with pytest.raises(ValueError, match=why):
        policy.write(**changes)
    assert bytes(buffer) == before


def test_a_reader_never_sees_half_a_policy() -> None:
    policy = Policy(bytearray(layout.PAGE_BYTES))
    policy.init()
    stop = threading.Event()

    def write() -> None:
        value = 0
        while not stop.is_set():
            value = (value + 1) % 1000
            policy.write(linger_us=value, gate_us=value, depth=value, memory_limit=value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            seen = policy.read(tries=100_000)
            assert seen.linger_us == seen.gate_us == seen.depth == seen.memory_limit
    finally:
        stop.set()
        writer.join()


def test_a_policy_whose_writer_died_is_named_and_can_be_written_again() -> None:
    policy = Policy(bytearray(layout.PAGE_BYTES))
    policy.init()
    policy.write(class_=1)
    policy.put("epoch", 3)
    with pytest.raises(BadBoard, match="half written"):
        policy.read()
    assert policy.write(class_=2) == 4
    assert policy.read().class_ == 2


@pytest.mark.parametrize("kind", [Activity, Policy, Counters])
def test_a_page_of_another_kind_or_version_is_named(kind: type[Policy]) -> None:
    buffer = bytearray(layout.PAGE_BYTES)
    board = kind(buffer)
    with pytest.raises(BadBoard, match="magic 0x0"):
        board.check()
    board.init()
    board.check()
    board.put("version", 7)
    with pytest.raises(BadBoard, match="version 7, this DetShare speaks 1"):
        board.check()
    with pytest.raises(BadBoard, match="100 bytes"):
        kind(bytearray(100))


def test_a_hold_touches_one_byte() -> None:
    activity = Activity(bytearray(layout.PAGE_BYTES))
    slot = activity.slots[3]
    slot.put("word", 0x00FFFFFF)
    slot.hold(True)
    assert slot.get("word") == 0x80FFFFFF
    slot.hold(False)
    assert slot.get("word") == 0x00FFFFFF
    assert [s.get("word") for s in activity.slots if s is not slot] == [0] * (layout.SLOTS - 1)


def test_slots_run_out() -> None:
    activity = Activity(bytearray(layout.PAGE_BYTES))
    for n in range(layout.SLOTS):
        slot = activity.free_slot()
        assert slot is not None
        assert slot.index == n
        slot.assign(n + 1, 1, 1)
    assert activity.free_slot() is None
    activity.slots[7].free()
    found = activity.free_slot()
    assert found is not None
    assert found.index == 7


@given(st.text(max_size=100), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_messages_survive_the_wire(tenant: str, number: int, memory: int) -> None:
    sent = Attach(layout.VERSION, b"u" * 16, number, number, 8, memory, tenant.replace("\0", "")[:15])
    assert Attach.unpack(sent.pack()) == sent
    answer = Attached(5, number, tenant.replace("\0", "")[:40])
    assert Attached.unpack(answer.pack()) == answer


@given(st.binary(max_size=300))
def test_garbage_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(BadBoard):
        Attach.unpack(data)


def test_a_request_of_another_version_says_so_whatever_its_size() -> None:
    data = Attach(9, b"u" * 16, 1, 132, 8, 1, "x").pack()
    assert Attach.unpack(data).version == 9
    assert Attach.unpack(data + b"more").version == 9


def test_files_are_whole_pages_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "x.policy"
    create(path).close()
    assert path.stat().st_size == layout.PAGE_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        create(path)
    with map_file(path) as mapped:
        policy = Policy(mapped)
        assert policy.get("magic") == 0
        with pytest.raises(TypeError):
            policy.put("magic", 1)
        policy.close()
    os.truncate(path, 10)
    with pytest.raises(BadBoard, match="10 bytes"), map_file(path):
        pass
