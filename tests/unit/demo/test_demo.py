# SPDX-License-Identifier: Apache-2.0
"""The whole demo on the model, as a person runs it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.ctl.backends.model.live import READING_S
from detshare.tools import demo as package
from detshare.tools.demo import vm
from detshare.tools.demo.choice import Choice
from detshare.tools.demo.figures import Closing, Figures
from detshare.tools.demo.stages import READING_SECONDS
from tests.patience import ended, run

DEMO = [sys.executable, "-c", "from detshare.tools.demo import demo; demo()", "--model"]


def processes_of(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files: sockets lie in it, and a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="ds-") as name:
        yield Path(name)


def test_a_reading_of_the_model_holds_one_phase_only() -> None:
    assert READING_SECONDS > READING_S


@pytest.mark.e2e
def test_model_path_end_to_end(short: Path) -> None:
    done = run(
        [*DEMO, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(short), "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    closing = json.loads(done.stdout)
    assert closing["proof"] == "model"
    assert closing["better"] is True
    phases = closing["phases"]
    assert phases["alone"]["p99_us"] < phases["after"]["p99_us"] < phases["before"]["p99_us"]
    assert phases["released"]["p99_us"] > phases["after"]["p99_us"]
    assert phases["before"]["throughput"] > 0
    assert all(phase["count"] > 100 for phase in phases.values())
    shown = done.stderr
    assert "proof level model" in shown.splitlines()[0]
    for command in ("ps", "set-priority", "release", "--once"):
        assert any(line.startswith("$ detshare-") and command in line for line in shown.splitlines()), command
    assert "[model] p99" in shown
    assert list(short.iterdir()) == []
    assert processes_of(short) == []


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_when_it_is_ended(short: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        DEMO,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(short)},
    )
    assert process.stdout is not None
    with process.stdout as out:
        assert any("measure alone" in line for line in out)
        assert processes_of(short)
        process.send_signal(number)
        rest = out.read()
    assert ended(process) == 128 + number
    assert "Traceback" not in rest
    assert list(short.iterdir()) == []
    assert processes_of(short) == []


@pytest.mark.parametrize(("after", "code"), [(3000.0, 0), (7000.0, 1)])
def test_it_can_fail(monkeypatch: pytest.MonkeyPatch, after: float, code: int) -> None:
    phases = {name: Figures(2000.0, 6000.0, 100, 10.0) for name in ("alone", "before", "released")}
    closing = Closing(
        "model", "no GPU", "a", "b", "steps/s", {**phases, "after": Figures(2000.0, after, 100, 10.0)}, 1.0
    )
    monkeypatch.setattr(package, "perform", lambda *_: closing)
    result = CliRunner().invoke(package.demo, ["--model"])
    assert result.exit_code == code
    assert f"{after / 1000:.2f} ms" in result.output
    assert ("NOT better" in result.output) is bool(code)


def test_without_what_a_virtual_machine_needs_the_reason_is_told(tmp_path: Path) -> None:
    assert "Kbuild is not there" in str(vm.why_not(tmp_path))
    done = CliRunner().invoke(package.demo, ["--model", "--vm"])
    assert done.exit_code == 2


def test_where_no_virtual_machine_can_be_the_model_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures(2000.0, 3000.0, 100, 10.0)
    closing = Closing("model", "m", "a", "b", "steps/s", dict.fromkeys(("alone", "before", "after"), figures), 1.0)
    monkeypatch.setattr(vm, "why_not", lambda: "QEMU is missing")
    monkeypatch.setattr(package, "choose", lambda: Choice(False, "no GPU here"))
    monkeypatch.setattr(package, "perform", lambda *_: closing)
    shown = CliRunner().invoke(package.demo, []).output
    assert "no virtual machine: QEMU is missing" in shown
    assert "released" not in shown
    refused = CliRunner().invoke(package.demo, ["--vm"])
    assert refused.exit_code == 1
    assert "detshare demo --model" in refused.output


def test_preloaded_commands_are_the_commands(tmp_path: Path) -> None:
    code = (
        "from detshare.tools.demo.preloaded import Preloaded\n"
        "with Preloaded() as p:\n"
        "    p.wait()\n"
        "    print(p.run('detshare-ctl', '--run-dir', '" + str(tmp_path / "run") + "', '--backend', 'model', 'ps'))\n"
        "    print(p.run('detshare-ctl', 'set-priority', '0', 'high'))\n"
        "    print(p.run('detshare-top', '--sort', 'nosuch'))\n"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second, third = done.stdout.splitlines()
    assert first.startswith("(0, ")
    assert "serve.py" in first
    assert second.startswith("(2, ")
    assert "0 is no PID" in second
    assert third.startswith("(2, ")
    assert "Invalid value for '--sort'" in third


@pytest.mark.e2e
def test_a_daemon_that_cannot_start_is_told_with_its_words(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    done = run(DEMO, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(deep)})
    assert done.returncode == 1
    assert "next:" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(deep.iterdir()) == []
