# SPDX-License-Identifier: Apache-2.0
"""`detshare-trace timeline`, from a log that is made up."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.ctl.gputime import drawing
from detshare.ctl.gputime import recording as recordings
from detshare.ctl.trace import timeline
from detshare.ctl.trace.cli import cli
from tests.patience import LONG_S
from tests.unit.gputime.recordings import MadeDriver, MadeLog, busy, end, recording, start


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeDriver:
    first = MadeLog([[start(100, 7), end(250_100, 7), start(300_000, 8), end(900_000, 8)]], 1_000_001)
    second = MadeLog([[start(1, 9)]], 1_000_001, drops=(1,))
    driver = MadeDriver({"GPU-1": first, "GPU-2": second}, {7: "/usr/bin/python serve.py", 9: "python \x1b[31mx"})
    monkeypatch.setattr(timeline, "driver", lambda backend: driver)
    return driver


def run(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["timeline", *map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.usefixtures("made")
def test_a_recording_is_summed_up_written_and_drawn_again(tmp_path: Path) -> None:
    out, svg, trace = tmp_path / "a.jsonl.gz", tmp_path / "a.svg", tmp_path / "a.json"
    code, said, told = run("--seconds", "0.1", "--out", out, "--svg", svg, "--chrome", trace)
    assert code == 0
    rows = [line.split() for line in said.splitlines()]
    assert ["0", "7", "25.0%", "1000.0", "250us", "python", "serve.py"] in rows
    assert ["1", "9", "100.0%", "1000.0", "1ms", "python", "?[31mx"] in rows
    assert "partial: GPU 1: 1 record(s) were lost" in told
    assert recordings.read(out).names[7] == "/usr/bin/python serve.py"
    again, packed = tmp_path / "again.svg", tmp_path / "again.json.gz"
    code, _, _ = run("--from", out, "--svg", again, "--chrome", packed)
    assert code == 0
    assert again.read_text() == svg.read_text()
    assert json.loads(gzip.decompress(packed.read_bytes())) == json.loads(trace.read_text())


@pytest.mark.usefixtures("made")
def test_json_is_one_line_with_all_of_it(tmp_path: Path) -> None:
    code, said, _ = run("--seconds", "0.1", "--gpu", "0", "--json", "--svg", tmp_path / "a.svg")
    answer = json.loads(said)
    assert code == 0
    assert answer["files"] == [str(tmp_path / "a.svg")]
    (gpu,) = answer["gpus"]
    assert [each["pid"] for each in gpu["programs"]] == [7, 8]
    assert gpu["programs"][1]["share"] == pytest.approx(0.6)
    assert gpu["switches"]["runs"] == 1


def test_a_part_of_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    recordings.write(path, recording(busy(1.0, 100, [7, 8]), 1.0))
    drawn, half = tmp_path / "drawn.svg", tmp_path / "half.svg"
    run("--from", path, "--begin", "0.5", "--length", "0.01", "--svg", drawn)
    run("--from", path, "--begin", "0.5", "--svg", half)
    assert drawn.read_text() == drawing.svg(recordings.read(path), 0.5, 0.01)
    assert half.read_text() == drawing.svg(recordings.read(path), 0.5)
    code, said, _ = run("--from", path, "--begin", "0.5", "--length", "0.01", "--json")
    assert code == 0
    assert json.loads(said)["gpus"][0]["seconds"] == pytest.approx(0.01)
    assert [each["pid"] for each in json.loads(said)["gpus"][0]["programs"]] == [7]


def test_the_model_has_a_log_too(tmp_path: Path) -> None:
    code, said, _ = run("--backend", "model", "--seconds", "0.3", "--json", "--svg", tmp_path / "a.svg")
    answer = json.loads(said)
    assert code == 0
    assert answer["proof"] == "model"
    shares = {each["command"].split()[1]: each["share"] for each in answer["gpus"][0]["programs"]}
    assert shares["train.py"] > shares["serve.py"] > 0
    assert "proof level model" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    "args",
    [
        ["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "inf"], ["--from", "x", "--seconds", "1"],
        ["--from", "x", "--out", "y"], ["--backend", "nonsense"], ["--gpu", "-1"], ["--length", "0"], ["extra"],
    ],
)  # fmt: skip
def test_what_cannot_be_meant_exits_with_2(args: list[str]) -> None:
    assert run(*args)[0] == 2


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--from", "nothing"], "No such file"),
        (["--from", __file__], "gzip"),
        (["--seconds", "0.1", "--gpu", "5"], "there is no GPU 5"),
        (["--seconds", "0.1", "--svg", "/nowhere/x.svg"], "write /nowhere/x.svg"),
    ],
)
@pytest.mark.usefixtures("made")
def test_what_was_not_done_says_why(args: list[str], why: str) -> None:
    with pytest.raises(timeline.EbpfError, match=why):
        run(*args)


def test_a_part_beyond_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    recordings.write(path, recording([], 1.0))
    with pytest.raises(timeline.EbpfError, match=r"1\.000 s long"):
        run("--from", path, "--begin", "1")


@pytest.mark.usefixtures("made")
def test_a_refused_log_is_a_failure(made: MadeDriver) -> None:
    made.logs.clear()
    with pytest.raises(timeline.EbpfError, match="for root"):
        run("--seconds", "0.1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_who_is_not_root_is_told() -> None:
    with pytest.raises(timeline.EbpfError, match="needs root"):
        run("--seconds", "0.1")


def test_the_command_itself_exits_with_1_and_the_next_step() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "detshare.ctl.trace.cli", "timeline", "--from", "/nowhere", "--json"],
        capture_output=True, text=True, timeout=LONG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "read a recording" in done.stderr
    assert "next:" in done.stderr
    assert set(json.loads(done.stdout)["error"]) == {"asked", "stopped", "next"}
    assert "Example: detshare-trace timeline" in run("--help")[1]


def test_an_interrupt_keeps_what_was_recorded(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl.gz"
    command = [sys.executable, "-m", "detshare.ctl.trace.cli", "timeline", "--backend", "model", "--seconds", "600"]
    with subprocess.Popen([*command, "--json", "--out", str(out)], stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        assert "watching" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LONG_S)
    assert process.returncode == 0
    assert json.loads(said)["files"] == [str(out)]
    assert recordings.read(out).gpus[0].seconds < 600
