# SPDX-License-Identifier: Apache-2.0
"""What commands write to: pipes, other encodings, a full disk, nothing. What they write where they cannot be meant."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from fake_backend import FakeBackend, programs

from detshare.ctl.cli import app, top
from detshare.ctl.cli.main import main
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.verbs import describe
from detshare.ctl.sim import cli as simulator
from detshare.ctl.top import source
from detshare.ctl.trace import cli as tracer
from detshare.tools.main import detshare

Capture = pytest.CaptureFixture[str]
LONG = "/opt/x/bin/python " + "long/" * 100 + "träin.py"


class Full(io.StringIO):
    """Stands for a file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def long(alone: FakeBackend) -> FakeBackend:
    alone.programs = [dataclasses.replace(program, command=LONG) for program in programs()]
    return alone


@pytest.mark.parametrize("charset", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("words", [["ps"], ["show", "4242"]])
def test_a_command_is_shown_in_any_encoding(long: FakeBackend, run_dir: Path, charset: str, words: list[str]) -> None:
    done = CliRunner(charset=charset).invoke(main, ["--run-dir", str(run_dir), *words], env={"COLUMNS": "800"})
    assert done.exit_code == 0, done.exception
    assert ("tr?in.py" if charset == "ascii" else "träin.py") in done.stdout


@pytest.mark.parametrize(("charset", "drawn"), [("ascii", "#####"), ("latin-1", "#####"), ("utf-8", "█████")])
@pytest.mark.parametrize("words", [["ps"], ["show", "4242"]])
def test_a_history_is_drawn_with_what_the_encoding_has(
    alone: FakeBackend, run_dir: Path, charset: str, drawn: str, words: list[str]
) -> None:
    time = GpuTime(programs()[0].gpus[0], 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, history=(1.0,) * 50)
    alone.programs = [dataclasses.replace(program, gpu_time=(time,)) for program in programs()]
    done = CliRunner(charset=charset).invoke(main, ["--run-dir", str(run_dir), *words])
    assert drawn in done.stdout


def test_a_pipe_gets_whole_commands(long: FakeBackend, run_dir: Path) -> None:
    """`detshare-ctl ps | grep train.py` finds it."""
    runner = CliRunner()
    piped = runner.invoke(main, ["--run-dir", str(run_dir), "ps"], env={"COLUMNS": None})
    assert piped.stdout.count("träin.py\n") == len(programs())
    narrow = runner.invoke(main, ["--run-dir", str(run_dir), "ps"], env={"COLUMNS": "90"})
    assert max(map(len, narrow.stdout.splitlines())) <= 90


@pytest.mark.parametrize("columns", ["0", "00", "\u00b2"])
@pytest.mark.parametrize("words", [["ps"], ["show", "4242"], ["preempt", "4242"]])
def test_columns_that_say_no_width_are_as_none(
    long: FakeBackend, run_dir: Path, columns: str, words: list[str]
) -> None:
    without, with_it = (
        CliRunner().invoke(main, ["--run-dir", str(run_dir), *words], env={"COLUMNS": told})
        for told in (None, columns)
    )
    assert (with_it.stdout, with_it.exception) == (without.stdout, None)
    assert without.stdout


def test_top_without_standard_input_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit, match="2"):
        top.main([])
    assert "a live screen needs a terminal" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["ps"], ["ps", "--json"], ["preempt", "4242"]])
def test_a_full_disk_is_told(
    alone: FakeBackend, run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit, match="1"):
        main(["--run-dir", str(run_dir), *words])
    assert (told := capsys.readouterr().err).startswith("detshare-ctl: write the answer: ")
    assert "next: " in told


@pytest.mark.parametrize("buffered", [[], ["-u"]])
@pytest.mark.parametrize(("where", "why"), [(">/dev/full", "No space left"), (">&-", "Bad file descriptor")])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("detshare.ctl.daemon.detshared", "--help"),
        ("detshare.ctl.cli", "--help"),
        ("detshare.ctl.cli", "ps --help"),
        ("detshare.ctl.cli", "--backend model --run-dir absent ps"),
        ("detshare.ctl.cli.top", "--help"),
        ("detshare.ctl.sim.cli", "fleet --made 3"),
        ("detshare.ctl.trace.cli", "--help"),
        ("detshare.tools.main", "--help"),
    ],
)
def test_an_answer_that_cannot_be_written_is_told_once(
    monkeypatch: pytest.MonkeyPatch, module: str, words: str, where: str, why: str, buffered: list[str]
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    command = ["sh", "-c", f'exec "$@" {words} {where}', "sh", sys.executable, *buffered, "-m", module]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count(f": write the answer: standard output takes nothing more ({why}") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_closed_standard_output_stays_closed_for_programs_that_are_started() -> None:
    code = (
        "import subprocess, sys; from detshare.ctl.core import streams; streams.hold();"
        "sys.exit(subprocess.call(['sh', '-c', 'test ! -e /proc/self/fd/1']))"
    )
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", code], check=False)
    assert done.returncode == 0


def test_an_error_of_a_file_is_no_full_disk(ctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/var/x")

    monkeypatch.setattr("detshare.ctl.cli.link.Place.control", absent)
    with pytest.raises(OSError, match="/var/x"):
        ctl("ps")


def test_a_full_disk_is_told_by_top_too(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(source.Machine, "look", lambda self: {"programs": [], "gpus": []})
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit, match="1"):
        top.main(["--json"])
    assert capsys.readouterr().err.startswith("detshare-top: write the answer: ")


@pytest.mark.parametrize(
    ("of", "words"), [(simulator, ["fleet", "--made", "3"]), (tracer, ["doctor"]), (tracer, ["doctor", "--json"])]
)
def test_a_full_disk_is_told_by_the_others_too(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, of: ModuleType, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *words])
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(SystemExit, match="1"):
        of.main()
    assert ": write the answer: " in capsys.readouterr().err


@pytest.mark.parametrize("command", [detshare, simulator.cli, tracer.cli])
def test_each_program_takes_any_encoding(command: click.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    said = click.Command("said", callback=lambda: click.echo("träin ▇"))
    monkeypatch.setattr(type(command), "get_command", lambda group, context, name: said)
    done = CliRunner(charset="latin-1").invoke(command, ["said"])
    assert (done.exit_code, done.stdout) == (0, "träin ?\n")


def test_events_end_well_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    app._tell_event({"time": 0.0, "kind": "attach", "pid": 1, "text": "x"}, as_json=True)


@pytest.mark.parametrize(
    "words", [["set-weight", "4242", "0"], ["set-weight", "4242"], ["why", "nobody"], ["tenant", "add"], ["ps", "x"]]
)
def test_with_json_what_cannot_be_meant_is_json(ctl: Callable[..., Any], words: list[str]) -> None:
    done = ctl(*words, "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["asked"] == " ".join(words[: 2 if words[0] == "tenant" else 1])
    assert error["stopped"] in done.stderr
    assert error["next"].startswith("see: ")
    assert ctl(*words).stdout == ""


def test_with_json_top_fails_in_json(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
    def refuse(run_dir: Path) -> dict[str, Any]:
        raise ControlError("list programs", "no driver", "load it")

    monkeypatch.setattr(top, "alone", refuse)
    done = CliRunner().invoke(top.main, ["--run-dir", str(run_dir), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"] == {"asked": "list programs", "stopped": "no driver", "next": "load it"}
    assert "next: load it" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (top.main, ["--interval", "nan", "--once"]),
        (simulator.cli, ["fleet", "--made", "3", "--memory-gib", "nan"]),
        (simulator.cli, ["run", "--arrivals", "poisson", "--rate", "inf"]),
    ],
)
def test_a_number_that_is_none_is_refused(command: click.Command, words: list[str]) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert "is no number" in done.stderr


def test_a_request_reads_as_it_is_typed() -> None:
    assert describe("set-priority", "python train.py*", {"class": "low"}) == "set-priority 'python train.py*' low"
    assert describe("set-priority", "", {"class": "low"}) == "set-priority '' low"
    assert describe("resume", "4242", {"lazy": True}) == "resume 4242 --lazy"
    assert describe("resume", "a\nb", {}) == r"resume 'a\nb'"


def test_show_tells_no_line_end_of_what_was_asked(ctl: Callable[..., Any], alone: FakeBackend) -> None:
    assert ctl("show", "a\n\x1b[2J").stderr.startswith(r"detshare-ctl: show 'a\n\x1b[2J': ")


def test_nothing_is_changed_where_standard_output_is_no_text_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    app.streams.any_encoding()
    assert not app.streams.utf8()
