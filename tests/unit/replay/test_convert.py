# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from detshare.tools.replay.conformance import TRACES
from detshare.tools.replay.convert import convert
from detshare.tools.replay.records import Call, Mapping, Record, TraceError, read
from detshare.tools.replay.script import Buffer, Close, Ioctl, Map, Open, Script, Thing, What, Where

NAMES = ["h100-580-mps-client", "h100-580-runtime-greenctx"]


def records(name: str) -> list[Record]:
    return read(TRACES / f"{name}.jsonl.gz")


@pytest.fixture(params=NAMES)
def trace(request: pytest.FixtureRequest) -> tuple[list[Record], Script]:
    found = records(request.param)
    return found, convert(found, request.param)


def ioctls(script: Script) -> list[Ioctl]:
    return [step for step in script.steps if isinstance(step, Ioctl) and step.seq != 0xFFFFFFFF]


def test_every_recorded_call_and_mapping_is_in_the_script_in_order(trace: tuple[list[Record], Script]) -> None:
    recorded, script = trace
    seen = [step.seq for step in script.steps if isinstance(step, (Ioctl, Map)) and step.seq != 0xFFFFFFFF]
    assert seen == [record.seq for record in recorded]


def test_every_call_expects_what_was_recorded(trace: tuple[list[Record], Script]) -> None:
    recorded = {record.seq: record for record in trace[0] if isinstance(record, Call)}
    without = {"CARD_INFO", "SYS_PARAMS", "NUMA_INFO", "REGISTER_FD"}
    for step in ioctls(trace[1]):
        assert step.ret == recorded[step.seq].ret
        if step.name not in without:
            assert [check.what for check in step.checks].count(What.STATUS) == 1, step.name


def test_no_handle_of_the_recorded_machine_is_left(trace: tuple[list[Record], Script]) -> None:
    """RM chooses the handles of clients: each one in what is sent must be put in anew."""
    recorded, script = trace
    clients = {r.after[8:12] for r in recorded if isinstance(r, Call) and r.nr == 0x2B and r.before[:4] == bytes(4)}
    assert clients
    for step in ioctls(script):
        for where, block in ((Where.OUTER, step.block), (Where.NESTED, step.nested)):
            fixed = {fix.offset for fix in step.fixes if fix.where == where and fix.thing == Thing.CLIENT}
            left = [at for at in range(0, len(block) - 3, 4) if block[at : at + 4] in clients and at not in fixed]
            assert not left, (step.seq, step.name, where, left)


def test_the_ends_of_uvm_blocks_are_what_the_recorded_stack_shows(trace: tuple[list[Record], Script]) -> None:
    """The 256 bytes of CREATE_EXTERNAL_RANGE before it happen to end with the arguments of the mapping."""
    recorded, script = trace
    by_seq = {record.seq: record for record in recorded if isinstance(record, Call)}
    mapped = [step for step in ioctls(script) if step.name == "UVM_MAP_EXTERNAL_ALLOCATION"]
    assert len(mapped) > 25
    for step in mapped:
        assert step.block[9248:9260] == by_seq[step.seq - 1].after[244:256], step.seq


def test_each_file_carries_one_mapping_and_is_registered_once(trace: tuple[list[Record], Script]) -> None:
    opened: dict[int, str] = {}
    mapped: list[int] = []
    registered: list[int] = []
    for step in trace[1].steps:
        match step:
            case Open():
                assert step.file not in opened
                opened[step.file] = step.device
            case Close():
                assert step.file in opened
            case Map() if opened[step.file] != "nvidia-uvm":
                mapped.append(step.file)
            case Ioctl(name="REGISTER_FD"):
                registered.append(step.file)
            case _:
                pass
    assert len(mapped) == len(set(mapped)) > 20
    assert len(registered) == len(set(registered)) > 5


def test_memory_at_recorded_addresses_does_not_overlap_other_memory(trace: tuple[list[Record], Script]) -> None:
    placed = sorted((s.address, s.size) for s in trace[1].steps if isinstance(s, Buffer) and s.address)
    assert placed
    for (address, size), (following, _) in pairwise(placed):
        assert address + size <= following


def test_sizes_that_the_driver_granted_are_compared() -> None:
    script = convert(records(NAMES[1]), NAMES[1])
    granted = {step.seq: c.expected for step in ioctls(script) for c in step.checks if c.what == What.SIZE}
    asked = {s.seq: struct.unpack_from("<Q", s.nested, 0x40)[0] for s in ioctls(script) if s.seq in granted}
    assert (asked[468], granted[468]) == (0x44C6880, 0x4600000), "rounded up to 2 MiB"
    assert sum(granted[seq] > asked[seq] for seq in granted) >= 3
    assert all(granted[seq] >= asked[seq] for seq in granted)


def test_the_program_that_is_left_has_the_recorded_compute_group() -> None:
    program = convert(records(NAMES[1]), NAMES[1]).program
    assert (program.device, program.subdevice, program.tsg, program.ctxshare, program.vaspace) == (
        0x5C000002, 0x5C000003, 0x5C000015, 0x5C000016, 0x5C000009,
    )  # fmt: skip


def test_objects_of_the_mps_server_are_made_by_a_stand_in_first() -> None:
    script = convert(records(NAMES[0]), NAMES[0])
    names = [step.name for step in script.steps if isinstance(step, Ioctl)]
    assert names[:7] == [
        "stand-in: client", "stand-in: device", "stand-in: VA space", "stand-in: TSG", "stand-in: context share",
        "stand-in: memory", "stand-in: memory",
    ]  # fmt: skip
    assert names.count("RM_DUP_OBJECT") == 3


def test_the_packed_form_begins_as_the_reader_wants_it() -> None:
    script = convert(records(NAMES[1]), "a trace")
    packed = script.pack()
    assert packed[:8] == b"NVREPLAY"
    assert struct.unpack_from("<II", packed, 8) == (1, len(script.steps))
    assert packed[26:34] == bytes([7]) + b"a trace"


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "nonsense", '{"seq": 1, "fd": 2, "path": "/dev/nvidiactl", "nr": 3}']
)  # fmt: skip
def test_a_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n" if line else "")
    with pytest.raises(TraceError, match=r"x\.jsonl"):
        read(path)


def test_a_mapping_that_never_comes_is_named(tmp_path: Path) -> None:
    with gzip.open(TRACES / f"{NAMES[1]}.jsonl.gz", "rt") as stream:
        lines = [line for line in stream if "mmap" not in json.loads(line)]
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(lines))
    with pytest.raises(TraceError, match="record 78 arms descriptor 17, which is never mapped"):
        convert(read(path), "cut")


def test_records_know_what_the_call_did_not_change() -> None:
    found = records(NAMES[1])
    call = found[8]
    assert isinstance(call, Call)
    assert call.nested_after == call.nested_before != b""
    assert isinstance(found[79], Mapping)
    assert found[79].length == 0x10000
