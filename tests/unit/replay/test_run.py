# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detshare.tools.replay import __main__ as command
from detshare.tools.replay.conformance import TRACES, Setting, convert_all, rows
from detshare.tools.replay.run import Mismatch, Report, RunError, build, parse, replay

OUTPUT = """chatter
{"event":"replayed","trace":"one","calls":5,"accepted":5,"mappings":2,"checks":9,"mismatches":0}
{"event":"mismatch","seq":7,"name":"RM_ALLOC X","what":"status","expected":0,"got":81}
{"event":"mismatch","seq":-1,"name":"stand-in: TSG","what":"return","expected":0,"got":-22}
{"event":"replayed","trace":"two","calls":5,"accepted":3,"mappings":2,"checks":9,"mismatches":2}
"""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvclient"))


def test_each_report_has_its_own_mismatches() -> None:
    one, two = parse(OUTPUT)
    assert one == Report("one", 5, 5, 2, 9, ())
    assert one.agrees
    assert not two.agrees
    assert two.mismatches[0] == Mismatch(7, "RM_ALLOC X", "status", 0, 81)
    assert str(two.mismatches[0]) == "record 7, RM_ALLOC X: status 0x51, recorded was 0x0"


def test_a_result_says_how_many_calls_were_accepted_and_how_many_values_differ() -> None:
    table = rows(Setting("6.12", True), parse(OUTPUT))
    assert [(row.value, row.ok) for row in table] == [(5.0, True), (0.0, True), (3.0, False), (2.0, False)]
    assert table[0].what == "one, Linux 6.12, with detshare.ko: calls with the recorded status"


@pytest.mark.parametrize("keep", [0, 7, 12, 30, 60, 90, 400, 5000, -1])
def test_a_damaged_script_ends_with_a_sentence(clients: Path, tmp_path: Path, keep: int) -> None:
    whole = convert_all(tmp_path)[1].read_bytes()
    script = tmp_path / "cut.nvr"
    script.write_bytes(whole[:keep] if keep >= 0 else b"\xff" * 200)
    done = subprocess.run([clients / "nvreplay", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("nvreplay: ")


def test_programs_say_what_they_do_and_refuse_what_they_do_not_know(clients: Path) -> None:
    programs = sorted(path for path in clients.iterdir() if path.name.startswith("nv"))
    assert {"nvreplay", "nvlatency", "nvbackground", "nvalloc", "nvraw"} <= {path.name for path in programs}
    for program in programs:
        done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.startswith(f"usage: {program.name} ")) == (0, True), program
        assert "example: " in done.stdout
        wrong = subprocess.run([program, "--no-such-option"], capture_output=True, text=True, check=False)
        assert (wrong.returncode, wrong.stdout) == (2, ""), program


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a driver is loaded here")
def test_without_a_driver_the_command_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(TRACES / "h100-580-mps-client.jsonl.gz")]) == 1
    assert "/dev/nvidiactl is not there; load a driver, or run this in detshare-vm" in capsys.readouterr().err


def test_the_command_converts_without_a_driver(tmp_path: Path) -> None:
    out = tmp_path / "x.nvr"
    assert command.main([str(TRACES / "h100-580-mps-client.jsonl.gz"), "--script", str(out)]) == 0
    assert out.read_bytes()[:8] == b"NVREPLAY"


def test_a_missing_trace_and_an_unknown_layout_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main([str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl" in capsys.readouterr().err
    assert command.main([str(TRACES / "h100-580-mps-client.jsonl.gz"), "--layout", "1.2"]) == 2
    assert "no ABI table has '1.2'" in capsys.readouterr().err


def test_a_program_that_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nvreplay is not there; make -C tests/nvclient builds it"):
        replay(tmp_path / "x.nvr", tmp_path)
